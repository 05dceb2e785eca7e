"""The code location of a `dagster dev` under test: an asset for each thing to try. The environment says where."""

import os
from collections.abc import Iterator, Mapping

import dagster as dg

from athena_assets import Target
from athena_assets.orchestration import AthenaUnloadResource, build_unload_asset
from athena_assets_tests.e2e.lake import LEASE, Lake

WHOLE = ("clicked", "ended", "killed", "lost", "sensed", "neighbour", "other")
"""Targets without partitions: all numbers."""
YEAR = dg.DailyPartitionsDefinition("2025-01-01", end_date="2026-01-01")
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-11")
PARITIES = dg.StaticPartitionsDefinition(["0", "1"])
SIZES = dg.StaticPartitionsDefinition(["10", "20", "30"])


def environment(lake: Lake) -> Mapping[str, str]:
    """What `dagster dev` needs beside the environment of the test's own process."""
    return lake.aws.environment() | {
        "TEST_BUCKET": lake.bucket,
        "TEST_DATABASE": lake.database,
        "TEST_RESULTS": str(lake.settings.output_location),
    }


def targets(bucket: str, database: str) -> dict[str, Target]:
    """All of them, by name."""
    root = f"s3://{bucket}/live"
    every = [
        *(
            Target(name=name, query="SELECT n FROM numbers", location=f"{root}/{name}/", database=database)
            for name in WHOLE
        ),
        Target(
            name="sizes",
            query="SELECT n FROM numbers WHERE n < CAST(${partition} AS bigint)",
            location=f"{root}/sizes/${{partition}}/",
            database=database,
            retries=0,
        ),
        Target(  # number n is a reading of day n, n - 365 or n - 730 of the year
            name="year",
            query="SELECT n FROM numbers WHERE date_add('day', n % 365, DATE '2025-01-01')"
            " = CAST(CAST(${partition_start} AS timestamp) AS date)",
            location=f"{root}/year/day=${{partition}}/",
            database=database,
            grain="day",
        ),
        Target(  # a hundred numbers for each day, and fifty for each parity
            name="matrix",
            query="SELECT n FROM numbers WHERE date_add('day', n / 100, DATE '2026-01-01') = CAST(${day} AS date)"
            " AND n % 2 = CAST(${parity} AS bigint)",
            location=f"{root}/matrix/day=${{day}}/parity=${{parity}}/",
            database=database,
            grain="day",
            dimensions=("day", "parity"),
        ),
    ]
    return {each.name: each for each in every}


@dg.sensor(asset_selection=["sensed", "other"], minimum_interval_seconds=2)
def thrice() -> Iterator[dg.RunRequest]:
    """Three runs at once, once for all: two of one target, each of which insists on a query, and one of another."""
    for number, asset in enumerate(("sensed", "sensed", "other")):
        tags = {"athena_assets/slot": "sensed", "athena_assets/force": "true"}
        yield dg.RunRequest(run_key=str(number), asset_selection=[dg.AssetKey(asset)], tags=tags)


@dg.definitions
def defs() -> dg.Definitions:
    partitions: dict[str, dg.PartitionsDefinition] = {
        "sizes": SIZES,
        "year": YEAR,
        "matrix": dg.MultiPartitionsDefinition({"day": DAYS, "parity": PARITIES}),
    }
    return dg.Definitions(
        assets=[
            build_unload_asset(target, partitions_def=partitions.get(name), retry_policy=dg.RetryPolicy(max_retries=1))
            for name, target in targets(os.environ["TEST_BUCKET"], os.environ["TEST_DATABASE"]).items()
        ],
        sensors=[thrice],
        resources={"athena": AthenaUnloadResource(output_location=os.environ["TEST_RESULTS"], lease_seconds=LEASE)},
        executor=dg.in_process_executor,
    )
