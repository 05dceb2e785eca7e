"""What a publication costs beyond its query: time as a ratio to the bare UNLOAD beside it, and calls to AWS.

    python -m benchmarks.overhead

Runs on the embedded AWS, so the query is quick and the ratio is an upper bound: against a query of minutes the
difference vanishes. The calls are the same on a real account, but for polls. For the state machine they are what the
caller, the function and the machine send.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable

from athena_assets import AwsSettings, Publisher, Target
from athena_assets.demo.sample import load_sample
from athena_assets.dev.states import make_state_machine
from athena_assets.local import EmbeddedAws
from athena_assets.step_functions.publisher import StepFunctionsPublisher

ROUNDS = 7
QUERY = "SELECT year, month, day, carrier, flight, origin, dest, distance FROM flights"


def bare_unload(aws: EmbeddedAws, location: str) -> None:
    """What people write: start, and poll as often as we do at first."""
    athena = aws.client("athena")
    query_id = athena.start_query_execution(
        QueryString=f"UNLOAD ({QUERY}) TO '{location}' WITH (format = 'PARQUET')",
        QueryExecutionContext={"Database": "nycflights"},
        ResultConfiguration={"OutputLocation": "s3://bench/results/"},
    )["QueryExecutionId"]
    while athena.get_query_execution(QueryExecutionId=query_id)["QueryExecution"]["Status"]["State"] != "SUCCEEDED":
        time.sleep(0.1)


def measure(aws: EmbeddedAws, work: Callable[[int], object]) -> tuple[float, Counter[str]]:
    """The median of the seconds of each round, and the calls of the last one."""
    seconds = []
    calls: Counter[str] = Counter()
    for number in range(ROUNDS):
        before = len(aws.requests())
        began = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - began)
        calls = Counter(each.operation for each in aws.requests()[before:])
    return statistics.median(seconds), calls


def main() -> None:
    with EmbeddedAws.start() as aws:
        aws.client("s3").create_bucket(Bucket="bench")
        load_sample(aws.client("s3"), aws.client("glue"), "bench", "nycflights")
        settings = AwsSettings(
            endpoint_url=aws.endpoint_url,
            region="us-east-1",
            access_key_id="x",
            secret_access_key="x",
            output_location="s3://bench/results/",
        )
        publisher = Publisher(settings)
        machine = StepFunctionsPublisher(settings, state_machine=make_state_machine(aws, {}))

        def target(number: int, kind: str, mode: str) -> Target:
            place = f"s3://bench/{kind}/" if kind in ("replacing", "pointer") else f"s3://bench/{kind}/{number}/"
            return Target(name=kind, query=QUERY, database="nycflights", location=place, mode=mode)

        publisher.unload(target(0, "replacing", "staged"))
        publisher.unload(target(0, "pointer", "pointer"))
        machine.unload(target(0, "warm", "staged"))
        cases: dict[str, Callable[[int], object]] = {
            "bare UNLOAD": lambda number: bare_unload(aws, f"s3://bench/bare/{number}/"),
            "direct": lambda number: publisher.unload(target(number, "direct", "direct"), force=True),
            "staged, first": lambda number: publisher.unload(target(number, "staged", "staged"), force=True),
            "staged, replacing": lambda number: publisher.unload(target(number, "replacing", "staged"), force=True),
            "pointer, replacing": lambda number: publisher.unload(target(number, "pointer", "pointer"), force=True),
            "Step Functions": lambda number: machine.unload(target(number, "machine", "staged"), force=True),
            "reused": lambda number: publisher.unload(target(number, "replacing", "staged")),
        }
        base = None
        print(f"{'case':<20}{'ratio':>7}  calls (of which polls)")
        for name, work in cases.items():
            seconds, calls = measure(aws, work)
            base = base or seconds
            polls = calls["GetQueryExecution"]
            print(f"{name:<20}{seconds / base:>7.2f}  {calls.total()} ({polls}): {dict(sorted(calls.items()))}")


if __name__ == "__main__":
    main()
