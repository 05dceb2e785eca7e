"""Mode `direct`: the query writes into the location itself, which is only safe where it is empty."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from athena_assets import Published, Reused, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, HoldReply, HoldRequest
from athena_assets_tests.e2e.lake import ROWS, Lake, ProcessCaller, ThreadCaller, done, processes, wait_until


def state(lake: Lake, location: str) -> str | None:
    register = lake.register(location)
    return None if register is None else register.state


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
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    before = lake.register(target.location)
    with pytest.raises(errors.LocationNotEmpty, match="empty location only"):
        publisher.unload(target)
    assert len(lake.queries(target.location)) == 1
    # No attempt was recorded either: a taker would start its query and clean up after it, published files and all.
    assert lake.register(target.location) == before
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
    with pytest.raises(errors.DirtyLocation, match="athena-assets repair"):
        publisher.unload(target)
    assert len(lake.listing(target.location)) == 2
    assert state(lake, target.location) == "blocked"
    with pytest.raises(errors.DirtyLocation, match="it left 2 objects"):
        publisher.unload(target)
    assert len(lake.queries(target.location)) == 1

    location = parse_location(target.location)
    shown = publisher.repair(location)
    assert len(shown) == 2
    assert state(lake, target.location) == "blocked"
    lake.s3.put_object(Bucket=lake.bucket, Key=location.prefix + "later", Body=b"precious")
    (left,) = publisher.repair(location, delete=shown)  # what nobody was shown is not deleted
    assert left.key == location.prefix + "later"
    assert state(lake, target.location) == "blocked"
    lake.s3.delete_object(Bucket=lake.bucket, Key=left.key)
    assert publisher.repair(location) == ()
    assert state(lake, target.location) == "free"
    publisher.unload(target)
    lake.assert_published_once(target.location)
    with pytest.raises(errors.NotBlocked):
        publisher.repair(location)


def test_failed_query_that_left_nothing_does_not_block(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct", retries=0), lake.publisher()
    lake.aws.faults.fail_queries(sql_contains=target.name)
    with pytest.raises(errors.QueryInternalError):
        publisher.unload(target)
    assert state(lake, target.location) == "free"


def test_clean_after_failure_deletes_what_the_query_left_and_tries_again(lake: Lake) -> None:
    target = lake.target(mode="direct", clean_after_failure=True)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=2)
    assert isinstance(lake.publisher().unload(target), Published)
    assert [each.state for each in lake.queries(target.location)] == ["FAILED", "SUCCEEDED"]
    lake.assert_published_once(target.location)


def test_an_object_that_is_not_the_querys_blocks_the_slot(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct"), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    key = parse_location(target.location).prefix + "stranger"
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"precious")
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().error, errors.MixedLocation)
    assert state(lake, target.location) == "blocked"
    assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"precious"
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
    assert state(lake, target.location) == "blocked"
    assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"precious"


@pytest.fixture
def owner(lake: Lake) -> Iterator[ProcessCaller]:
    with processes(lake, 1) as callers:
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
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner stands at the stage")
    owner.signal(number)
    outcome = done(lake.publisher().unload(target))
    lake.assert_published_once(target.location)
    snapshot = lake.listing(target.location, stamped=True)
    lake.aws.faults.release(rule)
    if number == signal.SIGSTOP:
        owner.signal(signal.SIGCONT)
        assert owner.result().get("query_id") == outcome.publication.query_id
    assert lake.listing(target.location, stamped=True) == snapshot
    assert len(lake.queries(target.location)) == 1


def test_dead_owner_in_the_middle_of_cleaning_is_finished(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target(mode="direct", clean_after_failure=True)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=3)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "DeleteObject", "published/", skip=1))
    owner.publish(target)
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner deletes what the query left")
    register = lake.register(target.location)
    assert register is not None
    assert len(register.cleanup) == 3
    owner.kill()
    assert isinstance(lake.publisher().unload(target), Published)
    lake.assert_published_once(target.location)
    lake.aws.faults.release(rule)
    assert [each.state for each in lake.queries(target.location)] == ["FAILED", "SUCCEEDED"]


def test_an_interrupted_direct_query_is_left_to_the_next_caller(lake: Lake) -> None:
    target = lake.target(mode="direct", clean_after_failure=True)
    key = keys.register_key(parse_location(target.location))
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="written")
    with processes(lake, 1) as (interrupted,):
        interrupted.publish(target)
        wait_until(lambda: lake.aws.faults.held(hold), "the query has written its files")
        wait_until(lambda: interrupted.told("running"), "the query id is noted")
        interrupted.signal(signal.SIGINT)
        interrupted.process.wait(20)
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]
    assert lake.s3.head_object(Bucket=lake.bucket, Key=key)
    lake.aws.faults.clear()
    assert isinstance(lake.publisher().unload(target), Published)
    lake.assert_published_once(target.location)


def test_a_strangers_object_that_stops_the_query_is_not_cleaned_away(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct", clean_after_failure=True), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="queued")
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query is before Athena's check")
    key = parse_location(target.location).prefix + "stranger"
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"precious")
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().error, errors.QueryUserError)
    assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"precious"
    assert state(lake, target.location) == "free"
    assert len(lake.queries(target.location)) == 1
