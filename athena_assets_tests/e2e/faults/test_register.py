"""Faults of the register itself: deleted, edited by hand, brought back older, or written by another version of us."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from athena_assets import errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, HoldRequest
from athena_assets_tests.e2e.faults.ending import DAY, PATIENT, assert_ends, end, files, staging, wait_for
from athena_assets_tests.e2e.lake import Lake, ThreadCaller, wait_until


def register_key(location: str) -> str:
    return keys.register_key(parse_location(location))


def newer(body: bytes) -> bytes:
    """The same object as a newer version of this package might write it."""
    return json.dumps({**json.loads(body), "schema": 2, "since_version_2": True}).encode()


def edit(**changes: Any) -> Callable[[bytes], bytes]:
    return lambda body: json.dumps({**json.loads(body), **changes}).encode()


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "no document": lambda _: b"not json",
    "another document": lambda _: b"{}",
    "cut short": lambda body: body[:-20],
    "a newer version's": newer,
    "fence lowered": edit(fence=0),
    "state misspelt": edit(state="fre"),
    "held by nobody": edit(state="running"),
    "a field too many": edit(note="do not touch"),
}


@pytest.mark.parametrize("name", EDITS)
def test_register_that_is_not_ours_is_refused_and_nothing_is_touched(lake: Lake, name: str) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    key = register_key(target.location)
    body = EDITS[name](lake.read(key))
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=body)
    before = lake.listing(f"s3://{lake.bucket}/", stamped=True)
    for arguments in ({}, {"force": True}, {"take_over": True}):
        assert isinstance(end(publisher, target, **arguments), errors.RegisterUnreadable)
    assert lake.listing(f"s3://{lake.bucket}/", stamped=True) == before
    assert lake.read(key) == body
    assert [each.state for each in lake.queries(target.location)] == ["SUCCEEDED"]


def test_manifest_of_a_newer_version_is_refused_and_nothing_is_touched(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    register = lake.register(target.location)
    assert register is not None
    assert register.publication is not None
    manifest = register.publication.manifest
    body = newer(lake.read(manifest))
    lake.s3.put_object(Bucket=lake.bucket, Key=manifest, Body=body)
    before = lake.listing(target.location, stamped=True)
    ended = end(publisher, target, force=True)
    assert "Upgrade athena_assets" in str(ended)
    assert lake.listing(target.location, stamped=True) == before
    assert lake.read(manifest) == body
    assert [each.state for each in lake.queries(target.location)] == ["SUCCEEDED"]


def test_older_owner_that_a_newer_version_took_over_stops_and_touches_nothing(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="written")
    owner = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    key = register_key(target.location)
    body = newer(lake.read(key))
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=body)
    lake.aws.faults.release(hold)
    ended = owner.end()
    assert isinstance(ended, errors.RegisterUnreadable)
    assert "Upgrade athena_assets" in str(ended)
    assert lake.read(key) == body
    assert lake.listing(target.location) == {}
    assert len(lake.staged(target.location)) == 4
    assert [each.state for each in lake.queries(target.location)] == ["SUCCEEDED"]


def test_older_caller_that_waits_beside_a_newer_one_stops_and_starts_no_query(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    waiting = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: waiting.told("waiting"), "another caller waits")
    key = register_key(target.location)
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=newer(lake.read(key)))
    assert isinstance(waiting.end(), errors.RegisterUnreadable)
    lake.aws.faults.release(hold)
    assert isinstance(owner.end(), errors.RegisterUnreadable)
    assert [each.state for each in lake.queries(target.location)] == ["SUCCEEDED"]
    assert lake.listing(target.location) == {}


def test_register_deleted_under_its_owner_is_never_made_anew(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner = ThreadCaller(publisher, target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    lake.s3.delete_object(Bucket=lake.bucket, Key=register_key(target.location))
    lake.aws.faults.release(hold)
    ended = owner.end()
    assert_ends(
        lake,
        target,
        [ended, end(publisher, target)],
        ["RegisterVanished"] * 2,
        queries=["SUCCEEDED"],
        register=None,
        location=[],
        staged=staging(1, 4),
        rows=range(0),
    )


def test_register_deleted_under_a_waiting_caller_is_never_made_anew(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner = ThreadCaller(publisher, target).start()
    wait_until(lambda: owner.told("running"), "the query runs")
    waiting = ThreadCaller(publisher, target).start()
    wait_until(lambda: waiting.told("waiting"), "another caller waits")
    lake.s3.delete_object(Bucket=lake.bucket, Key=register_key(target.location))
    ended = waiting.end()
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        [ended, owner.end()],
        ["RegisterVanished"] * 2,
        queries=["SUCCEEDED"],
        register=None,
        location=[],
        staged=staging(1, 4),
        rows=range(0),
    )


def test_register_lost_after_its_publication_is_not_made_anew_and_serves_again_once_it_is_restored(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    first = end(publisher, target)
    key = register_key(target.location)
    body = lake.read(key)
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    lost = end(publisher, target)
    assert lake.register(target.location) is None
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=body)  # the object's earlier version
    assert_ends(
        lake,
        target,
        [first, lost, end(publisher, target)],
        ["Published", "RegisterVanished", "Reused"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )


def test_register_brought_back_older_under_its_owner_ends_in_one_publication(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    key = register_key(target.location)
    earlier = lake.read(key)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "PutObject", "/manifests/"))
    owner = ThreadCaller(publisher, target, {"force": True}).start()
    wait_for(lake, rule)
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=earlier)
    lake.aws.faults.release(rule)
    ended = owner.end()
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [ended],
        ["RegisterUnreadable"],  # its manifest under this very fence is there already, of its own first query
        queries=["SUCCEEDED"] * 3,
        register="running 2",
        location=files(1),
        staged=staging(2, 8),
    )
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [end(publisher, target, force=True)],  # finishes that attempt, then runs its own
        ["Published"],
        queries=["SUCCEEDED"] * 4,
        register="free 4",
        location=files(4),
    )
