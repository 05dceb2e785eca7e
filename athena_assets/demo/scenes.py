"""The scenes with threads: the naive control and ours, in one harness."""

from __future__ import annotations

from athena_assets.demo.callers import CALLERS, all_at_once, describe, naive_call, our_call
from athena_assets.demo.readback import ReadBack
from athena_assets.demo.report import Check
from athena_assets.demo.stage import FLIGHTS, Stage
from athena_assets.local import QueryRecord

NAIVE = "threads/naive/"
OURS = "threads/ours/"


def naive(stage: Stage, prefix: str = NAIVE) -> list[Check]:
    """Eight times the same UNLOAD with plain boto3."""
    location = f"s3://{stage.bucket}/{prefix}"
    mark = stage.mark()
    stage.say(f"{CALLERS} threads call StartQueryExecution for {location}")
    endings = all_at_once(stage, [naive_call(stage, location) for _ in range(CALLERS)])
    found = stage.read(prefix)
    stage.say(f"queries: {describe(endings)}; {found.rows:,} rows in {len(found.objects)} files")
    return [
        Check("queries", len(mark.queries()), CALLERS),
        Check("queries that succeeded", _succeeded(mark.queries()), CALLERS),
        Check("rows in S3", found.rows, CALLERS * FLIGHTS, f"{CALLERS} x {FLIGHTS:,}"),
        Check("distinct rows", found.distinct, FLIGHTS),
        Check("copies of each row", found.copies, str(CALLERS)),
    ]


def ours(stage: Stage, prefix: str = OURS) -> list[Check]:
    """Eight threads, each with its own Publisher."""
    location = f"s3://{stage.bucket}/{prefix}"
    mark = stage.mark()
    stage.say(f"{CALLERS} threads call unload() for {location}")
    endings = all_at_once(stage, [our_call(stage, location) for _ in range(CALLERS)])
    found = stage.read(prefix)
    stage.say(f"callers: {describe(endings)}; {found.rows:,} rows in {len(found.objects)} files")
    return [
        Check("queries", len(mark.queries()), 1),
        Check("callers", describe(endings), f"1 published, {CALLERS - 1} reused"),
        *rows_are_right(found, FLIGHTS),
    ]


def rows_are_right(found: ReadBack, expected: int, why: str = "") -> list[Check]:
    """The location holds each row of the upstream table once, and nothing else."""
    return [
        Check("rows in S3", found.rows, expected, why),
        Check("distinct, missing, foreign rows", _differences(found.distinct, found), _differences(expected)),
    ]


def _differences(distinct: int, found: ReadBack | None = None) -> str:
    missing, foreign = (0, 0) if found is None else (found.missing, found.foreign)
    return f"{distinct:,}, {missing:,}, {foreign:,}"


def _succeeded(queries: list[QueryRecord]) -> int:
    return sum(query.state == "SUCCEEDED" for query in queries)
