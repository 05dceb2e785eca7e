"""What callers do when the slot is held, empty results, the Glue table, scrub, and takeover by a human."""

from __future__ import annotations

from typing import Any

import pytest

from athena_assets import OutputFormat, Published, Reused, Skipped, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import DropReply, Fault
from athena_assets_tests.e2e.lake import Lake, ThreadCaller, wait_until
from athena_assets_tests.e2e.processes import processes


def test_queued_callers_run_one_after_the_other(lake: Lake) -> None:
    target, publisher = lake.target(on_conflict="queue"), lake.publisher(lease=60)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    callers = [ThreadCaller(publisher, target).start() for _ in range(3)]
    wait_until(lambda: sum(each.told("waiting") for each in callers) == 2, "two callers wait")
    lake.aws.faults.release(hold)
    outcomes = [caller.join().outcome for caller in callers]
    assert [type(each) for each in outcomes] == [Published] * 3
    assert len(lake.queries(target.location)) == 3
    assert isinstance(publisher.unload(target), Reused)  # nobody was in its way
    lake.assert_published_once(target.location)


def test_skip_returns_at_once_and_names_the_holder(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(lease=60)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: caller.told("running"), "the query runs")
    (query_id,) = lake.aws.faults.held(hold)
    skipped = publisher.unload(lake.target(target.name, on_conflict="skip"))
    assert isinstance(skipped, Skipped)
    assert skipped.query_id == query_id
    assert query_id in skipped.owner
    lake.aws.faults.release(hold)
    assert caller.join().error is None
    assert isinstance(publisher.unload(lake.target(target.name, on_conflict="skip")), Reused)
    assert len(lake.queries(target.location)) == 1


def test_a_new_glue_table_shows_the_result_to_athena_users(lake: Lake) -> None:
    target = lake.target(glue_table=f"{lake.database}.published")
    lake.publisher().unload(target)
    table = lake.glue.get_table(DatabaseName=lake.database, Name="published")["Table"]
    assert table["StorageDescriptor"]["Location"] == target.location
    assert [(each["Name"], each["Type"]) for each in table["StorageDescriptor"]["Columns"]] == [("n", "bigint")]
    again = lake.target(query="SELECT n FROM published", database=lake.database)
    lake.publisher().unload(again)
    lake.assert_published_once(again.location)


def test_each_partition_is_added_to_the_glue_table(lake: Lake) -> None:
    target = lake.target(
        "parts",
        query="SELECT n FROM numbers WHERE n < length(${partition})",
        location=f"s3://{lake.bucket}/published/parts/dt=${{partition}}/",
        glue_table=f"{lake.database}.parts",
    )
    publisher = lake.publisher()
    for key in ("a", "bb"):
        publisher.unload(target, partition=key)
    publisher.unload(target, partition="a", force=True)
    table = lake.glue.get_table(DatabaseName=lake.database, Name="parts")["Table"]
    assert table["PartitionKeys"] == [{"Name": "dt", "Type": "string"}]
    partitions = lake.glue.get_partitions(DatabaseName=lake.database, TableName="parts")["Partitions"]
    assert {each["Values"][0]: each["StorageDescriptor"]["Location"] for each in partitions} == {
        key: f"s3://{lake.bucket}/published/parts/dt={key}/" for key in ("a", "bb")
    }


def test_a_partition_that_lies_elsewhere_is_refused_before_a_query(lake: Lake) -> None:
    publisher = lake.publisher()
    target = lake.target(
        "parts",
        location=f"s3://{lake.bucket}/published/parts/dt=${{partition}}/",
        glue_table=f"{lake.database}.p",
    )
    publisher.unload(target, partition="a")
    storage = lake.glue.get_partition(DatabaseName=lake.database, TableName="p", PartitionValues=["a"])["Partition"]
    moved = {**storage["StorageDescriptor"], "Location": f"s3://{lake.bucket}/elsewhere/"}
    lake.glue.update_partition(
        DatabaseName=lake.database,
        TableName="p",
        PartitionValueList=["a"],
        PartitionInput={"Values": ["a"], "StorageDescriptor": moved},
    )
    with pytest.raises(errors.InvalidTarget, match="elsewhere"):
        publisher.unload(target, partition="a", force=True)
    assert len(lake.queries(f"s3://{lake.bucket}/published/parts/dt=a/")) == 1


def test_a_lost_glue_reply_is_harmless(lake: Lake) -> None:
    lake.aws.faults.add(Fault(DropReply(), "glue", "CreateTable"))
    target = lake.target(glue_table=f"{lake.database}.lost")
    assert isinstance(lake.publisher().unload(target), Published)
    assert lake.glue.get_table(DatabaseName=lake.database, Name="lost")
    lake.assert_published_once(target.location)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"glue_table": "{database}.numbers"}, "not at"),
        ({"glue_table": "{database}.missing", "output": OutputFormat("json")}, "does not exist"),
        ({"glue_table": "no_such_database.t"}, "the Glue database no_such_database does not exist"),
        ({"glue_table": "no_such_database.t", "mode": "pointer"}, "the Glue database no_such_database does not exist"),
        ({"glue_table": "no_such_database.t", "mode": "direct"}, "the Glue database no_such_database does not exist"),
    ],
)
def test_a_glue_table_that_can_not_be_kept_is_refused_before_a_query(
    lake: Lake, changes: dict[str, Any], match: str
) -> None:
    target = lake.target(**(changes | {"glue_table": changes["glue_table"].format(database=lake.database)}))
    with pytest.raises(errors.InvalidTarget, match=match):
        lake.publisher().unload(target)
    assert lake.queries(target.location) == []


def test_scrub_tells_missing_stray_and_foreign_objects(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    location = parse_location(target.location)
    assert publisher.scrub(location).clean
    publisher.unload(target)
    assert publisher.scrub(location).clean
    late = next(iter(lake.listing(target.location)))
    old = lake.s3.get_object(Bucket=lake.bucket, Key=late)
    body, metadata = old["Body"].read(), old["Metadata"]
    publisher.unload(target, force=True)
    lake.s3.put_object(
        Bucket=lake.bucket, Key=late, Body=body, Metadata=metadata
    )  # a paused owner's copy, arriving now
    keys_there = [key for key in lake.listing(target.location) if key != late]
    lake.s3.put_object(Bucket=lake.bucket, Key=location.prefix + "stranger", Body=b"x")
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys_there[1])
    report = publisher.scrub(location)
    assert not report.clean
    assert [each.key for each in report.stray] == [late]
    assert [each.key for each in report.foreign] == [location.prefix + "stranger"]
    assert report.missing == (keys_there[1],)


def test_scrub_says_when_a_swap_is_under_way(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    report = publisher.scrub(parse_location(target.location))
    assert not report.settled
    assert not report.clean
    lake.aws.faults.release(hold)
    assert caller.join().error is None


def test_a_human_can_take_over_without_waiting_for_the_lease(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    with processes(lake, 1, lease=3600) as (owner,):
        owner.publish(target)
        wait_until(lambda: owner.told("running"), "the query runs")
        owner.kill()
    lake.aws.faults.release(hold)
    outcome = lake.publisher(lease=60).unload(target, take_over=True)
    assert isinstance(outcome, Published)
    assert outcome.adopted
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


def test_status_reads_the_register(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    location = parse_location(target.location)
    assert publisher.status(location) is None
    publisher.unload(target)
    register = publisher.status(location)
    assert register is not None
    assert register == lake.register(target.location)
    assert keys.register_key(location).startswith("_athena_assets/v1/")
