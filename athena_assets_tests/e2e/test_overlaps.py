"""Locations of two deployments that lie in each other: whichever way it begins, at most one publishes."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from athena_assets import Published, Reused, Target, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, HoldReply, HoldRequest
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, wait_until
from athena_assets_tests.e2e.processes import processes


def nested(lake: Lake) -> tuple[Target, Target]:
    """An outer and an inner location, two levels apart."""
    outer = lake.target("outer", location=f"s3://{lake.bucket}/published/a%b/")
    return outer, lake.target("inner", location=f"s3://{lake.bucket}/published/a%b/deep/inner/")


def assert_stands_in_nobodys_way(lake: Lake, target: Target) -> None:
    register = lake.register(target.location)
    assert register is None or (register.state, register.publication) == ("free", None)


@pytest.mark.parametrize("outer_first", [True, False])
def test_who_comes_second_yields_by_name_and_starts_no_query(lake: Lake, outer_first: bool) -> None:
    outer, inner = nested(lake)
    first, second = (outer, inner) if outer_first else (inner, outer)
    publisher = lake.publisher()
    publisher.unload(first)
    with pytest.raises(errors.LocationOverlaps) as caught:
        publisher.unload(second)
    assert first.location in str(caught.value)
    assert second.location in str(caught.value)
    assert ("above" if outer_first else "inside") in str(caught.value)
    assert len(lake.queries(second.location)) == 0
    assert_stands_in_nobodys_way(lake, second)
    publisher.unload(first, force=True)
    assert lake.rows(first.location) == Counter(range(ROWS))


def test_a_sibling_whose_name_begins_alike_is_no_neighbour(lake: Lake) -> None:
    publisher = lake.publisher()
    for name in ("a", "ab", "a_old", "b/a"):
        location = f"s3://{lake.bucket}/published/{name}/"
        assert isinstance(publisher.unload(lake.target("same", location=location)), Published)


@pytest.mark.parametrize("outer_first", [True, False])
def test_a_slot_in_use_without_a_publication_is_seen(lake: Lake, outer_first: bool) -> None:
    outer, inner = nested(lake)
    first, second = (outer, inner) if outer_first else (inner, outer)
    hold = lake.aws.faults.hold_queries()
    caller = ThreadCaller(lake.publisher(60), first).start()
    wait_until(lambda: caller.told("running"), "the first one's query runs")
    with pytest.raises(errors.LocationOverlaps, match="held by process"):
        lake.publisher().unload(second)
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().outcome, Published)


def test_who_has_yielded_may_come_again_when_the_other_has_failed(lake: Lake) -> None:
    outer, inner = nested(lake)
    publisher = lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=keys.staging_root(parse_location(outer.location)))
    caller = ThreadCaller(lake.publisher(60), outer).start()
    lake.wait_until_held(hold)
    with pytest.raises(errors.LocationOverlaps):
        publisher.unload(inner)
    lake.aws.client("athena").stop_query_execution(QueryExecutionId=lake.queries(outer.location)[0].query_id)
    assert isinstance(caller.join().error, errors.QueryCancelled)
    lake.aws.faults.release(hold)
    assert isinstance(publisher.unload(inner), Published)
    with pytest.raises(errors.LocationOverlaps):
        publisher.unload(outer)


def test_both_have_written_before_either_looks_and_the_longer_one_yields(lake: Lake) -> None:
    outer, inner = nested(lake)
    rules = [
        lake.aws.faults.add(Fault(HoldReply(), "s3", "PutObject", keys.register_key(parse_location(each.location))))
        for each in (outer, inner)
    ]
    callers = [ThreadCaller(lake.publisher(60), each).start() for each in (outer, inner)]
    wait_until(lambda: all(lake.aws.faults.hits(rule) == 1 for rule in rules), "both registers are written")
    lake.aws.faults.release(rules[0])
    wait_until(lambda: callers[0].told("waiting"), "the outer one sees the inner one")
    lake.aws.faults.release(rules[1])
    assert isinstance(callers[1].join().error, errors.LocationOverlaps)
    assert isinstance(callers[0].join().outcome, Published)
    assert_stands_in_nobodys_way(lake, inner)
    assert lake.rows(outer.location) == Counter(range(ROWS))


@pytest.mark.long
def test_callers_of_one_moment_do_not_both_go_on(lake: Lake) -> None:
    for number in range(10):
        place = f"s3://{lake.bucket}/round-{number}/"
        targets = [lake.target("outer", location=place), lake.target("inner", location=f"{place}x/")]
        barrier = threading.Barrier(2)
        callers = [ThreadCaller(lake.publisher(60), each).start(barrier) for each in targets]
        ended = [caller.join() for caller in callers]
        assert sorted(type(each.outcome or each.error).__name__ for each in ended) == ["LocationOverlaps", "Published"]
        assert lake.rows(place) == Counter(range(ROWS))


def test_the_taker_of_an_inner_attempt_looks_too(lake: Lake) -> None:
    outer, inner = nested(lake)
    hold = lake.aws.faults.hold_queries(sql_contains=keys.staging_root(parse_location(outer.location)))
    first = ThreadCaller(lake.publisher(60), outer).start()
    wait_until(lambda: first.told("running"), "the outer one has looked, and its query runs")
    manifests = keys.manifest_root(parse_location(inner.location))
    with processes(lake, 1) as (owner,):
        rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "ListObjectsV2", manifests, skip=1))
        owner.publish(inner)
        wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the inner one has written and is about to look")
        owner.kill()
    lake.aws.faults.release(hold)
    assert isinstance(first.join().outcome, Published)
    with pytest.raises(errors.LocationOverlaps):
        lake.publisher().unload(inner)
    assert len(lake.queries(inner.location)) == 0
    assert_stands_in_nobodys_way(lake, inner)


@pytest.mark.long
def test_an_inner_attempt_whose_owner_died_is_not_waited_for_without_end(lake: Lake) -> None:
    outer, inner = nested(lake)
    with processes(lake, 1) as (owner,):
        rule = lake.aws.faults.add(Fault(HoldRequest(), "athena", "StartQueryExecution"))
        owner.publish(inner)
        wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the inner one has looked")
        owner.kill()
    with pytest.raises(errors.LocationOverlaps, match="held by process"):
        lake.publisher().unload(outer)
    assert isinstance(lake.publisher().unload(inner), Published)


def test_a_neighbour_that_can_not_be_read_counts_as_one(lake: Lake) -> None:
    outer, inner = nested(lake)
    key = keys.register_key(parse_location(outer.location))
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"{")
    with pytest.raises(errors.LocationOverlaps, match="can't be read"):
        lake.publisher().unload(inner)


def test_a_blocked_neighbour_is_in_use(lake: Lake) -> None:
    outer = lake.target("outer", location=f"s3://{lake.bucket}/published/o/", mode="direct", retries=0)
    inner = lake.target("inner", location=f"s3://{lake.bucket}/published/o/inner/")
    lake.aws.faults.fail_queries(sql_contains="published/o/", after_files=2)
    with pytest.raises(errors.DirtyLocation):
        lake.publisher().unload(outer)
    with pytest.raises(errors.LocationOverlaps, match="blocked"):
        lake.publisher().unload(inner)


def test_once_published_the_neighbourhood_is_not_searched_again(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    above = keys.register_key(parse_location(f"s3://{lake.bucket}/published/"))
    before = len(lake.aws.requests("s3", "GetObject", above))
    assert before == 1
    publisher.unload(target, force=True)
    assert isinstance(publisher.unload(target), Reused)
    assert len(lake.aws.requests("s3", "GetObject", above)) == before
