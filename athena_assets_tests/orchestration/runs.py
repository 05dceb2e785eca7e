"""Real runs of real assets against the embedded AWS, and what they recorded."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from athena_assets import Target
from athena_assets.local import QueryRecord
from athena_assets.orchestration import AthenaUnloadResource
from athena_assets_tests.e2e.lake import LEASE, Lake

SIZES = dg.StaticPartitionsDefinition(["10", "20", "30"])
SMALLER = "SELECT n FROM numbers WHERE n < CAST(${partition} AS BIGINT)"


def sized(lake: Lake, **changes: Any) -> Target:
    """A target with a slot for each size, which holds the numbers below it."""
    return lake.target("sized", query=SMALLER, location=f"s3://{lake.bucket}/sized/${{partition}}/", **changes)


def at(target: Target, partition: str) -> str:
    """The location of one slot."""
    return str(target.location_for(partition))


def resource(lake: Lake, **changes: Any) -> AthenaUnloadResource:
    settings = lake.settings
    return AthenaUnloadResource(
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        output_location=settings.output_location,
        **{"lease_seconds": LEASE, **changes},
    )


def run(
    lake: Lake,
    asset: dg.AssetsDefinition,
    instance: dg.DagsterInstance | None = None,
    *,
    partition: str | None = None,
    tags: Mapping[str, str] | None = None,
    force: bool = False,
    lease: float = LEASE,
) -> dg.ExecuteInProcessResult:
    """One run of one asset. A failed step does not raise: ask the result."""
    return dg.materialize(
        [asset],
        instance=instance,
        resources={"athena": resource(lake, lease_seconds=lease)},
        partition_key=partition,
        tags=dict(tags or {}),
        run_config={"ops": {asset.op.name: {"config": {"force": True}}}} if force else None,
        raise_on_error=False,
    )


def recorded(result: dg.ExecuteInProcessResult) -> list[dict[str, Any]]:
    """The metadata of each materialization of the run, as plain values, in order."""
    return [
        {key: value.value for key, value in event.materialization.metadata.items()}
        for event in result.get_asset_materialization_events()
    ]


def partitions(result: dg.ExecuteInProcessResult) -> Sequence[str | None]:
    return [event.materialization.partition for event in result.get_asset_materialization_events()]


def failure_of(result: dg.ExecuteInProcessResult) -> tuple[str, dict[str, Any]]:
    """The description and the metadata of the failed step, as the UI shows them."""
    assert not result.success
    [event] = result.get_step_failure_events()
    data = event.step_failure_data
    assert data.error is not None
    assert data.user_failure_data is not None
    assert data.user_failure_data.description is not None
    return data.user_failure_data.description, {
        key: value.value for key, value in data.user_failure_data.metadata.items()
    }


def assert_one_after_another(queries: Sequence[QueryRecord]) -> None:
    """None of these queries ran at the time of another, by Athena's own history."""
    times = [
        (query.submitted_at, query.submitted_at + query.statistics["TotalExecutionTimeInMillis"] / 1_000)
        for query in queries
    ]
    for (_, end), (start, _) in itertools.pairwise(times):
        assert end <= start, times
