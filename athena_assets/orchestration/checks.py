"""Asset checks: what readers see against what was published."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import dagster as dg

from athena_assets.core.answers import describe
from athena_assets.core.location import Location
from athena_assets.core.register import Mode, Register, State
from athena_assets.core.scrub import ScrubReport
from athena_assets.core.target import Target
from athena_assets.errors import AthenaAssetsError
from athena_assets.orchestration.failures import failure
from athena_assets.orchestration.resource import AthenaUnloadResource
from athena_assets.unload import Publisher

CHECK_NAME = "scrub"
MOST_PARTITIONS = 500  # of one evaluation that is not a run's own partitions: about a minute of S3 calls
EXAMPLES = 10  # keys named for each kind of difference
_AT_ONCE = 8


def build_unload_checks(
    target: Target,
    *,
    asset_key: dg.AssetKey | None = None,
    most_partitions: int = MOST_PARTITIONS,
    resource_key: str = "athena",
) -> Sequence[dg.AssetChecksDefinition]:
    """A check, `scrub`, that readers of the target's asset see exactly what was published.

    It lists the location and compares it with the register's publication; it starts no query and changes nothing. It
    fails (ERROR) where files of the publication are missing or changed, where objects that this system wrote belong to
    no publication (readers see their rows twice), where others' objects lie, or where the slot is blocked. While
    another result is being put in place differences are to be expected: then it warns.

    Of a partitioned target it checks the partitions of its run. In a run without partitions (the check alone, from the
    UI) it checks all that were materialized, or the last `most_partitions` of them in the order of their keys, and says
    how many it left out.

    Args:
        target: of which the asset is published.
        asset_key: of that asset, if a translator gave it another one than the target's name.
        most_partitions: see above.
        resource_key: under which an AthenaUnloadResource is found.
    """
    checked = asset_key or dg.AssetKey(target.name.split("/"))

    @dg.asset_check(
        asset=checked,
        name=CHECK_NAME,
        description="Readers see exactly what was published.",
        required_resource_keys={resource_key},
    )
    def scrub(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource: AthenaUnloadResource = getattr(context.resources, resource_key)
        partitions, left_out = _partitions(context, target, checked, most_partitions)
        try:
            findings = _look_at_all(resource.publisher(), [target.location_for(each) for each in partitions])
        except AthenaAssetsError as error:
            raise failure(error, None) from error
        metadata = _metadata(findings)
        if target.partitioned:
            metadata["athena_assets/partitions_checked"] = dg.MetadataValue.int(len(partitions))
            metadata["athena_assets/partitions_left_out"] = dg.MetadataValue.int(left_out)
        wrong = [each for each in findings if each.wrong]
        moving = [each for each in findings if each.moving]
        return dg.AssetCheckResult(
            passed=not wrong and not moving,
            severity=dg.AssetCheckSeverity.ERROR if wrong else dg.AssetCheckSeverity.WARN,
            description=" ".join(each.told for each in [*wrong, *moving][:EXAMPLES]) or None,
            metadata=metadata,
        )

    return [scrub]


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


def _look_at_all(publisher: Publisher, locations: Sequence[Location]) -> list[_Finding]:
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="athena_assets_scrub") as pool:
        return list(pool.map(lambda location: _look(publisher, location), locations))


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


def _metadata(findings: Sequence[_Finding]) -> dict[str, dg.MetadataValue]:
    kinds: Mapping[str, Callable[[ScrubReport], Iterable[str]]] = {
        "missing": lambda report: report.missing,
        "stray": lambda report: [each.key for each in report.stray],
        "foreign": lambda report: [each.key for each in report.foreign],
    }
    metadata: dict[str, dg.MetadataValue] = {}
    for kind, keys in kinds.items():
        found = [f"s3://{each.location.bucket}/{key}" for each in findings for key in keys(each.report)]
        metadata[f"athena_assets/{kind}"] = dg.MetadataValue.int(len(found))
        if found:
            metadata[f"athena_assets/{kind}_examples"] = dg.MetadataValue.json(found[:EXAMPLES])
    held = [each.report.register for each in findings if each.moving and each.report.register is not None]
    if held:
        metadata["athena_assets/owner"] = dg.MetadataValue.text(describe(held[0]))
    return metadata
