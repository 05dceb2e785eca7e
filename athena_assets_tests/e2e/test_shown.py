"""Glue refuses to show a result that is in place already: whoever asks next is not told a success either."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from athena_assets import Published, Publisher, Reused, Target, errors
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, Respond
from athena_assets_tests.e2e.lake import Lake

DENIED = Respond(400, "AccessDeniedException")


def parts(lake: Lake, **changes: str) -> Target:
    location = f"s3://{lake.bucket}/published/parts/d=${{partition}}/"
    return lake.target("parts", location=location, glue_table=f"{lake.database}.parts", **changes)


def shown(lake: Lake) -> set[str]:
    found = lake.glue.get_partitions(DatabaseName=lake.database, TableName="parts")["Partitions"]
    return {each["Values"][0] for each in found}


def by_unload(publisher: Publisher, target: Target, request_id: str | None) -> object:
    try:
        return publisher.unload(target, partition="b", request_id=request_id)
    except errors.AccessDenied as error:
        return error


def by_many(publisher: Publisher, target: Target, request_id: str | None) -> object:
    ids = None if request_id is None else {"b": request_id}.__getitem__
    ((key, result),) = publisher.unload_partitions(target, ["b"], request_id=ids)
    assert key == "b"
    return result


@pytest.mark.parametrize(
    ("ask", "mode"), [(by_unload, "direct"), pytest.param(by_many, "staged", marks=pytest.mark.long)]
)
def test_a_partition_that_glue_refused_is_added_before_anybody_is_told(
    lake: Lake, ask: Callable[[Publisher, Target, str | None], object], mode: str
) -> None:
    target, publisher = parts(lake, mode=mode), lake.publisher(lease=60)
    publisher.unload(target, partition="a")
    lake.aws.faults.add(Fault(DENIED, "glue", "CreatePartition", times=2))
    for request_id in ("run-1", None):
        refused = ask(publisher, target, request_id)
        assert isinstance(refused, errors.AccessDenied)
        assert f"The result is in place at s3://{lake.bucket}/published/parts/d=b/" in str(refused)
    assert shown(lake) == {"a"}
    assert isinstance(ask(publisher, target, "run-1"), Published)
    assert shown(lake) == {"a", "b"}
    assert isinstance(ask(publisher, target, None), Reused)
    assert len(lake.queries(f"s3://{lake.bucket}/published/parts/d=b/")) == 1


def test_a_partition_that_lies_elsewhere_is_told_to_each_of_many(lake: Lake) -> None:
    target, publisher = parts(lake), lake.publisher()
    publisher.unload(target, partition="a")
    table = lake.glue.get_table(DatabaseName=lake.database, Name="parts")["Table"]
    moved = {"Values": ["b"], "StorageDescriptor": {**table["StorageDescriptor"], "Location": "s3://else/where/"}}
    lake.glue.create_partition(DatabaseName=lake.database, TableName="parts", PartitionInput=moved)
    refused = by_many(publisher, target, None)
    assert isinstance(refused, errors.AccessDenied)
    assert "its partition 'b' is at s3://else/where" in str(refused)


def test_a_restored_result_is_not_told_before_glue_shows_it(lake: Lake) -> None:
    target, publisher = lake.target("t", glue_table=f"{lake.database}.t"), lake.publisher()
    location = parse_location(target.location)
    publisher.unload(target)
    publisher.unload(target, force=True)
    lake.glue.delete_table(DatabaseName=lake.database, Name="t")
    lake.aws.faults.add(Fault(DENIED, "glue", "CreateTable", times=2))
    for _ in range(2):
        with pytest.raises(errors.AccessDenied, match="The result is in place"):
            publisher.restore(location, fence=1, request_id="back")
    assert publisher.restore(location, fence=1, request_id="back").restored == 1
    assert lake.pointer("t") == target.location


def test_a_table_whose_columns_can_not_be_read_is_no_empty_result(lake: Lake) -> None:
    target, publisher = lake.target("t", glue_table=f"{lake.database}.t"), lake.publisher()
    publisher.unload(target)
    lake.glue.delete_table(DatabaseName=lake.database, Name="t")
    for key in lake.listing(target.location):
        lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"no Parquet")
    with pytest.raises(errors.AccessDenied, match="its columns could not be read"):
        publisher.unload(target)


@pytest.mark.parametrize("grace", [float("nan"), -1.0, float("-inf")])
def test_a_grace_that_is_no_number_of_seconds_is_refused(lake: Lake, grace: float) -> None:
    with pytest.raises(errors.InvalidTarget, match="is no number of seconds"):
        lake.publisher().collect(parse_location(lake.target().location), delete=True, grace=grace)
