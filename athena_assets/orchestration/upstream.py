"""The sensor on upstream tables: one for all of them, which requests just the runs whose inputs changed."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, TypeVar

import dagster as dg

from athena_assets.aws.glue_versions import VersionKind
from athena_assets.aws.glue_watch import Chosen, Seen, VersionOf, look_at
from athena_assets.aws.session import AwsClients
from athena_assets.core.target import Target, UpstreamTable
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration.lineage import upstream_key as default_upstream_key
from athena_assets.orchestration.resource import AthenaUnloadResource
from athena_assets.orchestration.upstream_changes import note
from athena_assets.orchestration.upstream_cursor import MOST_GROUPS, decode, encode
from athena_assets.orchestration.upstream_partitions import KeysOf
from athena_assets.orchestration.upstream_readers import Watched, watched
from athena_assets.orchestration.upstream_requests import Decision, Wanted, decide

T = TypeVar("T")

SLOT_TAG = "athena_assets/slot"
"""Run tag by which dagster.yaml's run queue starts one run of a target at a time."""

CHANGED_TAG = "athena_assets/changed"
"""Run tag: the tables that changed, as far as they fit."""

DATA_VERSION_TAG = "dagster/data_version"
RANGE_START_TAG, RANGE_END_TAG = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

QUIET_SECONDS = 60.0
INTERVAL_SECONDS = 60
MOST_RUNS = 100  # requested by one tick, each of which the daemon launches before the next tick
LOOK_SECONDS = 40.0  # of a tick; Dagster gives it up after 60 s (DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS)
TOLD = 10  # tables or keys named in one line
TAG_LENGTH = 200

Choice = Literal["iceberg", "listing", "partitions", "glue"] | VersionOf


def build_upstream_sensor(
    targets: Sequence[Target],
    *,
    assets: Sequence[dg.AssetsDefinition] = (),
    name: str = "upstream_tables",
    minimum_interval_seconds: int = INTERVAL_SECONDS,
    quiet_seconds: float = QUIET_SECONDS,
    look_seconds: float = LOOK_SECONDS,
    most_runs: int = MOST_RUNS,
    run_at_start: bool = False,
    version_of: Mapping[str, Choice] | None = None,
    partitions_of: Mapping[str, KeysOf] | None = None,
    upstream_key: Callable[[UpstreamTable], dg.AssetKey] = default_upstream_key,
    resource_key: str = "athena",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    clock: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """A sensor that watches every table that the targets read; docs/sensors.md tells all of it.

    A tick looks at each table, reports its data version to the table's asset where that is another one than before, and
    requests a run for each target, or partition of it, whose input changed. The first look at a table is recorded and
    requests nothing. A change is never lost: what could not be looked at or requested now is in a later tick. One is
    requested twice only by a version that comes back, which is a change too.

    Args:
        targets: tables are read from their queries, or their `upstreams`.
        assets: those of the targets; the ones of partitioned targets are needed for their partitions and backfill
            policy.
        quiet_seconds: a change requests runs once the version was the same for so long. Iceberg commits do not wait.
        look_seconds: of a tick, after which the rest of the tables is left to the next one.
        most_runs: requested by one tick, about; the others follow in the next ones.
        run_at_start: the first look at a table counts as a change.
        version_of: by `database.table` (or `catalog.database.table`), what tells that it changed: see VersionKind, or a
            function from the table to a text.
        partitions_of: by table, a function from the values of an upstream partition to the keys of the target's
            partitions that read it.
        upstream_key: the asset of a table.
        resource_key: under which an AthenaUnloadResource is found.
        clock: seconds of the epoch.

    Raises:
        InvalidTarget: a target or an argument is wrong, or names a table that no target reads.
    """
    found = watched(targets, assets)
    if not found:
        raise _invalid(
            name, "targets", "none of them reads a table that is known.", "Leave the sensor out, or set upstreams."
        )
    if not re.fullmatch(r"\w+", name):
        raise _invalid(name, "name", "it is no name of a sensor.", "Use letters, digits and _.")
    _check(name, "quiet_seconds", quiet_seconds, 0, "Give zero or more seconds.")
    _check(name, "look_seconds", look_seconds, 0.001, "Give seconds above zero.")
    _check(name, "most_runs", most_runs, 1, "Give one or more.")
    tables = {str(table): table for each in found for table in each.tables}
    chosen = {tables[each]: _chosen(name, choice) for each, choice in _by_table(name, tables, version_of).items()}
    keys_of = _by_table(name, tables, partitions_of)
    clients = lru_cache(maxsize=2)(AwsClients)  # making them takes longer than a tick over tables that did not change

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        description=f"Requests runs for what reads a table that changed; watches {len(tables)}.",
        default_status=default_status,
        asset_selection=dg.AssetSelection.assets(*(each.key for each in found)),
        required_resource_keys={resource_key},
    )
    def upstream_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = clock()
        cursor = decode(context.cursor, sensor=name, now=now)
        resource: AthenaUnloadResource = getattr(context.resources, resource_key)
        first = [tables[each] for each in cursor.unreached if each in tables]
        seen = look_at(
            clients(resource.publisher().settings),
            list(dict.fromkeys([*first, *tables.values()])),
            chosen,
            seconds=look_seconds,
        )
        versions = {str(table): version for table, version in seen.versions.items()}
        noted = note(
            cursor,
            versions,
            watched=tables,
            unreached=map(str, seen.unreached),
            now=now,
            run_at_start=run_at_start,
            most_groups=MOST_GROUPS,
        )
        decision = decide(
            noted.cursor,
            versions,
            [each.reader(context.instance, keys_of) for each in found],
            now=now,
            quiet_seconds=quiet_seconds,
            most_runs=most_runs,
        )
        _tell(context, seen, decision)
        by_target = {each.target.name: each for each in found}
        runs = [_run_request(by_target[each.target], each, tables) for each in decision.runs]
        return dg.SensorResult(
            run_requests=runs,
            skip_reason=None if runs else _skip_reason(seen, decision, noted.changed),
            cursor=encode(decision.cursor),
            asset_events=[
                _report(
                    context,
                    upstream_key(tables[each]),
                    tags={DATA_VERSION_TAG: versions[each].version},
                    metadata=_metadata(versions[each].partitions, before),
                )
                for each, before in noted.changed.items()
            ],
        )

    return upstream_sensor


def _report(
    context: dg.SensorEvaluationContext,
    key: dg.AssetKey,
    tags: Mapping[str, str],
    metadata: Mapping[str, dg.MetadataValue],
) -> dg.AssetMaterialization | dg.AssetObservation:
    """That a table has a new version, in the form that counts for Dagster.

    Of an external asset it takes the data version from materializations alone: an observation would leave everything
    that reads the table "unsynced" for ever, and `eager()` would not see it. An asset that Dagster materializes or
    observes itself has those of its own.
    """
    assert context.repository_def is not None
    asset = context.repository_def.assets_defs_by_key.get(key)
    external = asset is None or not (asset.is_materializable or asset.is_observable)
    event = dg.AssetMaterialization if external else dg.AssetObservation
    return event(key, tags=tags, metadata=metadata)


def _run_request(each: Watched, wanted: Wanted, tables: Mapping[str, UpstreamTable]) -> dg.RunRequest:
    changed = ", ".join(f"{tables[name].database}.{tables[name].name}" for name in wanted.tables)
    tags = {SLOT_TAG: each.slot, CHANGED_TAG: changed[:TAG_LENGTH]}
    if len(wanted.keys) > 1:
        tags |= {RANGE_START_TAG: wanted.keys[0], RANGE_END_TAG: wanted.keys[-1]}
    return dg.RunRequest(
        run_key=wanted.run_key,
        asset_selection=[each.key],
        partition_key=wanted.keys[0] if len(wanted.keys) == 1 else None,
        tags=tags,
    )


def _metadata(partitions: Mapping[tuple[str, ...], str] | None, before: str | None) -> dict[str, dg.MetadataValue]:
    metadata = {"athena_assets/first_look": dg.MetadataValue.bool(before is None)}
    if partitions is None:
        return dict(metadata)
    return {**metadata, "athena_assets/partitions": dg.MetadataValue.int(len(partitions))}


def _tell(context: dg.SensorEvaluationContext, seen: Seen, decision: Decision) -> None:
    for table, why in seen.failed.items():
        context.log.warning("%s could not be looked up, and keeps its last version: %s", table, why)
    if seen.unreached:
        context.log.warning("Not reached in time, and first in the next tick: %s", _some(map(str, seen.unreached)))
    for target, keys in decision.outside.items():
        context.log.warning(
            "%s has no such partitions, so that nothing is requested for them: %s", target, _some(sorted(keys))
        )


def _skip_reason(seen: Seen, decision: Decision, changed: Mapping[str, str | None]) -> str:
    first = sum(before is None for before in changed.values())
    told = [f"Tables seen: {len(seen.versions)}; changed: {len(changed) - first}; seen for the first time: {first}."]
    if decision.waiting:
        told.append(f"Changes that wait for a quiet period or the next tick: {decision.waiting}.")
    if seen.failed:
        failed = _some(f"{table} ({why})" for table, why in seen.failed.items())
        told.append(f"Could not be looked up: {failed}.")
    if seen.unreached:
        told.append(f"Not reached in time: {len(seen.unreached)}.")
    return " ".join(told)


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - TOLD} more" if len(every) > TOLD else ""
    return ", ".join(every[:TOLD]) + more


def _by_table(name: str, tables: Mapping[str, UpstreamTable], given: Mapping[str, T] | None) -> dict[str, T]:
    found = {}
    for written, value in (given or {}).items():
        lower = written.lower()
        same = [each for each in (lower, f"awsdatacatalog.{lower}") if each in tables]
        if not same:
            raise _invalid(
                name,
                "version_of or partitions_of",
                f"no target reads the table {written!r}; they read {_some(tables)}.",
                "Write database.table, or catalog.database.table, of one that they read.",
            )
        found[same[0]] = value
    return found


def _chosen(name: str, choice: object) -> Chosen:
    if callable(choice):
        return choice
    try:
        return VersionKind(str(choice))
    except ValueError:
        raise _invalid(
            name, "version_of", f"{choice!r} is unknown.", f"Use one of {', '.join(VersionKind)}, or a function."
        ) from None


def _check(name: str, field: str, value: object, least: float, next_step: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not float(str(value)) >= least:
        raise _invalid(name, field, f"{value!r} is out of range.", next_step)


def _invalid(name: str, field: str, problem: str, next_step: str) -> InvalidTarget:
    return InvalidTarget("(any)", f"{field} of the sensor {name}", problem, next_step)
