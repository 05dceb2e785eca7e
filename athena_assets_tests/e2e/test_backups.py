"""Replaced results are kept and can be restored; what nobody needs is collected; foreign objects can be adopted."""

from __future__ import annotations

from collections import Counter

import pytest

from athena_assets import Published, Reused, errors
from athena_assets.aws.driver import Driver, new_owner
from athena_assets.aws.session import AwsClients
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.core.restore import restore
from athena_assets.core.slot import Slot
from athena_assets.local import DropReply, Fault
from athena_assets_tests.e2e.lake import LEASE, Lake


def kept(lake: Lake, location: str) -> Counter[int]:
    """The rows under the slot's backup prefix."""
    return lake.rows(f"s3://{lake.bucket}/{keys.backup_root(parse_location(location))}")


def publish_sizes(lake: Lake, *sizes: int, keep: int = 1) -> str:
    """One publication after another, each of the numbers below a size; the location."""
    name = f"t{keep}_{len(sizes)}"
    location = ""
    for size in sizes:
        target = lake.target(name, query=f"SELECT n FROM numbers WHERE n < {size}", keep_previous=keep)
        assert isinstance(lake.publisher().unload(target), Published)
        location = target.location
    return location


@pytest.mark.parametrize(
    ("keep", "expected"),
    [(0, Counter[int]()), (1, Counter(range(600))), (2, Counter(range(600)) + Counter(range(500)))],
)
def test_keep_previous_says_how_many_results_are_kept(lake: Lake, keep: int, expected: Counter[int]) -> None:
    location = publish_sizes(lake, 400, 500, 600, 700, keep=keep)
    lake.assert_published_once(location, range(700))
    assert kept(lake, location) == expected


def test_restore_publishes_the_kept_result_and_keeps_the_present_one(lake: Lake) -> None:
    location = publish_sizes(lake, 500, 600)
    publisher = lake.publisher()
    restored = publisher.restore(parse_location(location), 1)
    assert restored.fence == 3
    assert restored.restored == 1
    lake.assert_published_once(location, range(500))
    assert kept(lake, location) == Counter(range(600))
    assert len(lake.queries(location)) == 2
    publisher.restore(parse_location(location), 2)
    lake.assert_published_once(location, range(600))
    assert kept(lake, location) == Counter(range(500))


def test_restore_with_the_same_request_id_is_done_once(lake: Lake) -> None:
    location = parse_location(publish_sizes(lake, 500, 600))
    first = lake.publisher().restore(location, 1, request_id="r")
    assert lake.publisher().restore(location, 1, request_id="r") == first


def test_what_is_not_kept_can_not_be_restored(lake: Lake) -> None:
    location = publish_sizes(lake, 400, 500, 600)
    with pytest.raises(errors.NotKept, match="kept: 2"):
        lake.publisher().restore(parse_location(location), 1)
    root = keys.backup_root(parse_location(location))
    doomed = next(iter(lake.listing(f"s3://{lake.bucket}/{root}")))
    lake.s3.delete_object(Bucket=lake.bucket, Key=doomed)
    with pytest.raises(errors.NotKept, match="kept files"):
        lake.publisher().restore(parse_location(location), 2)
    lake.assert_published_once(location, range(600))


def test_a_restore_that_dies_is_finished_by_the_next_caller(lake: Lake) -> None:
    location = publish_sizes(lake, 500, 600)
    lake.aws.faults.add(Fault(DropReply(), "s3", "CopyObject", "published/", times=None))
    publisher = lake.publisher()
    lake.aws.faults.add(Fault(DropReply(), "s3", "HeadObject", "published/", times=None))
    slot = Slot(parse_location(location), "restore", patience=0.5)
    steps = restore(slot, fence=1, owner=new_owner("r"), lease=LEASE)
    with pytest.raises((errors.ServiceUnavailable, errors.OutcomeUnknown)):
        Driver(AwsClients(lake.settings), slot).run(steps)
    lake.aws.faults.clear()
    target = lake.target("t1_2", query="SELECT n FROM numbers WHERE n < 500")
    outcome = publisher.unload(target)
    assert isinstance(outcome, Published | Reused)
    assert outcome.publication.restored == 1
    lake.assert_published_once(location, range(500))
    assert len(lake.queries(location)) == 2


def test_adopted_objects_are_moved_not_lost(lake: Lake) -> None:
    target, publisher = lake.target(adopt_existing=True), lake.publisher()
    prefix = parse_location(target.location).prefix
    lake.s3.put_object(Bucket=lake.bucket, Key=prefix + "deep/old.csv", Body=b"precious", Metadata={"by": "hand"})
    publisher.unload(target)
    lake.assert_published_once(target.location)
    moved = keys.adopted_prefix(parse_location(target.location), 1) + "deep/old.csv"
    found = lake.s3.get_object(Bucket=lake.bucket, Key=moved)
    assert found["Body"].read() == b"precious"
    assert found["Metadata"] == {"by": "hand"}
    lake.s3.put_object(Bucket=lake.bucket, Key=prefix + "later.csv", Body=b"foreign")
    with pytest.raises(errors.LocationNotEmpty, match=r"later\.csv"):
        publisher.unload(target, force=True)


def test_collect_shows_first_and_deletes_where_asked(lake: Lake) -> None:
    target, publisher = lake.target(retries=0), lake.publisher()
    location = parse_location(target.location)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=3)
    with pytest.raises(errors.QueryInternalError):
        publisher.unload(target)
    assert {each.key for each in publisher.collect(location, delete=False).staging} == set(lake.staged(target.location))
    assert len(lake.staged(target.location)) == 3
    publisher.collect(location, delete=True)
    assert lake.staged(target.location) == {}
    assert publisher.collect(location, delete=True).objects == ()
