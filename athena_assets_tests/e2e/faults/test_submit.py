"""Faults of the start: whether a query exists, and under which token."""

from __future__ import annotations

from athena_assets import errors
from athena_assets.local import DropReply, Fault, HoldReply, Respond
from athena_assets_tests.e2e.faults.ending import DAY, PATIENT, assert_ends, end, files, staging, wait_for
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.processes import processes

START = ("athena", "StartQueryExecution")


def test_start_whose_reply_is_lost_again_and_again_is_one_query(lake: Lake) -> None:
    target = lake.target()
    rule = lake.aws.faults.add(Fault(DropReply(), *START, times=3))
    outcome = end(lake.publisher(PATIENT), target)
    assert lake.aws.faults.hits(rule) == 3
    assert_ends(lake, target, [outcome], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1))


def test_token_that_answers_with_a_failed_query_is_not_used_for_the_next_attempt(lake: Lake) -> None:
    target = lake.target()
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=2)
    lake.aws.faults.add(Fault(DropReply(), *START))  # the start is sent again and answered with the failed query
    outcome = done(lake.publisher(PATIENT).unload(target))
    assert len({each.client_request_token for each in lake.queries(target.location)}) == 2
    assert_ends(
        lake,
        target,
        [outcome],
        ["Published"],
        queries=["FAILED", "SUCCEEDED"],
        register="free 1",
        location=files(1, attempt=2),
    )


def test_token_that_athena_forgot_costs_a_second_query_whose_result_alone_is_published(lake: Lake) -> None:
    target = lake.target(guard="off")
    hold = lake.aws.faults.hold_queries(sql_contains="/staging/00000001-")
    with processes(lake, 1, PATIENT) as (owner,):
        lake.aws.faults.add(Fault(HoldReply(), *START))
        owner.publish(target)
        (lost,) = wait_until(lambda: lake.aws.faults.held(hold), "the query runs and its owner does not know its id")
    lake.aws.faults.forget_tokens()
    lake.aws.faults.advance_clock(DAY)
    publisher = lake.publisher(PATIENT)
    outcome = done(publisher.unload(target))
    assert outcome.publication.query_id != lost
    lake.aws.faults.release(hold)
    wait_until(lambda: lake.queries(target.location)[0].state == "SUCCEEDED", "the lost query ends by itself")
    assert_ends(
        lake,
        target,
        [outcome, end(publisher, target)],
        ["Published", "Reused"],
        queries=["SUCCEEDED", "SUCCEEDED"],
        register="free 2",
        location=files(2),
        staged=staging(1, 4),  # garbage, which the next owner or `gc` collects
    )


def test_start_that_is_throttled_until_the_owner_dies_is_taken_over_as_never_started(lake: Lake) -> None:
    target = lake.target()
    with processes(lake, 1, PATIENT) as (owner,):
        rule = lake.aws.faults.add(Fault(Respond(400, "TooManyRequestsException"), *START, times=None))
        owner.publish(target)
        wait_until(lambda: lake.aws.faults.hits(rule) >= 2, "the start is refused and tried again")
        owner.kill()
    lake.aws.faults.remove(rule)
    lake.aws.faults.advance_clock(DAY)
    outcome = end(lake.publisher(PATIENT), target)
    assert_ends(lake, target, [outcome], ["Published"], queries=["SUCCEEDED"], register="free 2", location=files(2))


def test_denied_start_is_named_and_its_attempt_is_finished_by_the_next_caller(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), *START))
    refused = end(publisher, target)
    assert isinstance(refused, errors.AccessDenied)
    assert "StartQueryExecution" in str(refused)
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [refused, end(publisher, target)],
        ["AccessDenied", "Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


def test_owner_paused_before_its_start_finds_that_the_token_has_been_used_for_it(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    before = end(publisher, target)  # a slot that has never published looks around first, and finds out so
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    rule = lake.aws.faults.add(Fault(HoldReply(), "s3", "PutObject", "register.json"))
    owner = ThreadCaller(publisher, target).start()
    wait_for(lake, rule)
    taker = end(publisher, target, take_over=True)
    lake.aws.faults.release(rule)
    woken = owner.end()
    assert [each.status for each in lake.aws.requests(*START)] == [200, 200, 400]  # the owner's own is a mismatch
    assert_ends(
        lake,
        target,
        [before, taker, woken],
        ["Published"] * 3,
        queries=["SUCCEEDED"] * 2,
        register="free 3",
        location=files(3, 5),
        rows=range(ROWS + 10),
    )
