"""What copying and deleting side by side saves in a swap: its time as a ratio to the same calls one after the other.

    python -m benchmarks.swap

Runs on the embedded AWS with a latency added to each copy and delete, as a bucket in the same region has. Both ways
stand beside each other in every round, so that what else the machine does falls on both.
"""

from __future__ import annotations

import statistics
import time

from athena_assets import AwsSettings, Publisher, Target
from athena_assets.core import policy
from athena_assets.demo.sample import load_sample
from athena_assets.local import Delay, EmbeddedAws, Fault

ROUNDS = 3
LATENCY = 0.04  # seconds
ROWS = 60_000
FILES = (4, 16, 64)
OPERATIONS = ("CopyObject", "DeleteObject")


def main() -> None:
    with EmbeddedAws.start() as aws:
        aws.client("s3").create_bucket(Bucket="bench")
        load_sample(aws.client("s3"), aws.client("glue"), "bench", "nycflights")
        publisher = Publisher(
            AwsSettings(
                endpoint_url=aws.endpoint_url,
                region="us-east-1",
                access_key_id="x",
                secret_access_key="x",
                output_location="s3://bench/results/",
            )
        )
        print(f"{'files':>5}  {'calls':>5}  side by side : one at a time")
        for files in FILES:
            aws.faults.rows_per_file(ROWS // files)
            target = Target(
                name="swap",
                query=f"SELECT flight, origin, dest, distance FROM flights LIMIT {ROWS}",
                database="nycflights",
                location=f"s3://bench/swap-{files}/",
            )
            publisher.unload(target)
            ratios, calls = [], 0
            for _ in range(ROUNDS):
                together, calls = swap(aws, publisher, target, policy.AT_ONCE)
                alone, calls = swap(aws, publisher, target, 1)
                ratios.append(together / alone)
            print(f"{files:>5}  {calls:>5}  {statistics.median(ratios):.2f}")


def swap(aws: EmbeddedAws, publisher: Publisher, target: Target, width: int) -> tuple[float, int]:
    """Seconds from the commit of a replacing publication to its release, and its copies and deletes."""
    usual, policy.AT_ONCE = policy.AT_ONCE, width
    rules = [aws.faults.add(Fault(Delay(LATENCY), "s3", each, times=None)) for each in OPERATIONS]
    times: dict[str, float] = {}

    def note(line: str) -> None:
        times.setdefault(line.partition(":")[0], time.perf_counter())

    try:
        publisher.unload(target, force=True, observe=note)
        calls = sum(aws.faults.hits(each) for each in rules)
    finally:
        policy.AT_ONCE = usual
        for each in rules:
            aws.faults.remove(each)
    return times["published"] - times["committed"], calls


if __name__ == "__main__":
    main()
