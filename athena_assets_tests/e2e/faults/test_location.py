"""Strangers under the location, before and after a publication: never deleted, never overwritten, and named."""

from __future__ import annotations

import pytest

from athena_assets.core.location import parse_location
from athena_assets_tests.e2e.faults.ending import PATIENT, assert_ends, end, files
from athena_assets_tests.e2e.lake import Lake


@pytest.mark.parametrize("name", ["stranger.parquet", "_hidden", "deep/below/file"])
def test_strangers_object_before_the_first_use_is_refused_and_no_query_is_paid_for(lake: Lake, name: str) -> None:
    target = lake.target()
    lake.put_stranger(target, name)
    before = lake.listing(target.location, stamped=True)
    ended = end(lake.publisher(PATIENT), target)
    assert name in str(ended)
    assert lake.listing(target.location, stamped=True) == before
    assert_ends(lake, target, [ended], ["LocationNotEmpty"], queries=[], register=None, location=[name], rows=None)


def test_strangers_object_without_a_byte_is_a_strangers_too(lake: Lake) -> None:
    target = lake.target()
    lake.s3.put_object(Bucket=lake.bucket, Key=f"{parse_location(target.location).prefix}empty", Body=b"")
    ended = end(lake.publisher(PATIENT), target)
    assert_ends(lake, target, [ended], ["LocationNotEmpty"], queries=[], register=None, location=["empty"], rows=None)


@pytest.mark.parametrize("name", ["stranger", "00000001-01-00000"])
def test_strangers_object_after_the_publication_stops_the_next_one_and_is_kept(lake: Lake, name: str) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    first = end(publisher, target)
    key = lake.put_stranger(target, name)  # beside our files, or over one of them
    ended = end(publisher, target, force=True)
    assert "was not written by this system" in str(ended)
    assert_ends(
        lake,
        target,
        [first, ended],
        ["Published", "LocationNotEmpty"],
        queries=["SUCCEEDED"],
        register="free 1",
        location={*files(1), name},
        rows=None,
    )
    assert lake.read(key) == b"precious"


def test_copy_of_our_file_made_by_hand_is_a_strangers(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    first = end(publisher, target)
    source = next(iter(lake.listing(target.location)))
    prefix = parse_location(target.location).prefix
    lake.s3.copy_object(
        Bucket=lake.bucket, Key=f"{prefix}mine.parquet", CopySource={"Bucket": lake.bucket, "Key": source}
    )
    ended = end(publisher, target, force=True)
    assert "mine" in str(ended)
    assert_ends(
        lake,
        target,
        [first, ended],
        ["Published", "LocationNotEmpty"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=[*files(1), "mine.parquet"],
        rows=None,
    )


def test_file_of_ours_that_somebody_deleted_is_no_obstacle_to_the_next_publication(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    lake.s3.delete_object(Bucket=lake.bucket, Key=next(iter(lake.listing(target.location))))
    assert_ends(
        lake,
        target,
        [end(publisher, target, force=True)],
        ["Published"],
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=files(2),
    )
