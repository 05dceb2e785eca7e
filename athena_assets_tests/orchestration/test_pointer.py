"""Mode `pointer` in Dagster: what a run records, and what the check finds."""

import dagster as dg

from athena_assets import Target
from athena_assets.core.location import parse_location
from athena_assets.orchestration import build_unload_asset
from athena_assets_tests.e2e.lake import ROWS, Lake
from athena_assets_tests.orchestration.runs import SIZES, at, partitions, recorded, run, sized
from athena_assets_tests.orchestration.test_checks import check


def pointing(lake: Lake) -> Target:
    return lake.target("numbers_now", mode="pointer", glue_table=f"{lake.database}.numbers_now")


def test_a_materialization_names_the_directory_that_readers_read(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = pointing(lake)
    asset = build_unload_asset(target)
    [metadata] = recorded(run(lake, asset, instance))
    assert metadata["dagster/uri"] == lake.pointer("numbers_now") == lake.readers(target.location)
    assert metadata["dagster/table_name"] == f"{lake.database}.numbers_now"
    assert metadata["dagster/row_count"] == ROWS
    assert metadata["dagster/column_schema"] == dg.TableSchema(columns=[dg.TableColumn("n", "bigint")])
    assert metadata["athena_assets/mode"] == "pointer"
    [reused] = recorded(run(lake, asset, instance))
    assert reused["athena_assets/reused"] is True
    assert reused["dagster/uri"] == metadata["dagster/uri"]
    [anew] = recorded(run(lake, asset, instance, force=True))
    assert anew["dagster/uri"] == lake.pointer("numbers_now") != metadata["dagster/uri"]
    assert len(lake.queries(target.location)) == 2


def test_each_partition_has_a_directory_of_its_own(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake, mode="pointer", glue_table=f"{lake.database}.sized")
    result = run(lake, build_unload_asset(target, partitions_def=SIZES), instance, partition="20")
    assert partitions(result) == ["20"]
    [metadata] = recorded(result)
    assert metadata["dagster/uri"] == lake.pointer("sized", "20") == lake.readers(at(target, "20"))


def test_the_check_passes_on_what_is_published_and_tells_of_a_table_that_is_astray(lake: Lake) -> None:
    target = pointing(lake)
    assert run(lake, build_unload_asset(target)).success
    assert run(lake, build_unload_asset(target), force=True).success
    assert check(lake, target).passed
    found = lake.glue.get_table(DatabaseName=lake.database, Name="numbers_now")["Table"]
    table = {name: found[name] for name in ("Name", "TableType", "Parameters", "PartitionKeys")}
    storage = {**found["StorageDescriptor"], "Location": f"s3://{lake.bucket}/elsewhere/"}
    lake.glue.update_table(DatabaseName=lake.database, TableInput={**table, "StorageDescriptor": storage})
    seen = check(lake, target)
    assert (seen.passed, seen.severity) == (False, "ERROR")
    assert "elsewhere" in seen.description
    lake.publisher().repair(parse_location(target.location))
    assert check(lake, target).passed


def test_the_check_tells_of_an_object_in_the_directory_and_of_a_missing_file(lake: Lake) -> None:
    target = pointing(lake)
    assert run(lake, build_unload_asset(target)).success
    place = lake.readers(target.location)
    doomed = next(iter(lake.listing(place)))
    lake.s3.put_object(Bucket=lake.bucket, Key=doomed + "-more", Body=b"theirs")
    lake.s3.delete_object(Bucket=lake.bucket, Key=doomed)
    seen = check(lake, target)
    assert not seen.passed
    assert seen.counts == (1, 0, 1)
