"""A code location with two targets and the sensor on their tables. The environment says where the lake is."""

import os

import dagster as dg

from athena_assets import Target
from athena_assets.orchestration import AthenaUnloadResource, build_unload_asset
from athena_assets.orchestration.upstream import build_upstream_sensor

DAYS = dg.DailyPartitionsDefinition(start_date="2024-01-29", end_date="2024-02-03")


def targets(bucket: str, database: str) -> list[Target]:
    numbers = Target(
        name="numbers", query="SELECT n FROM numbers", location=f"s3://{bucket}/numbers/", database=database
    )
    daily = Target(
        name="daily",
        query="SELECT n FROM events WHERE day = ${partition}",
        location=f"s3://{bucket}/daily/${{partition}}/",
        database=database,
        grain="day",
    )
    return [numbers, daily]


@dg.definitions
def defs() -> dg.Definitions:
    numbers, daily = targets(os.environ["TEST_BUCKET"], os.environ["TEST_DATABASE"])
    assets = [build_unload_asset(numbers), build_unload_asset(daily, partitions_def=DAYS)]
    sensor = build_upstream_sensor(
        [numbers, daily],
        assets=assets,
        quiet_seconds=0,
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    results = f"s3://{os.environ['TEST_BUCKET']}/athena-results/"
    return dg.Definitions(
        assets=assets,
        sensors=[sensor],
        resources={"athena": AthenaUnloadResource(output_location=results)},
        executor=dg.in_process_executor,
    )
