"""Real runs of real assets against the embedded AWS, and what they recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from athena_assets.orchestration import AthenaUnloadResource
from athena_assets_tests.e2e.lake import LEASE, Lake


def resource(lake: Lake) -> AthenaUnloadResource:
    settings = lake.settings
    return AthenaUnloadResource(
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        output_location=settings.output_location,
        lease_seconds=LEASE,
    )


def run(
    lake: Lake,
    asset: dg.AssetsDefinition,
    instance: dg.DagsterInstance | None = None,
    *,
    partition: str | None = None,
    tags: Mapping[str, str] | None = None,
    force: bool = False,
) -> dg.ExecuteInProcessResult:
    """One run of one asset. A failed step does not raise: ask the result."""
    return dg.materialize(
        [asset],
        instance=instance,
        resources={"athena": resource(lake)},
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
