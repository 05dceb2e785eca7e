"""Callers who meet, return, crash while they wait, or bring an old wish back."""

from __future__ import annotations

import pytest

from athena_assets import Published
from athena_assets_tests.e2e.faults.ending import PATIENT, assert_ends, end, files, staging
from athena_assets_tests.e2e.lake import Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.processes import processes


def test_request_id_with_another_query_is_refused(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    first = end(publisher, target, request_id="r1")
    other = lake.target(target.name, query="SELECT n + 1 AS n FROM numbers")
    ended = end(publisher, other, request_id="r1")
    assert "r1" in str(ended)
    assert_ends(
        lake,
        target,
        [first, ended],
        ["Published", "RequestConflict"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )


def test_request_that_returns_finds_its_own_publication_and_never_publishes_over_a_later_one(lake: Lake) -> None:
    target, publisher = lake.target(reuse="never"), lake.publisher(PATIENT)
    first = done(publisher.unload(target, request_id="r1"))
    again = done(publisher.unload(target, request_id="r1"))
    second = done(publisher.unload(target, request_id="r2"))
    returned = done(publisher.unload(target, request_id="r1", force=True))
    assert again.publication == returned.publication == first.publication
    assert returned.superseded
    assert_ends(
        lake,
        target,
        [first, again, second, returned],
        ["Published"] * 4,
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=files(2),
    )


def test_rollback_to_an_old_generation_is_published_anew(lake: Lake) -> None:
    publisher = lake.publisher(PATIENT)
    old = lake.target(query="SELECT n FROM numbers WHERE n < 10")
    new = lake.target(old.name, query="SELECT n FROM numbers WHERE n < 20")
    ended = [end(publisher, target) for target in (old, new, old)]
    assert_ends(
        lake,
        old,
        ended,
        ["Published"] * 3,
        queries=["SUCCEEDED"] * 3,
        register="free 3",
        location=files(3, 1),
        rows=range(10),
    )


def test_joiners_of_a_failing_query_raise_its_error_and_start_none(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=1, error_category=2, retryable=False)
    callers = [ThreadCaller(publisher, target).start() for _ in range(8)]
    wait_until(lambda: sum(each.told("waiting") for each in callers) == 7, "all but one caller wait")
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        [caller.end() for caller in callers],
        ["QueryUserError"] * 8,
        queries=["FAILED"],
        register="free 1",
        location=[],
        staged=staging(1, 1),
        rows=range(0),
    )
    assert_ends(  # a new wish is a new query
        lake,
        target,
        [end(publisher, target)],
        ["Published"],
        queries=["FAILED", "SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


@pytest.mark.parametrize("reuse", ["auto", "never"])
def test_joiner_that_crashes_and_retries_shares_the_result_or_runs_its_own(lake: Lake, reuse: str) -> None:
    target = lake.target(reuse=reuse)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    with processes(lake, 1, PATIENT) as (joiner,):
        joiner.publish(target, request_id="joiner")
        wait_until(lambda: joiner.told("waiting"), "the joiner waits")
    lake.aws.faults.release(hold)
    published = owner.end()
    retried = end(lake.publisher(PATIENT), target, request_id="joiner")
    shared = reuse == "auto"
    assert_ends(
        lake,
        target,
        [published, retried],
        ["Published", "Reused" if shared else "Published"],
        queries=["SUCCEEDED"] * (1 if shared else 2),
        register="free 1" if shared else "free 2",
        location=files(1 if shared else 2),
    )


def test_joiner_that_crashes_and_retries_while_the_owner_works_joins_again(lake: Lake) -> None:
    target = lake.target(reuse="never")
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    with processes(lake, 1, PATIENT) as (joiner,):
        joiner.publish(target, request_id="joiner")
        wait_until(lambda: joiner.told("waiting"), "the joiner waits")
    retried = ThreadCaller(lake.publisher(PATIENT), target, {"request_id": "joiner"}).start()
    wait_until(lambda: retried.told("waiting"), "its retry waits")
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        [owner.end(), retried.end()],
        ["Published", "Reused"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )


def test_owner_that_crashes_and_retries_adopts_its_own_query(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    with processes(lake, 1, PATIENT) as (owner,):
        owner.publish(target, request_id="mine")
        wait_until(lambda: owner.told("running"), "the query runs")
    lake.aws.faults.release(hold)
    outcome = lake.publisher(PATIENT).unload(target, request_id="mine", take_over=True)
    assert isinstance(outcome, Published)
    assert outcome.publication.request == "mine"
    assert_ends(lake, target, [outcome], ["Published"], queries=["SUCCEEDED"], register="free 2", location=files(2))
