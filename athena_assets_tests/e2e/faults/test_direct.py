"""Mode `direct`: the query writes into the location itself, which is only safe where it is empty."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from athena_assets import Published, Reused, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import DropReply, Fault, HoldReply, HoldRequest, Respond
from athena_assets_tests.e2e.faults.ending import (
    DAY,
    PATIENT,
    assert_ends,
    end,
    wait_for,
    wait_until_all_arrived,
)
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.processes import ProcessCaller, processes


def test_direct_publishes_in_place_and_copies_nothing(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct"), lake.publisher()
    assert isinstance(publisher.unload(target), Published)
    assert lake.rows(target.location) == Counter(range(ROWS))
    assert lake.aws.requests("s3", "CopyObject") == []
    assert isinstance(publisher.unload(target), Reused)
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


def test_direct_is_refused_where_anything_lies_before_a_query_is_paid_for(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct"), lake.publisher()
    first = end(publisher, target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    ended = end(publisher, target)
    assert "empty location only" in str(ended)
    assert_ends(
        lake,
        target,
        [first, ended],
        ["Published", "LocationNotEmpty"],
        queries=["SUCCEEDED"],
        register="free 1",  # no attempt is recorded: a taker would clean up after it, published files and all
        location=4,
    )


def refuse_the_second_start(lake: Lake) -> None:
    """The first one is accepted, and its reply lost."""
    lake.aws.faults.add(Fault(DropReply(), "athena", "StartQueryExecution"))
    lake.aws.faults.add(
        Fault(Respond(400, "InvalidRequestException", "WorkGroup is off."), "athena", "StartQueryExecution")
    )


def test_a_start_that_is_refused_after_its_first_reply_was_lost_blocks_the_slot_while_it_may_run(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct"), lake.publisher()
    hold = lake.aws.faults.hold_queries()
    refuse_the_second_start(lake)
    first = end(publisher, target)
    assert "a query may be running that writes to the location" in str(first)
    other = end(publisher, lake.target(target.name, mode="direct", query="SELECT n FROM numbers WHERE n < 10"))
    assert [type(each).__name__ for each in (first, other)] == ["MixedLocation", "MixedLocation"]
    lake.aws.faults.release(hold)
    wait_until(lambda: [each.state for each in lake.queries(target.location)] == ["SUCCEEDED"], "the query ends")
    assert lake.rows(target.location) == Counter(range(ROWS))  # once: nobody else has written there
    assert lake.state(target.location) == "blocked"


def test_an_interrupted_start_that_is_refused_when_it_is_sent_again_frees_no_direct_slot(lake: Lake) -> None:
    target = lake.target(mode="direct", guard="off")
    hold = lake.aws.faults.hold_queries()
    with processes(lake, 1, PATIENT) as (owner,):
        reply = lake.aws.faults.add(Fault(HoldReply(), "athena", "StartQueryExecution"))
        owner.publish(target)
        wait_until(lambda: lake.aws.faults.held(hold), "the query runs and its owner does not know its id")
        refusal = Respond(400, "InvalidRequestException", "WorkGroup is off.")
        lake.aws.faults.add(Fault(refusal, "athena", "StartQueryExecution", times=None))
        owner.signal(signal.SIGINT)
        owner.wait()
    assert lake.state(target.location) == "submitting"
    lake.aws.faults.advance_clock(DAY)
    assert isinstance(end(lake.publisher(PATIENT), target), errors.MixedLocation)
    assert lake.state(target.location) == "blocked"
    lake.aws.faults.release(reply)


def test_staged_a_start_that_is_refused_after_its_first_reply_was_lost_says_that_it_may_run(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    hold = lake.aws.faults.hold_queries()
    refuse_the_second_start(lake)
    failed = end(publisher, target)
    assert isinstance(failed, errors.QueryUserError)
    assert "a query may be running, whose result is not used" in str(failed)
    lake.aws.faults.release(hold)
    assert isinstance(end(publisher, target), Published)
    assert [each.state for each in lake.queries(target.location)] == ["SUCCEEDED", "SUCCEEDED"]
    lake.assert_published_once(target.location)


def test_a_staged_publication_replaces_a_direct_one(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct"), lake.publisher()
    publisher.unload(target)
    assert isinstance(publisher.unload(lake.target(target.name), force=True), Published)
    lake.assert_published_once(target.location)
    assert len(lake.queries(target.location)) == 2


def test_failed_query_that_left_files_blocks_the_slot_until_it_is_repaired(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct"), lake.publisher()
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=2)
    dirty, again = end(publisher, target), end(publisher, target)
    assert "athena-assets repair" in str(dirty)
    assert "it left 2 objects" in str(again)
    assert_ends(
        lake,
        target,
        [dirty, again],
        ["DirtyLocation"] * 2,
        queries=["FAILED"],
        register="blocked 1",
        location=2,
        rows=range(500),
    )

    location = parse_location(target.location)
    shown = publisher.repair(location)
    assert len(shown) == 2
    assert lake.state(target.location) == "blocked"
    lake.s3.put_object(Bucket=lake.bucket, Key=location.prefix + "later", Body=b"precious")
    (left,) = publisher.repair(location, delete=shown)  # what nobody was shown is not deleted
    assert left.key == location.prefix + "later"
    assert lake.state(target.location) == "blocked"
    lake.s3.delete_object(Bucket=lake.bucket, Key=left.key)
    assert publisher.repair(location) == ()
    assert lake.state(target.location) == "free"
    publisher.unload(target)
    lake.assert_published_once(target.location)
    with pytest.raises(errors.NotBlocked):
        publisher.repair(location)


def test_failed_query_that_left_nothing_does_not_block(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct", retries=0), lake.publisher()
    lake.aws.faults.fail_queries(sql_contains=target.name)
    assert_ends(
        lake,
        target,
        [end(publisher, target)],
        ["QueryInternalError"],
        queries=["FAILED"],
        register="free 1",
        location=[],
        rows=range(0),
    )


def test_clean_after_failure_deletes_what_the_query_left_and_tries_again(lake: Lake) -> None:
    target = lake.target(mode="direct", clean_after_failure=True)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=2)
    outcome = end(lake.publisher(), target)
    assert_ends(lake, target, [outcome], ["Published"], queries=["FAILED", "SUCCEEDED"], register="free 1", location=4)


def test_orphan_of_a_requeued_query_blocks_the_slot(lake: Lake) -> None:
    target = lake.target(mode="direct")
    lake.aws.faults.requeue(sql_contains=target.name, after_files=1)
    ended = end(lake.publisher(), target)
    assert_ends(
        lake,
        target,
        [ended],
        ["MixedLocation"],
        queries=["SUCCEEDED"],
        register="blocked 1",
        location=5,
        rows=None,  # those of the first file twice: what the slot is blocked for
    )


def test_an_object_that_is_not_the_querys_blocks_the_slot(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct"), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    lake.wait_until_held(hold)
    key = lake.put_stranger(target)
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        [caller.end()],
        ["MixedLocation"],
        queries=["SUCCEEDED"],
        register="blocked 1",
        location=5,
        rows=None,
    )
    assert lake.read(key) == b"precious"
    register = lake.register(target.location)
    assert register is not None
    assert register.publication is None


def test_what_lies_there_after_a_query_that_succeeded_is_never_cleaned_up(lake: Lake) -> None:
    target = lake.target(mode="direct", clean_after_failure=True, query="SELECT n FROM numbers WHERE n < 0")
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(lake.publisher(), target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    key = parse_location(target.location).prefix + "stranger"
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"precious")
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().error, errors.DirtyLocation)
    assert [each.state for each in lake.queries(target.location)] == ["SUCCEEDED"]
    assert lake.state(target.location) == "blocked"
    assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"precious"


@pytest.fixture
def owner(lake: Lake) -> Iterator[ProcessCaller]:
    with processes(lake, 1, PATIENT) as callers:
        yield callers[0]


STAGES = {
    "before submit": Fault(HoldReply(), "s3", "PutObject", "register.json"),
    "start on its way": Fault(HoldRequest(), "athena", "StartQueryExecution"),
    "after submit": Fault(HoldReply(), "athena", "StartQueryExecution"),
    "while running": Fault(HoldReply(), "athena", "GetQueryExecution"),
    "after success": Fault(HoldRequest(), "s3", "PutObject", "/manifests/"),
    "before commit": Fault(HoldRequest(), "s3", "PutObject", "register.json", skip=2),
    "after commit": Fault(HoldReply(), "s3", "PutObject", "register.json", skip=2),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_dead_or_frozen_owner_is_finished_by_the_next_caller(
    lake: Lake, owner: ProcessCaller, stage: str, number: signal.Signals
) -> None:
    target = lake.target(mode="direct")
    rule = lake.aws.faults.add(STAGES[stage])
    owner.publish(target)
    wait_for(lake, rule)
    owner.signal(number)
    lake.aws.faults.advance_clock(DAY)
    outcome = done(lake.publisher(PATIENT).unload(target))
    snapshot = lake.listing(target.location, stamped=True)
    lake.aws.faults.release(rule)
    if number == signal.SIGSTOP:
        owner.signal(signal.SIGCONT)
        assert owner.result().get("query_id") == outcome.publication.query_id
    wait_until_all_arrived(lake)
    assert lake.listing(target.location, stamped=True) == snapshot
    assert_ends(
        lake,
        target,
        [outcome],
        ["Published" if stage != "after commit" else "Reused"],
        queries=["SUCCEEDED"],
        register="free 1" if stage == "after commit" else "free 2",
        location=4,
    )


def test_twin_query_of_a_forgotten_token_is_detected_and_blocks_the_slot(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target(mode="direct")
    checked = lake.aws.faults.hold_queries(sql_contains=target.name)
    written = lake.aws.faults.hold_queries(sql_contains=target.name, at="written")
    rule = lake.aws.faults.add(STAGES["start on its way"])
    owner.publish(target)
    wait_for(lake, rule)
    owner.kill()
    lake.aws.faults.advance_clock(DAY)
    taker = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: taker.told("running"), "the taker's query runs")
    lake.aws.faults.forget_tokens()
    lake.aws.faults.release(rule)  # the dead owner's start: one token, two queries, and both find nothing there
    wait_until(lambda: len(lake.aws.faults.held(checked)) == 2, "both have passed Athena's check")
    lake.aws.faults.release(checked)
    wait_until(lambda: len(lake.aws.faults.held(written)) == 2, "both have written")
    lake.aws.faults.release(written)
    ended = taker.end()
    wait_until(lambda: all(each.state == "SUCCEEDED" for each in lake.queries(target.location)), "both have succeeded")
    assert_ends(
        lake,
        target,
        [ended],
        ["MixedLocation"],
        queries=["SUCCEEDED"] * 2,
        register="blocked 2",
        location=8,
        rows=None,  # every row twice: the residual risk of this mode, detected and not prevented
    )


def test_dead_owner_in_the_middle_of_cleaning_is_finished(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target(mode="direct", clean_after_failure=True)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=3)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "DeleteObject", "published/", skip=1))
    owner.publish(target)
    wait_for(lake, rule)
    register = lake.register(target.location)
    assert register is not None
    assert len(register.cleanup) == 3
    owner.kill()
    lake.aws.faults.advance_clock(DAY)
    outcome = end(lake.publisher(PATIENT), target)
    lake.aws.faults.release(rule)
    wait_until_all_arrived(lake)
    assert_ends(lake, target, [outcome], ["Published"], queries=["FAILED", "SUCCEEDED"], register="free 3", location=4)


def test_an_interrupted_direct_query_is_left_to_the_next_caller(lake: Lake) -> None:
    target = lake.target(mode="direct", clean_after_failure=True)
    key = keys.register_key(parse_location(target.location))
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="written")
    with processes(lake, 1, PATIENT) as (interrupted,):
        interrupted.publish(target)
        wait_until(lambda: lake.aws.faults.held(hold), "the query has written its files")
        wait_until(lambda: interrupted.told("running"), "the query id is noted")
        interrupted.signal(signal.SIGINT)
        interrupted.wait(20)
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]
    assert lake.s3.head_object(Bucket=lake.bucket, Key=key)
    lake.aws.faults.release(hold)
    lake.aws.faults.advance_clock(DAY)
    outcome = end(lake.publisher(PATIENT), target)
    assert_ends(
        lake, target, [outcome], ["Published"], queries=["CANCELLED", "SUCCEEDED"], register="free 3", location=4
    )


def test_a_strangers_object_that_stops_the_query_is_not_cleaned_away(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct", clean_after_failure=True), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="queued")
    caller = ThreadCaller(publisher, target).start()
    lake.wait_until_held(hold)
    key = lake.put_stranger(target)
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        [caller.end()],
        ["QueryUserError"],
        queries=["FAILED"],
        register="free 1",
        location=["stranger"],
        rows=None,
    )
    assert lake.read(key) == b"precious"
