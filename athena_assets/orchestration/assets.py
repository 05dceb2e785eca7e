"""One Dagster asset for each target."""

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence

import dagster as dg
from pydantic import Field

from athena_assets.core.disjoint import check_disjoint
from athena_assets.core.partition import END, START
from athena_assets.core.statement import query_placeholders
from athena_assets.core.target import OnConflict, Target
from athena_assets.orchestration.checks import build_unload_checks
from athena_assets.orchestration.concurrency import CONCURRENCY_KEY_TAG, pool_name
from athena_assets.orchestration.failures import tried_again
from athena_assets.orchestration.lineage import upstream_key
from athena_assets.orchestration.partitions import check_partitions
from athena_assets.orchestration.publish import Events, Step
from athena_assets.orchestration.request import FORCE_TAG
from athena_assets.sql import inspect_query

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
    backfill_policy: dg.BackfillPolicy | None = None,
    resource_key: str = "athena",
) -> dg.AssetsDefinition:
    """The asset that publishes a target; its key is the target's name, split at `/`.

    All runs of it, and of its partitions, share one pool. A materialization means that readers can read the result,
    whoever's query made it; its metadata tell (see `metadata.py`). Terminating the run stops its queries. A failure is
    tried again by a retry policy only if it may pass without anybody's doing.

    A run that has several partitions publishes them at once, and records each as soon as it is published. Those that
    fail are named by the step's failure and lose none of the others; a retry publishes what is missing.

    Where the target's on_conflict is `skip`, a run that finds the slot busy succeeds without a materialization, and
    what depends on the asset in that run is skipped too. An observation of the asset, and the log, say who holds it.

    Args:
        target: what to publish.
        partitions_def: required if the target's location has `${partition}`, and refused if not. With a grain it is
            Dagster's hourly, daily, weekly or monthly one, with Dagster's own keys and no offset that they don't show.
        deps: None: the tables that the query reads, as AssetKey([database, table]), with the data catalog in front if
            it is not the account's own.
        backfill_policy: None: a backfill of time partitions is one run, of others one run for each.
        retry_policy: of the step. Internal failures of Athena are tried again without one: see `Target.retries`. It is
            not handed to Dagster, which would apply it to terminated runs too (so would a job's `op_retry_policy`).
        resource_key: under which an AthenaUnloadResource is found.

    Raises:
        InvalidTarget: if anything is wrong that can be seen without AWS.
    """
    check_partitions(target, partitions_def)
    asset_key = dg.AssetKey(target.name.split("/"))
    read = inspect_query(target).tables or ()
    upstreams = [
        dg.AssetIn(key=upstream_key(table), dagster_type=dg.Nothing)
        for table in (read if target.upstreams is None else target.upstreams)
    ]
    # Not as deps: Dagster names the op's inputs after those, and tables have names that an input may not have.
    ins = {f"table_{index}": each for index, each in enumerate(upstreams) if deps is None and each.key != asset_key}
    pool = pool_name(target)
    if backfill_policy is None and isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        backfill_policy = dg.BackfillPolicy.single_run()

    def unload_asset(context: dg.AssetExecutionContext, config: UnloadConfig) -> Events:
        with tried_again(retry_policy, context.retry_number):
            step = Step(context, getattr(context.resources, resource_key), target, force=config.force)
            yield from step.publish(None) if partitions_def is None else step.publish_all(partitions_def)

    with warnings.catch_warnings():
        # Dagster calls backfill_policy a beta feature, on every load; its version is pinned.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.asset(
            key=asset_key,
            deps=deps,
            ins=ins,
            partitions_def=partitions_def,
            backfill_policy=backfill_policy,
            output_required=target.on_conflict is not OnConflict.SKIP,
            required_resource_keys={resource_key},
            kinds={"athena", "s3", target.format.format.lower()},
            code_version=_code_version(target),
            pool=pool,
            op_tags={CONCURRENCY_KEY_TAG: pool},
            group_name=group_name,
            owners=owners,
            tags=tags,
            description=description or f"Published to `{target.location}`:\n\n```sql\n{target.query.strip()}\n```",
            automation_condition=automation_condition,
        )(unload_asset)


def unload_assets(
    targets: Sequence[Target],
    *,
    partitions_def: dg.PartitionsDefinition | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    checks: bool = False,
    resource_key: str = "athena",
) -> list[dg.AssetsDefinition]:
    """An asset for each target, after the checks across them.

    Args:
        targets: no two may have a name, or write to one place.
        partitions_def, backfill_policy: of those targets that are partitioned.
        checks: also return the checks of `build_unload_checks`; each is one more step in the runs of its asset.

    For the others see `build_unload_asset`.

    Raises:
        InvalidTarget: if a target is wrong, or two go against each other.
    """
    check_disjoint(list(targets))
    if partitions_def is not None and targets and not any(target.partitioned for target in targets):
        check_partitions(targets[0], partitions_def)
    assets = [
        build_unload_asset(
            target,
            partitions_def=partitions_def if target.partitioned else None,
            group_name=group_name,
            owners=owners,
            tags=tags,
            retry_policy=retry_policy,
            automation_condition=automation_condition,
            backfill_policy=backfill_policy if target.partitioned else None,
            resource_key=resource_key,
        )
        for target in targets
    ]
    if not checks:
        return assets
    return [*assets, *(check for target in targets for check in build_unload_checks(target, resource_key=resource_key))]


def _code_version(target: Target) -> str:
    """Changes with everything that decides which bytes are published, and where: not with how."""
    parts = [
        target.query,
        target.format.properties(),
        dict(target.parameters),
        target.catalog,
        target.database,
        target.location,
    ]
    if query_placeholders(target.query) & {START, END}:
        parts += [str(target.grain), *target.dimensions[:1]]  # the first one is the time
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
