"""A target declared by a function that returns its SQL."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import dagster as dg

from athena_assets.core.output import OutputFormat
from athena_assets.core.partition import Grain
from athena_assets.core.register import Mode
from athena_assets.core.target import Guard, OnConflict, OnEmpty, Reuse, Target, UpstreamTable
from athena_assets.orchestration.assets import build_unload_asset
from athena_assets.orchestration.lineage import AthenaUnloadTranslator, Dependency


class TargetFields(TypedDict, total=False):
    """The fields of a Target that may be left out; see there."""

    database: str
    grain: Grain | str | None
    dimensions: tuple[str, ...]
    output: OutputFormat | str
    parameters: Mapping[str, str]
    catalog: str
    workgroup: str | None
    upstreams: tuple[UpstreamTable, ...] | None
    on_conflict: OnConflict | str
    reuse: Reuse | str
    guard: Guard | str
    timeout: float
    wait_timeout: float
    retries: int
    mode: Mode | str
    grace_period: float
    keep_previous: int
    adopt_existing: bool
    clean_after_failure: bool
    on_empty: OnEmpty | str
    glue_table: str | None


def unload_asset(
    *,
    location: str,
    name: str | None = None,
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
    **fields: Unpack[TargetFields],
) -> Callable[[Callable[[], str]], dg.AssetsDefinition]:
    """Makes the asset of a target from a function without arguments that returns its query.

    The function is called once, while definitions load, and never in a run: the query must be known for lineage and
    the code version. What differs from run to run is a placeholder, such as `${partition}`.

    Args:
        location: of the target.
        name: of the target; None: the function's.
        description: None: the function's docstring.
        **fields: the other fields of a Target.

    For the others see `build_unload_asset`.

    Raises:
        InvalidTarget: if anything is wrong that can be seen without AWS.
    """

    def declare(function: Callable[[], str]) -> dg.AssetsDefinition:
        target = Target(name=name or function.__name__, query=function(), location=location, **fields)
        return build_unload_asset(
            target,
            partitions_def=partitions_def,
            deps=deps,
            group_name=group_name,
            owners=owners,
            tags=tags,
            description=description or inspect.getdoc(function),
            retry_policy=retry_policy,
            automation_condition=automation_condition,
            freshness_policy=freshness_policy,
            backfill_policy=backfill_policy,
            translator=translator,
            resource_key=resource_key,
        )

    return declare
