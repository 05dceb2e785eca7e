"""Asset checks: what readers see against what was published."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import dagster as dg

from athena_assets.core.answers import describe
from athena_assets.core.location import Location
from athena_assets.core.register import Mode, Register, State
from athena_assets.core.scrub import ScrubReport
from athena_assets.core.target import Target
from athena_assets.errors import AthenaAssetsError
from athena_assets.orchestration.check_rows import RowCount, count
from athena_assets.orchestration.check_schema import SchemaChange, schema_change
from athena_assets.orchestration.failures import failure
from athena_assets.orchestration.metadata import Metadata
from athena_assets.unload import Publisher

SCRUB, ROW_COUNT, SCHEMA_CHANGE = "scrub", "row_count", "schema_change"
CHECKS: Mapping[str, str] = {
    SCRUB: "Readers see exactly what was published: every file of the manifest, once, and nothing else.",
    ROW_COUNT: "The published files hold as many rows as the query gave.",
    SCHEMA_CHANGE: "The columns are those of the publication before.",
}
"""The name of each check and what it says when it passes."""

MOST_PARTITIONS = 500  # of one evaluation that is not a run's own partitions: about a minute of S3 calls
EXAMPLES = 10  # keys named for each kind of difference
_AT_ONCE = 8

T = TypeVar("T")


def build_unload_checks(
    target: Target,
    *,
    checks: bool | Collection[str] = True,
    blocking: Collection[str] = (),
    asset_key: dg.AssetKey | None = None,
    most_partitions: int = MOST_PARTITIONS,
    resource_key: str = "athena",
) -> Sequence[dg.AssetChecksDefinition]:
    """Checks of what readers of the target's asset see. They start no query and change nothing.

    - `scrub` lists the location and compares it with the register's publication. It fails (ERROR) where files of the
      publication are missing or changed, where objects that this system wrote belong to no publication (readers see
      their rows twice), where others' objects lie, or where the slot is blocked.
    - `row_count` counts the rows in the published files and compares them with what Athena said of the query. Another
      number is an ERROR. Where Athena told none, it passes and says so; where the files can't be counted, it warns:
      their reader is not installed, or files of a format without footers have more than 256 MiB together.
    - `schema_change` compares the columns that were recorded with those of the publication before, and warns. It knows
      what Dagster materialized, of formats that tell their columns (PARQUET, ORC).

    While another result is being put in place, differences are to be expected: then `scrub` and `row_count` warn. How
    fresh the asset is, is told by Dagster's own FreshnessPolicy.

    Of a partitioned target the partitions of the run are checked. In a run without partitions (the check alone, from
    the UI) all that were materialized are, or the last `most_partitions` of them in the order of their keys; the
    metadata say how many were left out. All checks are one step of a run.

    Args:
        target: of which the asset is published.
        checks: which of them; True: all.
        blocking: those whose ERROR keeps what depends on the asset from running in the same run.
        asset_key: of that asset, if a translator gave it another one than the target's name.
        most_partitions: see above.
        resource_key: under which an AthenaUnloadResource is found.

    Raises:
        InvalidTarget: there is no check of such a name.
    """
    chosen = _chosen(target, "checks", checks, tuple(CHECKS))
    blocks = _chosen(target, "blocking", blocking, chosen)
    checked = asset_key or dg.AssetKey(target.name.split("/"))

    @dg.multi_asset_check(
        name="__".join((*checked.path, "checks")),
        specs=[
            dg.AssetCheckSpec(name, asset=checked, description=CHECKS[name], blocking=name in blocks) for name in chosen
        ],
        can_subset=True,
        required_resource_keys={resource_key},
    )
    def unload_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        publisher = getattr(context.resources, resource_key).publisher()
        partitions, left_out = _partitions(context, target, checked, most_partitions)
        coverage = _coverage(target, len(partitions), left_out)
        selected = {key.name for key in context.selected_asset_check_keys}
        try:
            if SCRUB in selected:
                yield _scrub(_at_once(lambda each: _look(publisher, target.location_for(each)), partitions), coverage)
            if ROW_COUNT in selected:
                yield _row_count(_at_once(lambda each: count(publisher, target, each), partitions), coverage)
        except AthenaAssetsError as error:
            raise failure(error, None) from error
        if SCHEMA_CHANGE in selected:
            yield _schema_change(schema_change(context.instance, checked, context.run.run_id))

    return [unload_checks] if chosen else []


def _chosen(target: Target, field: str, names: bool | Collection[str], known: Sequence[str]) -> Sequence[str]:
    """Those of the known names, in their order."""
    if isinstance(names, bool):
        return known if names else ()
    for name in names:
        if name not in known:
            raise target.invalid(field, f"{name!r} is none of its checks.", f"Use {', '.join(known) or 'none'}.")
    return [name for name in known if name in names]


def _at_once(look: Callable[[str | None], T], partitions: Sequence[str | None]) -> list[T]:
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="athena_assets_checks") as pool:
        return list(pool.map(look, partitions))


def _scrub(findings: Sequence["_Finding"], coverage: Metadata) -> dg.AssetCheckResult:
    wrong = [each for each in findings if each.wrong]
    moving = [each for each in findings if each.moving]
    return dg.AssetCheckResult(
        check_name=SCRUB,
        passed=not wrong and not moving,
        severity=dg.AssetCheckSeverity.ERROR if wrong else dg.AssetCheckSeverity.WARN,
        description=" ".join(each.told for each in [*wrong, *moving][:EXAMPLES]) or None,
        metadata=_metadata(findings) | coverage,
    )


def _row_count(counts: Sequence[RowCount], coverage: Metadata) -> dg.AssetCheckResult:
    wrong = [each for each in counts if each.differs]
    unknown = [each for each in counts if each.problem is not None]
    told = [each.told for each in [*wrong, *unknown, *counts] if each.told]
    metadata: Metadata = {
        "athena_assets/rows_counted": dg.MetadataValue.int(sum(each.counted or 0 for each in counts)),
        "athena_assets/rows_given": dg.MetadataValue.int(sum(each.given or 0 for each in counts)),
    }
    return dg.AssetCheckResult(
        check_name=ROW_COUNT,
        passed=not wrong and not unknown,
        severity=dg.AssetCheckSeverity.ERROR if wrong else dg.AssetCheckSeverity.WARN,
        description=" ".join(list(dict.fromkeys(told))[:EXAMPLES]) or None,
        metadata=metadata | coverage,
    )


def _schema_change(found: SchemaChange) -> dg.AssetCheckResult:
    told = "; ".join(found.changes[:EXAMPLES]) if found.compared else "There is nothing to compare with."
    return dg.AssetCheckResult(
        check_name=SCHEMA_CHANGE,
        passed=not found.changes,
        severity=dg.AssetCheckSeverity.WARN,
        description=told or None,
        metadata={"athena_assets/changes": dg.MetadataValue.json(list(found.changes))},
    )


@dataclass(frozen=True, slots=True)
class _Finding:
    """One slot. `under_way`: its location was being changed while we looked."""

    location: Location
    report: ScrubReport
    under_way: bool

    @property
    def differs(self) -> bool:
        return bool(self.report.missing or self.report.stray or self.report.foreign or self.report.astray)

    @property
    def wrong(self) -> bool:
        return self.blocked or (self.differs and not self.under_way)

    @property
    def moving(self) -> bool:
        return self.differs and self.under_way

    @property
    def blocked(self) -> bool:
        return self.report.register is not None and self.report.register.state is State.BLOCKED

    @property
    def told(self) -> str:
        report = self.report
        counts = f"{len(report.missing)} missing, {len(report.stray)} stray, {len(report.foreign)} foreign"
        if report.astray is not None:
            counts += f", Glue sends readers elsewhere ({report.astray})"
        if self.blocked:
            assert report.register is not None and report.register.failure is not None
            return f"{self.location} is blocked ({report.register.failure.reason}): {counts}."
        if self.under_way:
            return f"{self.location} is being changed: {counts} for now; check again when it is done."
        return f"{self.location}: {counts}."


def _look(publisher: Publisher, location: Location) -> _Finding:
    report = publisher.scrub(location)
    finding = _Finding(location, report, under_way=False)
    if not finding.differs:
        return finding
    # The register was read before the listing: what began in between is seen by a second look.
    return _Finding(location, report, under_way=_changes(report.register, publisher.status(location)))


def _changes(before: Register | None, after: Register | None) -> bool:
    """Whether a result was being put in place between two looks. A staged query that runs changes no location."""
    fences = [each.publication.fence if each and each.publication else 0 for each in (before, after)]
    return fences[0] != fences[1] or any(each is not None and _writes(each) for each in (before, after))


def _writes(register: Register) -> bool:
    if register.state in (State.SUBMITTING, State.RUNNING):
        return register.current.settings.mode is Mode.DIRECT
    return register.state is State.PUBLISHING


def _partitions(
    context: dg.AssetCheckExecutionContext, target: Target, asset_key: dg.AssetKey, most: int
) -> tuple[Sequence[str | None], int]:
    if not target.partitioned:
        return [None], 0
    if context.has_partition_key or context.has_partition_key_range:
        return context.partition_keys, 0
    known = sorted(context.instance.get_materialized_partitions(asset_key))
    return known[-most:], max(len(known) - most, 0)


def _coverage(target: Target, checked: int, left_out: int) -> Metadata:
    if not target.partitioned:
        return {}
    return {
        "athena_assets/partitions_checked": dg.MetadataValue.int(checked),
        "athena_assets/partitions_left_out": dg.MetadataValue.int(left_out),
    }


def _metadata(findings: Sequence[_Finding]) -> Metadata:
    kinds: Mapping[str, Callable[[ScrubReport], Iterable[str]]] = {
        "missing": lambda report: report.missing,
        "stray": lambda report: [each.key for each in report.stray],
        "foreign": lambda report: [each.key for each in report.foreign],
    }
    metadata: Metadata = {}
    for kind, keys in kinds.items():
        found = [f"s3://{each.location.bucket}/{key}" for each in findings for key in keys(each.report)]
        metadata[f"athena_assets/{kind}"] = dg.MetadataValue.int(len(found))
        if found:
            metadata[f"athena_assets/{kind}_examples"] = dg.MetadataValue.json(found[:EXAMPLES])
    held = [each.report.register for each in findings if each.moving and each.report.register is not None]
    if held:
        metadata["athena_assets/owner"] = dg.MetadataValue.text(describe(held[0]))
    return metadata
