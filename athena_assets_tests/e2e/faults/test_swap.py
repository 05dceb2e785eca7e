"""Faults of the staged swap: old files out, new files in, and who dies in between."""

from __future__ import annotations

import signal

import pytest

from athena_assets import Target, errors
from athena_assets.core.location import parse_location
from athena_assets.local import DropReply, Fault, HoldReply, HoldRequest, Respond
from athena_assets_tests.e2e.faults.ending import (
    DAY,
    PATIENT,
    assert_ends,
    end,
    files,
    on_register,
    wait_for,
    wait_until_all_arrived,
)
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.processes import processes

MORE = range(ROWS, ROWS + 10)
COPY, DELETE = ("s3", "CopyObject", "published/"), ("s3", "DeleteObject", "published/")
# stage: (the request at which the owner dies, files that readers then find)
DEATHS = {
    "a backup on its way": (Fault(HoldRequest(), "s3", "CopyObject", "/backup/"), 4, 0),
    "backups done, a reply lost": (Fault(HoldReply(), "s3", "CopyObject", "/backup/"), 4, 0),
    "no old file deleted": (Fault(HoldRequest(), *DELETE, times=4), 4, 0),
    "two old files deleted": (Fault(HoldRequest(), *DELETE, times=2), 2, 0),
    "all old files deleted": (Fault(HoldReply(), *DELETE), 0, 0),
    "no new file copied": (Fault(HoldRequest(), *COPY, times=5), 0, 0),
    "two new files copied": (Fault(HoldRequest(), *COPY, times=3), 0, 2),
    "all new files copied": (Fault(HoldReply(), *COPY), 0, 5),
}


def by_fence(lake: Lake, target: Target) -> tuple[int, int]:
    """How many files of the first and of the second publication lie at the location."""
    fences = [key.rpartition("/")[2][:8] for key in lake.listing(target.location)]
    return fences.count("00000001"), fences.count("00000002")


@pytest.mark.parametrize("stage", DEATHS)
def test_owner_that_dies_in_the_middle_of_a_replacement_is_rolled_forward(lake: Lake, stage: str) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", MORE)
    fault, old, new = DEATHS[stage]
    with processes(lake, 1, PATIENT) as (owner,):
        rule = lake.aws.faults.add(fault)
        owner.publish(target)
        wait_for(lake, rule)
        wait_until(lambda: by_fence(lake, target) == (old, new), f"{old} old and {new} new files are there")
    assert max(lake.rows(target.location).values(), default=1) == 1  # rows are missed for a moment, never seen twice
    lake.aws.faults.advance_clock(DAY)
    outcome = end(publisher, target)
    lake.aws.faults.release(rule)
    wait_until_all_arrived(lake)
    assert_ends(
        lake,
        target,
        [outcome],
        ["Published"],
        queries=["SUCCEEDED"] * 2,
        register="free 3",
        location=files(2, 5),
        rows=range(MORE.stop),
    )
    publisher.restore(parse_location(target.location), 1)  # the backup is whole, too
    assert lake.rows(target.location) == dict.fromkeys(range(ROWS), 1)


def test_committed_files_that_vanish_are_an_error_and_the_next_request_runs_anew(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    with processes(lake, 1, PATIENT) as (owner,):
        rule = lake.aws.faults.add(Fault(HoldReply(), *COPY))
        owner.publish(target)
        wait_for(lake, rule)
        owner.signal(signal.SIGSTOP)
        for key in (*lake.staged(target.location), *lake.listing(target.location)):
            lake.s3.delete_object(Bucket=lake.bucket, Key=key)
        lake.aws.faults.advance_clock(DAY)
        outcome = end(publisher, target)
        lake.aws.faults.release(rule)
        owner.signal(signal.SIGCONT)
        woken = owner.result()
    assert_ends(
        lake,
        target,
        [outcome, woken],
        ["Published", "PublicationLost"],
        queries=["SUCCEEDED"] * 2,
        register="free 3",
        location=files(3),
    )


def test_late_copy_of_a_lost_publication_brings_nothing_back(lake: Lake) -> None:
    target = lake.target()
    with processes(lake, 1, PATIENT) as (owner,):
        rule = lake.aws.faults.add(Fault(HoldRequest(), *COPY, times=4))
        owner.publish(target)
        wait_until(lambda: lake.aws.faults.hits(rule) == 4, "all copies are on their way")
        owner.signal(signal.SIGSTOP)
        lake.s3.delete_object(Bucket=lake.bucket, Key=max(lake.staged(target.location)))
        copies = lake.aws.faults.add(Fault(HoldRequest(), *COPY, skip=4, times=4))
        lake.aws.faults.advance_clock(DAY)
        other = ThreadCaller(lake.publisher(PATIENT), target).start()
        wait_for(lake, copies)
        lake.aws.faults.release(rule)  # the first owner's copies arrive in the middle of the second swap
        # The taker's own copy of the deleted file was the first to find none.
        wait_until(lambda: without_source(lake) == 5, "they find no source")
        lake.aws.faults.release(copies)
        outcome = other.end()
    assert_ends(lake, target, [outcome], ["Published"], queries=["SUCCEEDED"] * 2, register="free 3", location=files(3))


def without_source(lake: Lake) -> int:
    return sum(each.status == 404 for each in lake.aws.requests(*COPY))


def test_strangers_object_where_a_new_file_belongs_is_not_overwritten(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", files(1)[2]))
    caller = ThreadCaller(publisher, target).start()
    wait_for(lake, rule)
    key = lake.put_stranger(target, files(1)[2])
    lake.aws.faults.release(rule)
    first = caller.end()
    lake.aws.faults.advance_clock(DAY)
    second = end(publisher, target)
    assert_ends(
        lake,
        target,
        [first, second],
        ["LocationNotEmpty"] * 2,
        queries=["SUCCEEDED"],
        register="publishing 2",
        location=files(1),
        staged=["00000001-01"] * 4,
        rows=None,
    )
    assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"precious"
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [end(publisher, target)],
        ["Published"],
        queries=["SUCCEEDED"],
        register="free 3",
        location=files(1),
    )


@pytest.mark.parametrize("name", ["stranger", "00000001-01-00009"])
def test_strangers_object_that_comes_during_the_swap_is_left_there_and_stops_the_next_one(
    lake: Lake, name: str
) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = lake.aws.faults.add(Fault(HoldRequest(), *COPY, skip=2))
    caller = ThreadCaller(publisher, target).start()
    wait_for(lake, rule)
    lake.put_stranger(target, name)
    lake.aws.faults.release(rule)
    ended = [caller.end(), end(publisher, target, force=True)]
    assert_ends(
        lake,
        target,
        ended,
        ["Published", "LocationNotEmpty"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=[*files(1), name],
        rows=None,
    )


def test_swap_that_loses_every_reply_is_finished_by_looking(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", MORE)
    for operation in ("CopyObject", "DeleteObject"):
        for index in range(0, 40, 2):  # every second one, so that each is sent again
            lake.aws.faults.add(Fault(DropReply(), "s3", operation, skip=index))
    outcome = end(publisher, target)
    assert_ends(
        lake,
        target,
        [outcome],
        ["Published"],
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=files(2, 5),
        rows=range(MORE.stop),
    )


def test_table_that_can_not_be_kept_after_the_commit_wedges_nobody_and_nobody_is_told_a_success(lake: Lake) -> None:
    target, publisher = lake.target(glue_table=f"{lake.database}.wedge"), lake.publisher(PATIENT)
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), "glue", "CreateTable", times=2))
    refused, other = end(publisher, target), end(publisher, target)
    for each in (refused, other):
        assert isinstance(each, errors.AccessDenied)
        assert f"{lake.database}.wedge: AWS refused CreateTable" in str(each)
        assert f"The result is in place at {target.location}" in str(each)
    assert_ends(
        lake,
        target,
        [refused, other, end(publisher, target)],
        ["AccessDenied", "AccessDenied", "Reused"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )
    assert lake.glue.get_table(DatabaseName=lake.database, Name="wedge")


def test_release_that_is_lost_to_a_taker_is_no_loss(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = lake.aws.faults.add(on_register(HoldRequest(), skip=3))
    owner = ThreadCaller(publisher, target).start()
    wait_for(lake, rule)
    taker = done(publisher.unload(target, take_over=True))
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
