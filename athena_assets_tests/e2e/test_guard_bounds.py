"""What the guard costs, and what becomes of a publication where it may not look, or not for long enough."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from athena_assets import errors
from athena_assets.aws.running import MOST_PAGES, PAGE
from athena_assets.local import Fault, Respond
from athena_assets_tests.e2e.faults.ending import DAY, PATIENT, assert_ends, end, files, wait_for
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller
from athena_assets_tests.e2e.processes import ProcessCaller, processes
from athena_assets_tests.e2e.test_guard import LIST, by_hand, looks, stand_before_the_start


@pytest.fixture
def owner(lake: Lake) -> Iterator[ProcessCaller]:
    with processes(lake, 1, PATIENT) as callers:
        yield callers[0]


@pytest.mark.parametrize("guard", ["takeover", "off"])
def test_nothing_is_listed_for_a_publication_that_nothing_disturbs(lake: Lake, guard: str) -> None:
    target = lake.target(guard=guard)
    assert_ends(
        lake,
        target,
        [end(lake.publisher(PATIENT), target)],
        ["Published"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )
    assert looks(lake) == 0


@pytest.mark.long
def test_nothing_is_listed_with_the_guard_off_at_a_takeover_either(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target(guard="off", on_conflict="fail")
    by_hand(lake, f"s3://{lake.bucket}/published/")
    wait_for(lake, stand_before_the_start(lake, owner, target))
    owner.kill()
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [end(lake.publisher(PATIENT), target)],
        ["Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )
    assert looks(lake) == 0


@pytest.mark.long
def test_throttling_is_waited_out(lake: Lake) -> None:
    target = lake.target(guard="always", on_conflict="fail")
    by_hand(lake, target.location)
    rule = lake.aws.faults.add(Fault(Respond(400, "ThrottlingException"), *LIST, times=5))  # the SDK asks four times
    assert isinstance(end(lake.publisher(PATIENT), target), errors.ForeignQueryRunning)
    assert lake.aws.faults.hits(rule) == 5


@pytest.mark.long
def test_throttling_that_takes_all_the_time_of_a_look_is_told_and_ends_no_publication(lake: Lake) -> None:
    target = lake.target(guard="always")
    lake.aws.faults.add(Fault(Respond(400, "ThrottlingException"), *LIST, times=None))
    caller = ThreadCaller(lake.publisher(1.0), target).start()
    assert_ends(
        lake,
        target,
        [caller.end()],
        ["Published"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )
    assert caller.told("looked in part")


@pytest.mark.long
@pytest.mark.parametrize(
    ("guard", "told", "register"),
    [("takeover", "Published", "free 2"), ("always", "AccessDenied", "submitting 1")],
)
def test_who_may_not_list_goes_on_unless_the_guard_is_always(
    lake: Lake, owner: ProcessCaller, guard: str, told: str, register: str
) -> None:
    target = lake.target(guard=guard)
    wait_for(lake, stand_before_the_start(lake, owner, target))
    owner.kill()
    lake.aws.faults.advance_clock(DAY)
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), *LIST, times=None))
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    published = told == "Published"
    assert_ends(
        lake,
        target,
        [caller.end()],
        [told],
        queries=["SUCCEEDED"] if published else [],
        register=register,
        location=files(2) if published else [],
        rows=range(ROWS if published else 0),
    )
    assert caller.told("no look") == published


def test_who_may_not_list_with_guard_always_does_not_take_the_slot(lake: Lake) -> None:
    target = lake.target(guard="always")
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), *LIST))
    denied = end(lake.publisher(PATIENT), target)
    assert "list_query_executions" in str(denied)
    again = end(lake.publisher(PATIENT), target)
    assert_ends(
        lake,
        target,
        [denied, again],
        ["AccessDenied", "Published"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_thousand_queries_in_the_history_stay_within_the_bounds_of_a_look(lake: Lake) -> None:
    target = lake.target(guard="always", on_conflict="fail")
    athena = lake.aws.client("athena")
    for _ in range(2_000):
        athena.start_query_execution(
            QueryString="SELECT 1 AS one", ResultConfiguration={"OutputLocation": str(lake.settings.output_location)}
        )
    query_id = by_hand(lake, target.location)
    before = len(lake.aws.requests(service="athena"))
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    caller.join(300)
    assert isinstance(caller.error, errors.ForeignQueryRunning)
    assert caller.error.query_id == query_id
    pages = looks(lake)
    assert pages <= 2_000 // PAGE + 1 <= MOST_PAGES
    # All of them, or as many as there is time for.
    assert pages == 2_000 // PAGE + 1 or caller.told("looked in part")
    assert len(lake.aws.requests(service="athena")) - before <= 2 * pages + 1  # and GetWorkGroup
