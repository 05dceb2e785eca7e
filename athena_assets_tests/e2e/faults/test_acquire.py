"""Faults of the first write: the one that acquires the slot and records the attempt."""

from __future__ import annotations

import threading

from athena_assets.local import DropReply, HoldRequest
from athena_assets_tests.e2e.faults.ending import PATIENT, assert_ends, files, on_register, wait_for
from athena_assets_tests.e2e.lake import Lake, ThreadCaller

CALLERS = 8
SHARED = ["Published", *["Reused"] * (CALLERS - 1)]


def ends_of(callers: list[ThreadCaller]) -> list[object]:
    return sorted((caller.end() for caller in callers), key=lambda each: type(each).__name__)


def test_callers_whose_acquisitions_meet_have_one_winner(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = lake.aws.faults.add(on_register(HoldRequest(), times=CALLERS))
    callers = [ThreadCaller(publisher, target).start() for _ in range(CALLERS)]
    wait_for(lake, rule, CALLERS)  # each has read that there is no register, and has sent its own
    lake.aws.faults.release(rule)
    ended = ends_of(callers)
    statuses = [each.status for each in lake.aws.requests("s3", "PutObject", "register.json")][:CALLERS]
    assert sorted(statuses) == [200, *[412] * (CALLERS - 1)]
    assert_ends(lake, target, ended, SHARED, queries=["SUCCEEDED"], register="free 1", location=files(1))


def test_callers_whose_takings_of_a_free_slot_meet_have_one_winner(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(1_000, 1_010))
    rule = lake.aws.faults.add(on_register(HoldRequest(), times=CALLERS))
    callers = [ThreadCaller(publisher, target).start() for _ in range(CALLERS)]
    wait_for(lake, rule, CALLERS)
    lake.aws.faults.release(rule)
    assert_ends(
        lake,
        target,
        ends_of(callers),
        SHARED,
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=files(2, 5),
        rows=range(1_010),
    )


def test_reply_lost_to_the_winner_of_a_race_makes_no_second_winner(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    lake.aws.faults.add(on_register(DropReply()))
    barrier = threading.Barrier(CALLERS)
    callers = [ThreadCaller(publisher, target).start(barrier) for _ in range(CALLERS)]
    assert_ends(lake, target, ends_of(callers), SHARED, queries=["SUCCEEDED"], register="free 1", location=files(1))
