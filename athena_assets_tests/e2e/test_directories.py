"""Mode `pointer`: what is collected of the directories that nobody is sent to, and what never is."""

from __future__ import annotations

from collections import Counter

import pytest

from athena_assets import errors, read_manifest
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, Respond
from athena_assets_tests.e2e.lake import Lake, ThreadCaller, wait_until
from athena_assets_tests.e2e.test_pointer import glue, numbers


def publish(lake: Lake, *sizes: int, **changes: object) -> list[str]:
    """One publication of `t` after another; where each lies."""
    places = []
    for size in sizes:
        lake.publisher().unload(numbers(lake, "t", size, **changes))
        places.append(lake.readers(lake.target("t").location))
    return places


def sizes_left(lake: Lake, places: list[str]) -> list[int]:
    return [sum(lake.rows(place).values()) for place in places]


def test_a_replaced_result_can_be_read_for_the_grace_period(lake: Lake) -> None:
    location = parse_location(lake.target("t").location)
    [first] = publish(lake, 400, keep_previous=0)
    read = read_manifest(numbers(lake, "t", 400), settings=lake.settings)
    places = [first, *publish(lake, 500, 600, 700, keep_previous=0)]
    assert lake.publisher().collect(location, delete=True).objects == ()
    assert sizes_left(lake, places) == [400, 500, 600, 700]
    counted: Counter[int] = Counter()
    for file in read.files:
        counted += lake.rows(file.uri)
    assert counted == Counter(range(400))
    shown = lake.publisher().collect(location, delete=False, grace=0)
    assert {each.key for each in shown.directories} == {key for place in places[:3] for key in lake.listing(place)}
    assert sizes_left(lake, places) == [400, 500, 600, 700]
    assert lake.publisher().collect(location, delete=True, grace=0) == shown
    assert sizes_left(lake, places) == [0, 0, 0, 700]
    assert lake.publisher().collect(location, delete=True, grace=0).objects == ()
    register = lake.register(str(location))
    assert register is not None
    assert register.retired == ()
    lake.assert_published_once(str(location), range(700))


def test_an_owner_collects_what_is_over_the_grace_period(lake: Lake) -> None:
    places = publish(lake, 400, 500, 600, 700, keep_previous=1, grace_period=0)
    assert sizes_left(lake, places) == [0, 0, 600, 700]
    lake.assert_published_once(lake.target("t").location, range(700))


def test_an_owner_with_glue_collects_too(lake: Lake) -> None:
    places = []
    for size in (400, 500, 600):
        lake.publisher().unload(glue(lake, "t", size, keep_previous=0, grace_period=0))
        places.append(lake.pointer("t"))
    assert sizes_left(lake, places) == [0, 0, 600]


def test_collection_that_fails_takes_nothing_from_a_publication(lake: Lake) -> None:
    publish(lake, 400, keep_previous=0, grace_period=0)
    rule = lake.aws.faults.add(Fault(Respond(403, "AccessDenied"), "s3", "DeleteObject", times=None))
    places = publish(lake, 500, 600, keep_previous=0, grace_period=0)
    assert lake.aws.faults.hits(rule) > 0
    lake.assert_published_once(lake.target("t").location, range(600))
    lake.aws.faults.clear()
    lake.publisher().collect(parse_location(lake.target("t").location), delete=True)
    assert sizes_left(lake, places) == [0, 600]


def test_a_directory_that_glue_names_is_never_collected(lake: Lake) -> None:
    publisher = lake.publisher()
    location = parse_location(lake.target("t").location)
    places = []
    for size in (400, 500, 600):
        publisher.unload(glue(lake, "t", size, keep_previous=0))
        places.append(lake.pointer("t"))
    found = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    table = {name: found[name] for name in ("Name", "TableType", "Parameters", "PartitionKeys")}
    for slashless in (places[0].rstrip("/"), places[0]):
        storage = {**found["StorageDescriptor"], "Location": slashless}
        lake.glue.update_table(DatabaseName=lake.database, TableInput={**table, "StorageDescriptor": storage})
        publisher.collect(location, delete=True, grace=0)
        assert sizes_left(lake, places) == [400, 0, 600]
    publisher.unload(numbers(lake, "t", 700, keep_previous=0))  # without the table, whose readers are still there
    publisher.collect(location, delete=True, grace=0)
    assert sizes_left(lake, places) == [400, 0, 0]


def test_nothing_is_collected_beside_an_attempt(lake: Lake) -> None:
    places = publish(lake, 400, 500, 600, keep_previous=0)
    location = parse_location(lake.target("t").location)
    publisher = lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=str(location), at="written")
    caller = ThreadCaller(publisher, numbers(lake, "t", 700, keep_previous=0)).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query has written its files")
    before = lake.listing(str(location), stamped=True)
    assert publisher.collect(location, delete=True, grace=0).objects == ()
    assert lake.listing(str(location), stamped=True) == before
    lake.aws.faults.release(hold)
    assert caller.join().error is None
    lake.assert_published_once(str(location), range(700))
    assert sizes_left(lake, places) == [400, 500, 600]


def test_a_failed_attempt_leaves_garbage_and_no_dirty_location(lake: Lake) -> None:
    target, publisher = numbers(lake, "t", 1000, retries=0), lake.publisher()
    location = parse_location(target.location)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=3)
    with pytest.raises(errors.QueryInternalError):
        publisher.unload(target)
    left = set(lake.listing(target.location))
    assert len(left) == 3
    assert {each.key for each in publisher.scrub(location).staged} == left
    assert publisher.scrub(location).clean
    assert {each.key for each in publisher.collect(location, delete=False).directories} == left
    publisher.unload(target)  # the next owner collects it, whatever the grace period
    assert not left & set(lake.listing(target.location))
    lake.assert_published_once(target.location)


def test_an_attempt_that_was_tried_again_is_collected(lake: Lake) -> None:
    target = lake.target(mode="pointer")
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=3)
    lake.publisher().unload(target)
    assert len(lake.queries(target.location)) == 2
    assert set(lake.listing(target.location)) == set(lake.listing(lake.readers(target.location)))


@pytest.mark.long
def test_a_strangers_object_in_a_directory_of_ours_stays(lake: Lake) -> None:
    publisher = lake.publisher()
    target = numbers(lake, "t", 1000, retries=0, keep_previous=0)
    location = parse_location(target.location)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=3)
    with pytest.raises(errors.QueryInternalError):
        publisher.unload(target)
    failed = keys.directory_of(location, min(lake.listing(target.location)))
    assert failed is not None
    register = lake.register(target.location)
    assert register is not None
    written = lake.s3.head_object(Bucket=lake.bucket, Key=keys.register_key(location))["LastModified"]

    def put(key: str) -> bool:
        """Until it is later than the register by S3's clock, which has whole seconds."""
        lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"precious")
        stamp = lake.s3.head_object(Bucket=lake.bucket, Key=key)["LastModified"]
        return bool(stamp.replace(microsecond=0) > written.replace(microsecond=0))

    strangers = [f"{failed}stranger"]
    wait_until(lambda: put(strangers[0]), "it is a later object")
    ours = [key for key in lake.listing(target.location) if key.startswith(failed) and key not in strangers]
    assert {each.key for each in publisher.collect(location, delete=True).objects} == set(ours)

    places = publish(lake, 500, keep_previous=0)
    replaced = places[0].removeprefix(f"s3://{lake.bucket}/")
    overwritten = min(lake.listing(places[0]))
    places += publish(lake, 600, keep_previous=0)
    strangers += [f"{replaced}stranger", overwritten]
    for key in strangers[1:]:
        lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"precious")
    publisher.collect(location, delete=True, grace=0)
    assert list(lake.listing(places[0])) == sorted(strangers[1:])
    for key in strangers:
        assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"precious"
    lake.assert_published_once(target.location, range(600))
