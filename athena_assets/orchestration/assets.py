"""One Dagster asset for each target."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg
from pydantic import Field

from athena_assets.core.request import Published, Reused
from athena_assets.core.target import Target, UpstreamTable, check_disjoint
from athena_assets.errors import AthenaAssetsError, QueryFailed, SlotBusy
from athena_assets.orchestration.concurrency import CONCURRENCY_KEY_TAG, pool_name
from athena_assets.orchestration.console import query_link
from athena_assets.orchestration.failures import failure
from athena_assets.orchestration.metadata import Metadata, outcome_metadata
from athena_assets.orchestration.request import FORCE_TAG, forced, request_id
from athena_assets.orchestration.resource import AthenaUnloadResource
from athena_assets.sql import inspect_query
from athena_assets.unload import Publisher

GLUE_CATALOG = "awsdatacatalog"  # the account's own

Events = Iterator[dg.AssetMaterialization | dg.MaterializeResult[None]]
Dependency = dg.AssetKey | dg.AssetDep | dg.AssetSpec | dg.AssetsDefinition | str


class UnloadConfig(dg.Config):
    """What can be chosen for one run in the launchpad."""

    force: bool = Field(
        default=False,
        description=f"Run the query anew, whatever is published. As a run tag: {FORCE_TAG} = true.",
    )


def build_unload_asset(
    target: Target,
    *,
    partitions_def: dg.PartitionsDefinition | None = None,
    deps: Sequence[Dependency] | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    description: str | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
    resource_key: str = "athena",
) -> dg.AssetsDefinition:
    """The asset that publishes a target; its key is the target's name, split at `/`.

    All runs of it, and of its partitions, share one pool. A materialization means that readers can read the result,
    whoever's query made it; its metadata tell (see `metadata.py`). Terminating the run stops its query. A failure is
    tried again by a retry policy only if it may pass without anybody's doing.

    Args:
        target: what to publish.
        partitions_def: required if the target's location has `${partition}`, and refused if not. A backfill makes one
            run for each partition, which is Dagster's default. A run that has several all the same publishes them one
            after the other, and records each as soon as it is published: a later one's failure does not hide it.
        deps: None: the tables that the query reads, as AssetKey([database, table]), with the data catalog in front if
            it is not the account's own.
        retry_policy: of the step. Internal failures of Athena are tried again without one: see `Target.retries`.
        resource_key: under which an AthenaUnloadResource is found.

    Raises:
        InvalidTarget: if anything is wrong that can be seen without AWS.
    """
    _check_partitions(target, partitions_def)
    asset_key = dg.AssetKey(target.name.split("/"))
    read = inspect_query(target).tables or ()
    upstreams = [_upstream(table) for table in (read if target.upstreams is None else target.upstreams)]
    pool = pool_name(target)

    @dg.asset(
        key=asset_key,
        deps=deps,
        # Not as deps: Dagster names the op's inputs after those, and tables have names that an input may not have.
        ins={f"table_{index}": each for index, each in enumerate(upstreams) if deps is None and each.key != asset_key},
        partitions_def=partitions_def,
        required_resource_keys={resource_key},
        kinds={"athena", "s3", target.format.format.lower()},
        code_version=_code_version(target),
        pool=pool,
        op_tags={CONCURRENCY_KEY_TAG: pool},
        group_name=group_name,
        owners=owners,
        tags=tags,
        description=description or f"Published to `{target.location}`:\n\n```sql\n{target.query.strip()}\n```",
        retry_policy=retry_policy,
        automation_condition=automation_condition,
    )
    def unload_asset(context: dg.AssetExecutionContext, config: UnloadConfig) -> Events:
        resource: AthenaUnloadResource = getattr(context.resources, resource_key)
        publisher = resource.publisher()
        partitions = [None] if partitions_def is None else context.partition_keys
        for partition in partitions:
            metadata = _publish(context, publisher, target, config, partition)
            if len(partitions) > 1:
                # Yielded, it is stored before the next partition begins; context.log_event would keep it to the end.
                yield dg.AssetMaterialization(asset_key, partition=partition, metadata=metadata)
            # At the end Dagster records each partition, the ones above once more.
            context.add_asset_metadata(metadata, partition_key=partition)
        yield dg.MaterializeResult()

    return unload_asset


def unload_assets(
    targets: Sequence[Target],
    *,
    partitions_def: dg.PartitionsDefinition | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
    resource_key: str = "athena",
) -> list[dg.AssetsDefinition]:
    """An asset for each target, after the checks across them.

    Args:
        targets: no two may have a name, or write to one place.
        partitions_def: of those targets that are partitioned.

    For the others see `build_unload_asset`.

    Raises:
        InvalidTarget: if a target is wrong, or two go against each other.
    """
    check_disjoint(list(targets))
    if partitions_def is not None and targets and not any(target.partitioned for target in targets):
        _check_partitions(targets[0], partitions_def)
    return [
        build_unload_asset(
            target,
            partitions_def=partitions_def if target.partitioned else None,
            group_name=group_name,
            owners=owners,
            tags=tags,
            retry_policy=retry_policy,
            automation_condition=automation_condition,
            resource_key=resource_key,
        )
        for target in targets
    ]


def _publish(
    context: dg.AssetExecutionContext, publisher: Publisher, target: Target, config: UnloadConfig, partition: str | None
) -> Metadata:
    wish = request_id(context.run, context.instance, context.asset_key, partition)
    try:
        outcome = publisher.unload(
            target,
            partition=partition,
            request_id=wish,
            force=forced(context.run, config.force, target),
            run=context.run.run_id,
            observe=context.log.info,
        )
    except AthenaAssetsError as error:
        query_id = error.query_id if isinstance(error, QueryFailed | SlotBusy) else None
        raise failure(error, None if query_id is None else query_link(publisher, query_id)) from error
    return outcome_metadata(
        outcome,
        request_id=wish,
        location=target.location_for(partition),
        partition=partition,
        console_url=query_link(publisher, outcome.publication.query_id),
        columns=_column_schema(context, publisher, target, outcome, partition),
    )


def _column_schema(
    context: dg.AssetExecutionContext,
    publisher: Publisher,
    target: Target,
    outcome: Published | Reused,
    partition: str | None,
) -> dg.TableSchema | None:
    """The result is published, so that a schema that can't be read fails nothing."""
    try:
        columns = publisher.columns(target, outcome, partition=partition)
    except AthenaAssetsError as error:
        context.log.warning("The column schema is left out: %s", error)
        return None
    return None if columns is None else dg.TableSchema([dg.TableColumn(each.name, each.type) for each in columns])


def _check_partitions(target: Target, partitions_def: dg.PartitionsDefinition | None) -> None:
    if target.partitioned and partitions_def is None:
        raise target.invalid(
            "location", "it has ${partition}, and the asset has no partitions.", "Give the asset a partitions_def."
        )
    if not target.partitioned and partitions_def is not None:
        raise target.invalid(
            "location",
            "the asset has partitions, and the location no ${partition}: each would replace the one before.",
            "Put ${partition} into the location, or leave partitions_def out.",
        )


def _upstream(table: UpstreamTable) -> dg.AssetIn:
    names = (
        [table.database, table.name]
        if table.catalog.lower() == GLUE_CATALOG
        else [
            table.catalog,
            table.database,
            table.name,
        ]
    )
    return dg.AssetIn(key=dg.AssetKey([name.lower() for name in names]), dagster_type=dg.Nothing)


def _code_version(target: Target) -> str:
    """Changes with everything that decides what is published, and where."""
    parts = [
        target.query,
        target.format.properties(),
        dict(target.parameters),
        target.catalog,
        target.database,
        target.location,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
