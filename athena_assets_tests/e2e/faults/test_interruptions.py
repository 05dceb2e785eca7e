"""SIGINT (a KeyboardInterrupt) and SIGTERM at any effect: unlike a killed owner, an interrupted one may clean up.

It stops its query and frees the slot where both are still its own; what it has committed it puts in place, if that is
done in a few seconds. The full matrix is that of test_kill_matrix, with these signals.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from athena_assets.local import Fault, HoldReply, HoldRequest
from athena_assets.local.faults import Action
from athena_assets_tests.e2e.faults.ending import (
    DAY,
    PATIENT,
    assert_ends,
    end,
    files,
    on_register,
    staging,
    wait_for,
    wait_until_all_arrived,
)
from athena_assets_tests.e2e.lake import ROWS, ROWS_PER_FILE, Lake, done, wait_until
from athena_assets_tests.e2e.processes import ProcessCaller, processes
from athena_assets_tests.e2e.test_kill_matrix import MODES, count_requests, prepared


@dataclass(frozen=True, slots=True)
class Row:
    """An interruption, and what the interrupted caller leaves."""

    number: signal.Signals
    fault: Fault
    register: str
    queries: list[str]
    staged: list[str]
    published: bool = False


TABLE = {
    "SIGINT, acquired and reply lost": Row(signal.SIGINT, on_register(HoldReply()), "free 1", ["CANCELLED"], []),
    "SIGTERM, started and reply lost": Row(
        signal.SIGTERM, Fault(HoldReply(), "athena", "StartQueryExecution"), "free 1", ["CANCELLED"], []
    ),
    "SIGINT, running": Row(
        signal.SIGINT, Fault(HoldReply(), "athena", "GetQueryExecution"), "free 1", ["CANCELLED"], []
    ),
    "SIGTERM, commit on its way": Row(
        signal.SIGTERM, on_register(HoldRequest(), skip=2), "free 1", ["SUCCEEDED"], staging(1, 4)
    ),
    "SIGINT, two files copied": Row(
        signal.SIGINT,
        Fault(HoldRequest(), "s3", "CopyObject", "published/", times=2),
        "free 1",
        ["SUCCEEDED"],
        [],
        published=True,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_interrupted_owner_stops_its_query_or_finishes_its_swap_and_frees_the_slot(lake: Lake, name: str) -> None:
    row = TABLE[name]
    target = lake.target()
    published = row.published
    if row.queries == ["CANCELLED"]:
        lake.aws.faults.hold_queries(sql_contains="/staging/00000001-")
    with processes(lake, 1, PATIENT) as (owner,):
        rule = lake.aws.faults.add(row.fault)
        owner.publish(target)
        wait_for(lake, rule)
        wait_until(lambda: len(lake.listing(target.location)) == (2 if published else 0), "it stands there")
        owner.signal(row.number)
        owner.wait()
    assert_ends(
        lake,
        target,
        [],
        [],
        queries=row.queries,
        register=row.register,
        location=files(1) if published else [],
        staged=row.staged,
        rows=range(ROWS) if published else range(0),
    )
    outcome = end(lake.publisher(PATIENT), target)
    lake.aws.faults.release(rule)
    wait_until_all_arrived(lake)
    assert_ends(
        lake,
        target,
        [outcome],
        ["Reused" if published else "Published"],
        queries=row.queries if published else [*row.queries, "SUCCEEDED"],
        register="free 1" if published else "free 2",
        location=files(1 if published else 2),
    )


def test_interrupted_caller_that_waits_leaves_the_owner_alone(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    with processes(lake, 2, PATIENT) as (owner, waiting):
        owner.publish(target)
        wait_until(lambda: owner.told("running"), "the query runs")
        waiting.publish(target)
        wait_until(lambda: waiting.told("waiting"), "another caller waits")
        waiting.signal(signal.SIGINT)
        waiting.wait()
        lake.aws.faults.release(hold)
        ended = owner.result()
    assert_ends(lake, target, [ended], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1))


# --- the full matrix -------------------------------------------------------------------------------------------------

SIGNALS: dict[str, tuple[signal.Signals, Action]] = {
    "SIGINT, applied": (signal.SIGINT, HoldReply()),
    "SIGTERM, applied later": (signal.SIGTERM, HoldRequest()),
}


def interrupt(lake: Lake, owner: ProcessCaller, mode: str, step: int, how: str) -> bool:
    """One publication that is interrupted at its request number `step`; False if it has ended before."""
    number, action = SIGNALS[how]
    target, rows = prepared(lake, f"interrupted_{step}", mode)
    already = len(lake.queries(target.location))
    rule = lake.aws.faults.add(Fault(action, skip=step))
    owner.publish(target)
    wait_until(lambda: lake.aws.faults.hits(rule) or owner.ended(), f"request {step} is held")
    if not lake.aws.faults.hits(rule):
        lake.aws.faults.clear()  # or it would hold a request of the next step
        return False
    owner.signal(number)
    owner.wait()
    lake.aws.faults.advance_clock(DAY)
    done(lake.publisher(PATIENT).unload(target))
    lake.assert_published_once(target.location, range(rows))
    snapshot = lake.listing(target.location, stamped=True)
    lake.aws.faults.release(rule)
    wait_until_all_arrived(lake)
    assert lake.listing(target.location, stamped=True) == snapshot, f"request {step} changed what was published"
    states = [each.state for each in lake.queries(target.location)][already:]
    assert states[-1] == "SUCCEEDED"
    assert len(states) <= 2, f"request {step}: {states}"
    lake.aws.faults.clear()
    lake.aws.faults.rows_per_file(ROWS_PER_FILE)
    return True


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("mode", MODES)
def test_owner_interrupted_at_any_request_is_finished_or_replaced(lake: Lake, mode: str, how: str) -> None:
    requests, polls = count_requests(lake, mode)
    assert requests - polls > 10
    struck = 0
    for step in range(requests):
        with processes(lake, 1, PATIENT) as (owner,):
            struck += interrupt(lake, owner, mode, step, how)
    assert struck >= requests - polls - 5  # renewals may differ by a few
