"""A tick in which nothing changed: the sensor on upstream tables against `AutomationCondition.eager()`.

    python -m benchmarks.sensor [assets]

Both evaluate the same assets, one table each, in this process, one beside the other in every round. The sensor's calls
go to the embedded AWS, which is on the same cores, so that its part is an upper bound. `eager()` calls nothing: it
reads Dagster's storage, here in memory.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable

import dagster as dg

from athena_assets import Target
from athena_assets.local import EmbeddedAws
from athena_assets.orchestration import AthenaUnloadResource, build_unload_asset
from athena_assets.orchestration.upstream import build_upstream_sensor

ROUNDS = 3
DATABASES = 4  # over which the tables are spread
KINDS = ("Iceberg tables", "tables of one file, listed")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    warnings.simplefilter("ignore", dg.BetaWarning)
    with EmbeddedAws.start() as aws, dg.DagsterInstance.ephemeral() as instance:
        aws.client("s3").create_bucket(Bucket="bench")
        print(f"{count} assets{'':<22}{'eager() = 1':>12}  calls to AWS")
        for kind in KINDS:
            targets = make_tables(aws, count, iceberg=kind == KINDS[0])
            ours = sensor_tick(aws, instance, targets)
            theirs = eager_tick(instance, targets)
            ratios: list[float] = []
            calls: Counter[str] = Counter()
            for _ in range(ROUNDS):
                before = len(aws.requests())
                ratios.append(seconds(ours) / seconds(theirs))
                calls = Counter(each.operation for each in aws.requests()[before:])
            told = ", ".join(f"{number} {name}" for name, number in sorted(calls.items()))
            print(f"{kind:<30}{statistics.median(ratios):>12.3f}  {told}")


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def make_tables(aws: EmbeddedAws, count: int, *, iceberg: bool) -> list[Target]:
    glue, s3, kind = aws.client("glue"), aws.client("s3"), "ice" if iceberg else "files"
    for number in range(DATABASES):
        glue.create_database(DatabaseInput={"Name": f"{kind}{number}"})
    targets = []
    for number in range(count):
        database, name = f"{kind}{number % DATABASES}", f"t{number}"
        parameters = {"table_type": "ICEBERG", "metadata_location": f"s3://bench/{name}.json"} if iceberg else {}
        location = f"s3://bench/{kind}/{name}/"
        if not iceberg:
            s3.put_object(Bucket="bench", Key=f"{kind}/{name}/part-0", Body=b"x")
        glue.create_table(
            DatabaseName=database,
            TableInput={"Name": name, "Parameters": parameters, "StorageDescriptor": {"Location": location}},
        )
        targets.append(
            Target(
                name=f"{kind}_{number}",
                query=f"SELECT * FROM {name}",
                location=f"s3://bench/published/{kind}/{number}/",
                database=database,
            )
        )
    return targets


def sensor_tick(aws: EmbeddedAws, instance: dg.DagsterInstance, targets: list[Target]) -> Callable[[], object]:
    """The first tick has recorded all versions; those that are measured find nothing new."""
    athena = AthenaUnloadResource(
        region_name="us-east-1",
        endpoint_url=aws.endpoint_url,
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    sensor = build_upstream_sensor(targets)
    location = dg.Definitions(
        assets=[build_unload_asset(each) for each in targets], sensors=[sensor], resources={"athena": athena}
    ).get_repository_def()

    def tick(cursor: str | None) -> str:
        with dg.build_sensor_context(
            instance=instance, cursor=cursor, repository_def=location, resources={"athena": athena}
        ) as context:
            result = sensor.evaluate_tick(context)
        assert result.cursor is not None
        assert not result.run_requests
        return result.cursor

    first = tick(None)
    return lambda: tick(first)


def eager_tick(instance: dg.DagsterInstance, targets: list[Target]) -> Callable[[], object]:
    defs = dg.Definitions(
        assets=[build_unload_asset(each, automation_condition=dg.AutomationCondition.eager()) for each in targets],
        resources={"athena": AthenaUnloadResource()},
    )
    cursor = dg.evaluate_automation_conditions(defs=defs, instance=instance).cursor
    return lambda: dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursor)


if __name__ == "__main__":
    main()
