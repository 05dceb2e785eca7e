"""Faults of the lease: lost renewals, clocks that lie, a host that sleeps. Expiry costs work, never a duplicate."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from athena_assets.local import Fault, HoldRequest, Respond
from athena_assets_tests.e2e.faults.ending import (
    DAY,
    PATIENT,
    assert_ends,
    end,
    files,
    on_register,
    wait_for,
)
from athena_assets_tests.e2e.lake import LEASE, Lake, ThreadCaller, wait_until
from athena_assets_tests.e2e.processes import Nursery, ProcessCaller, processes

RENEWING = 0.5  # seconds; the shortest lease: the first renewal comes at once


def test_503_storm_during_renewal_keeps_the_slot(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(lake.publisher(RENEWING), target).start()
    wait_until(lambda: caller.told("running"), "the query runs")
    storm = lake.aws.faults.add(on_register(Respond(503, "SlowDown"), times=5))
    wait_for(lake, storm, 5)
    lake.aws.faults.release(hold)
    assert_ends(
        lake, target, [caller.end()], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1)
    )


def test_owner_whose_renewal_is_lost_is_taken_over_and_joins_its_successor(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner = ThreadCaller(lake.publisher(LEASE), target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    renewal = lake.aws.faults.add(on_register(HoldRequest()))
    wait_for(lake, renewal)
    taker = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: taker.told("taken over"), "the lease has run out")
    lake.aws.faults.release(renewal)
    wait_until(lambda: owner.told("superseded"), "the owner finds a higher fence")
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        [owner.end(), taker.end()],
        ["Published", "Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


@pytest.mark.parametrize(
    "fault",
    [
        on_register(Respond(403, "AccessDenied")),
        on_register(Respond(400, "ExpiredToken")),
        on_register(Respond(403, "RequestTimeTooSkewed")),
        Fault(Respond(400, "ExpiredTokenException"), "athena", "GetQueryExecution"),
    ],
    ids=[
        "renewal denied",
        "credentials expired at S3",
        "its clock is too wrong for S3",
        "credentials expired at Athena",
    ],
)
def test_owner_that_may_no_longer_act_says_so_and_its_query_is_adopted(lake: Lake, fault: Fault) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner = ThreadCaller(lake.publisher(RENEWING), target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    lake.aws.faults.add(fault)
    refused = owner.end()
    told = ("That call changed nothing", "Nothing was published", "unchanged")
    assert any(each in str(refused) for each in told), refused
    lake.aws.faults.release(hold)
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [refused, end(lake.publisher(PATIENT), target)],
        ["AccessDenied", "Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


def test_host_that_was_suspended_for_a_day_finds_its_work_done(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    with processes(lake, 1, PATIENT) as (owner,):
        owner.publish(target)
        wait_until(lambda: owner.told("running"), "the query runs")
        owner.signal(signal.SIGSTOP)
        lake.aws.faults.advance_clock(DAY)
        lake.aws.faults.release(hold)
        taker = ThreadCaller(lake.publisher(PATIENT), target).start()
        ended = [taker.end()]
        assert not taker.told("waiting")  # a first look is enough
        owner.signal(signal.SIGCONT)
        ended.append(owner.result())
    assert_ends(lake, target, ended, ["Published"] * 2, queries=["SUCCEEDED"], register="free 2", location=files(2))


def test_clock_of_s3_that_jumps_a_day_while_the_owner_works_costs_a_takeover_and_no_duplicate(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner = ThreadCaller(publisher, target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    lake.aws.faults.advance_clock(DAY)
    taker = ThreadCaller(publisher, target).start()
    wait_until(lambda: taker.told("taken over"), "the live owner is taken for dead")
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        [owner.end(), taker.end()],
        ["Published"] * 2,
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


def test_wall_clocks_of_owner_and_observer_that_are_a_day_off_are_never_read(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    fast, slow = (wrong_clock(offset) for offset in (DAY, -DAY))
    owner, observer = ProcessCaller(lake, PATIENT, fast), ProcessCaller(lake, PATIENT, slow)
    try:
        owner.publish(target)
        wait_until(lambda: owner.told("running") or owner.ended(), "the query runs")
        observer.publish(target)
        wait_until(lambda: observer.told("waiting") or observer.ended(), "the observer takes the owner for alive")
        assert not observer.told("taken over")
        assert owner.clock - observer.clock > 1.9 * DAY
        owner.kill()
        lake.aws.faults.advance_clock(DAY)
        wait_until(lambda: observer.told("taken over") or observer.ended(), "the observer takes the owner for dead")
        lake.aws.faults.release(hold)
        ended = [observer.result()]
    finally:
        owner.close()
        observer.close()
        fast.close()
        slow.close()
    assert_ends(lake, target, ended, ["Published"], queries=["SUCCEEDED"], register="free 2", location=files(2))


def wrong_clock(offset: float) -> Nursery:
    """Workers whose wall clock is wrong for everybody, and fails the call of whoever asks for it in our package."""
    paths = [str(Path(__file__).parent / "wrong_clock"), os.environ.get("PYTHONPATH", ""), str(Path.cwd())]
    return Nursery({"PYTHONPATH": os.pathsep.join(path for path in paths if path), "WRONG_CLOCK_OFFSET": str(offset)})
