"""Faults around the commit: the one write that publishes."""

from __future__ import annotations

from athena_assets import Published
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import DropReply, Fault, HoldReply, HoldRequest, Respond
from athena_assets_tests.e2e.faults.ending import DAY, PATIENT, assert_ends, end, files, on_register, wait_for
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until

COMMIT = 2  # which write of the register it is


def test_two_committers_of_one_query_publish_it_once(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = lake.aws.faults.add(on_register(HoldRequest(), skip=COMMIT))
    owner = ThreadCaller(publisher, target).start()
    wait_for(lake, rule)
    taken = lake.aws.faults.add(on_register(HoldRequest(), skip=1))  # after the takeover comes the taker's commit
    taker = ThreadCaller(publisher, target, {"take_over": True}).start()
    wait_for(lake, taken)
    lake.aws.faults.release(rule)  # the owner's arrives first, and too late: the fence is higher
    lake.aws.faults.release(taken)
    ended = [owner.end(), taker.end()]
    assert [each.adopted for each in ended if isinstance(each, Published)] == [False, True]
    assert_ends(
        lake,
        target,
        ended,
        ["Published", "Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


def test_commit_that_is_taken_over_before_its_reply_is_projected_by_the_taker(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = lake.aws.faults.add(on_register(HoldReply(), skip=COMMIT))
    owner = ThreadCaller(publisher, target).start()
    wait_for(lake, rule)
    taker = end(publisher, target, take_over=True)
    lake.aws.faults.release(rule)
    assert_ends(
        lake,
        target,
        [owner.end(), taker],
        ["Published", "Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(1),
    )


def test_nobody_is_answered_between_commit_and_projection(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", "published/", times=2))
    owner = ThreadCaller(publisher, target).start()
    wait_for(lake, rule)
    busy = end(publisher, lake.target(target.name, wait_timeout=0.5))
    wait_until(lambda: len(lake.listing(target.location)) == 2, "two files are copied")
    lake.aws.faults.release(rule)
    assert_ends(
        lake,
        target,
        [busy, owner.end()],
        ["SlotBusy", "Published"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )


def test_outage_over_the_commit_is_unknown_and_the_same_request_finds_out(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    applied = lake.aws.faults.add(on_register(DropReply(), skip=COMMIT))
    own = keys.register_key(parse_location(target.location))
    denied = lake.aws.faults.add(Fault(Respond(403, "AccessDenied"), "s3", "GetObject", own, skip=1))
    # The look after the lost reply is refused: the caller ends without knowing what became of its commit.
    refused = end(publisher, target, request_id="r")
    assert lake.aws.faults.hits(applied) == lake.aws.faults.hits(denied) == 1
    lake.aws.faults.advance_clock(DAY)
    again = done(publisher.unload(target, request_id="r"))
    assert again.publication.request == "r"
    assert_ends(
        lake,
        target,
        [refused, again],
        ["AccessDenied", "Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(1),
    )


def test_strangers_object_that_comes_before_the_commit_keeps_the_old_result(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    old = lake.listing(target.location, stamped=True)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target, {"force": True}).start()
    lake.wait_until_held(hold)
    key = lake.put_stranger(target)
    lake.aws.faults.release(hold)
    ended = caller.end()
    after = lake.listing(target.location, stamped=True)
    assert {name: after[name] for name in old} == old
    assert_ends(
        lake,
        target,
        [ended],
        ["LocationNotEmpty"],
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=[*files(1), "stranger"],
        staged=["00000002-01"] * 4,
        rows=None,
    )
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    assert lake.rows(target.location) == dict.fromkeys(range(ROWS), 1)
