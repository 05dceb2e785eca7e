"""One Dagster asset for each target."""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field

from athena_assets.core.disjoint import check_disjoint
from athena_assets.core.target import OnConflict, Target
from athena_assets.orchestration.checks import build_unload_checks
from athena_assets.orchestration.concurrency import CONCURRENCY_KEY_TAG, pool_name
from athena_assets.orchestration.failures import tried_again
from athena_assets.orchestration.lineage import AthenaUnloadTranslator, Dependency, with_attributes, within_set
from athena_assets.orchestration.partitions import check_partitions
from athena_assets.orchestration.publish import Events, Step, warnings_in
from athena_assets.orchestration.request import FORCE_TAG


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
    automation_condition: dg.AutomationCondition[Any] | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    translator: AthenaUnloadTranslator | None = None,
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
            it is not the account's own. An AssetDep may have a partition mapping; else Dagster's default one holds.
        description: stands before the query, which is always shown.
        backfill_policy: None: a backfill of time partitions is one run, of others one run for each.
        retry_policy: of the step. Internal failures of Athena are tried again without one: see `Target.retries`. It is
            not handed to Dagster, which would apply it to terminated runs too (so would a job's `op_retry_policy`).
        translator: says what the asset is and which asset an upstream table is. Arguments that are given go before what
            it says; tags are added to its tags.
        resource_key: under which an AthenaUnloadResource is found.

    Raises:
        InvalidTarget: if anything is wrong that can be seen without AWS.
    """
    with _named(target):
        spec = with_attributes(
            (translator or AthenaUnloadTranslator()).get_asset_spec(target),
            deps=deps,
            group_name=group_name,
            owners=owners,
            tags=tags,
            description=description,
            automation_condition=automation_condition,
            freshness_policy=freshness_policy,
            partitions_def=partitions_def,
        )
    partitions = spec.partitions_def
    check_partitions(target, partitions)
    # Not as deps: Dagster names the op's inputs after those, and tables have names that an input may not have.
    ins = {
        f"table_{index}": dg.AssetIn(
            key=dep.asset_key, partition_mapping=dep.partition_mapping, dagster_type=dg.Nothing
        )
        for index, dep in enumerate(spec.deps)
    }
    pool = pool_name(target)
    if backfill_policy is None and isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        backfill_policy = dg.BackfillPolicy.single_run()

    def unload_asset(context: dg.AssetExecutionContext, config: UnloadConfig) -> Events:
        with tried_again(retry_policy, context.retry_number), warnings_in(context.log):
            step = Step(context, getattr(context.resources, resource_key), target, force=config.force)
            yield from step.publish(None) if partitions is None else step.publish_all(partitions)

    with _named(target), warnings.catch_warnings():
        # Dagster calls backfill_policy a beta feature, on every load; its version is pinned.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.asset(
            key=spec.key,
            ins=ins,
            partitions_def=partitions,
            backfill_policy=backfill_policy,
            output_required=target.on_conflict is not OnConflict.SKIP,
            required_resource_keys={resource_key},
            code_version=spec.code_version,
            pool=pool,
            op_tags={CONCURRENCY_KEY_TAG: pool},
            group_name=spec.group_name,
            owners=spec.owners,
            tags=spec.tags,  # with the kinds, which are tags
            metadata=spec.metadata,
            description=spec.description,
            automation_condition=spec.automation_condition,
            freshness_policy=spec.freshness_policy,
        )(unload_asset)


def unload_assets(
    targets: Sequence[Target],
    *,
    partitions_def: dg.PartitionsDefinition | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    checks: bool | Collection[str] = False,
    blocking_checks: Collection[str] = (),
    translator: AthenaUnloadTranslator | None = None,
    resource_key: str = "athena",
) -> list[dg.AssetsDefinition]:
    """An asset for each target, after the checks across them.

    A table that one of them fills through its `glue_table`, and another one reads, is the first one's asset.

    Args:
        targets: no two may have a name, or write to one place.
        partitions_def, backfill_policy: of those targets that are partitioned.
        checks, blocking_checks: also return the checks of `build_unload_checks`, all (True) or those named; they are
            one more step in the runs of their asset.

    For the others see `build_unload_asset`. The tables that nobody fills are `upstream_specs`.

    Raises:
        InvalidTarget: if a target is wrong, or two go against each other.
    """
    check_disjoint(list(targets))
    if partitions_def is not None and targets and not any(target.partitioned for target in targets):
        check_partitions(targets[0], partitions_def)
    translator = within_set(targets, translator or AthenaUnloadTranslator())
    assets = [
        build_unload_asset(
            target,
            partitions_def=partitions_def if target.partitioned else None,
            group_name=group_name,
            owners=owners,
            tags=tags,
            retry_policy=retry_policy,
            automation_condition=automation_condition,
            freshness_policy=freshness_policy,
            backfill_policy=backfill_policy if target.partitioned else None,
            translator=translator,
            resource_key=resource_key,
        )
        for target in targets
    ]
    made = [
        check
        for target, asset in zip(targets, assets, strict=True)
        for check in build_unload_checks(
            target, checks=checks, blocking=blocking_checks, asset_key=asset.key, resource_key=resource_key
        )
    ]
    return [*assets, *made]


@contextmanager
def _named(target: Target) -> Iterator[None]:
    """Names the target in what Dagster refuses: an owner, a tag, a group, a key."""
    try:
        yield
    except (dg.DagsterInvalidDefinitionError, dg.DagsterInvalidInvocationError) as error:
        raise target.invalid(
            "asset", f"Dagster refuses it: {error}", "Correct what is said about the asset."
        ) from error
