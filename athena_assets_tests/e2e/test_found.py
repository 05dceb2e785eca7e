"""Schedules and inputs that once went wrong, found by somebody who tried to break it; each with the right end."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from typing import Any

import pytest

from athena_assets import Published, Publisher, Reused, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, HoldRequest, Respond
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, processes, wait_until


def test_a_result_whose_files_and_manifest_vanished_is_not_published_as_empty(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    with processes(lake, 1) as (owner,):
        owner.publish(target)
        wait_until(lambda: owner.told("running"), "the query runs")
        owner.kill()
    lake.aws.faults.release(hold)
    wait_until(lambda: lake.queries(target.location)[-1].state == "SUCCEEDED", "the query succeeds by itself")
    for key in (*lake.staged(target.location), *lake.listing(f"s3://{lake.bucket}/athena-results/")):
        lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    assert isinstance(publisher.unload(target), Published)
    lake.assert_published_once(target.location, range(ROWS + 10))


def test_a_late_copy_of_a_lost_publication_brings_nothing_back(lake: Lake) -> None:
    target = lake.target()
    with processes(lake, 1) as (owner,):
        rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", "published/"))
        owner.publish(target)
        wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner's first copy is on its way")
        owner.signal(signal.SIGSTOP)
        lake.s3.delete_object(Bucket=lake.bucket, Key=max(lake.staged(target.location)))
        copies = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", "published/", skip=4))
        other = ThreadCaller(lake.publisher(), target).start()
        wait_until(lambda: lake.aws.faults.hits(copies) == 1, "the next publication copies its files")
        lake.aws.faults.release(rule)  # the first owner's copy arrives in the middle of the second swap
        # The taker's own copy of the deleted file was the first to find none.
        wait_until(lambda: without_source(lake) == 2, "it finds no source")
        lake.aws.faults.release(copies)
        assert isinstance(other.join().outcome, Published)
    lake.assert_published_once(target.location)


def without_source(lake: Lake) -> int:
    return sum(each.status == 404 for each in lake.aws.requests("s3", "CopyObject", "published/"))


@pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf"), 1e-9, True, "5"])
def test_a_lease_that_is_none_is_refused(lake: Lake, lease: Any) -> None:
    with pytest.raises(errors.InvalidTarget, match="lease_seconds"):
        Publisher(lake.settings, lease_seconds=lease)


@pytest.mark.parametrize("arguments", [{"request_id": 5}, {"run": 3}, {"partition": 5}])
def test_identities_of_another_type_are_refused_and_wedge_nothing(lake: Lake, arguments: dict[str, Any]) -> None:
    target, publisher = lake.target(), lake.publisher()
    with pytest.raises(errors.InvalidTarget):
        publisher.unload(target, **arguments)
    assert lake.register(target.location) is None
    assert isinstance(publisher.unload(target), Published)


def test_a_restore_that_is_taken_over_says_so(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    publisher.unload(target, force=True)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", "published/", skip=1))
    location = parse_location(target.location)
    ended: list[object] = []

    def restore() -> None:
        try:
            ended.append(publisher.restore(location, 1, request_id="r"))
        except errors.AthenaAssetsError as error:
            ended.append(error)

    thread = threading.Thread(target=restore, daemon=True)
    thread.start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the restore copies")
    with pytest.raises(errors.SlotBusy, match="held by"):
        publisher.restore(location, 1)
    assert isinstance(lake.publisher().unload(target), Published | Reused)
    lake.aws.faults.release(rule)
    thread.join(30)
    assert isinstance(ended[0], errors.SlotBusy)
    assert publisher.restore(location, 1, request_id="r").restored == 1
    lake.assert_published_once(target.location)


def test_a_table_that_can_not_be_kept_after_the_commit_wedges_nobody(lake: Lake) -> None:
    target, publisher = lake.target(glue_table=f"{lake.database}.wedge"), lake.publisher()
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), "glue", "CreateTable"))
    with pytest.raises(errors.AccessDenied, match="CreateTable"):
        publisher.unload(target)
    lake.assert_published_once(target.location)
    assert isinstance(publisher.unload(target), Reused)
    publisher.unload(target, force=True)
    assert lake.glue.get_table(DatabaseName=lake.database, Name="wedge")


def test_a_copy_of_our_file_made_by_hand_is_not_deleted(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    source = next(iter(lake.listing(target.location)))
    mine = parse_location(target.location).prefix + "mine.parquet"
    lake.s3.copy_object(Bucket=lake.bucket, Key=mine, CopySource={"Bucket": lake.bucket, "Key": source})
    with pytest.raises(errors.LocationNotEmpty, match="mine"):
        publisher.unload(target, force=True)
    assert mine in lake.listing(target.location)


def test_another_targets_publication_is_never_adopted(lake: Lake) -> None:
    inner = lake.target("inner", location=f"s3://{lake.bucket}/published/out/inner/")
    outer = lake.target("outer", location=f"s3://{lake.bucket}/published/out/", adopt_existing=True)
    publisher = lake.publisher()
    publisher.unload(inner)
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys.register_key(parse_location(inner.location)))
    with pytest.raises(errors.LocationNotEmpty, match="out/inner"):
        publisher.unload(outer)
    assert lake.rows(inner.location) == Counter(range(ROWS))


def test_a_lost_register_is_not_made_anew(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    first = done(publisher.unload(target))
    key = keys.register_key(parse_location(target.location))
    body = lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    with pytest.raises(errors.RegisterVanished):
        publisher.unload(target)
    assert lake.register(target.location) is None
    assert len(lake.queries(target.location)) == 1
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=body)  # the object's earlier version
    assert done(publisher.unload(target)).publication == first.publication
