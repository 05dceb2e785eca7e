"""The checks of what readers see, against what is planted at, and taken from, the location."""

import io
import threading
from dataclasses import replace
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from athena_assets import Target, errors
from athena_assets.core.keys import published_name
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, HoldRequest, Respond
from athena_assets.orchestration import build_unload_asset, build_unload_checks
from athena_assets.orchestration.checks import EXAMPLES, MOST_PARTITIONS
from athena_assets_tests.e2e.lake import ROWS, ROWS_PER_FILE, Lake, wait_until
from athena_assets_tests.orchestration.runs import SIZES, at, resource, run, sized


class Checked:
    """The one evaluation of a run."""

    def __init__(self, evaluation: dg.AssetCheckEvaluation) -> None:
        self.passed = evaluation.passed
        self.severity = evaluation.severity.value
        self.description = evaluation.description or ""
        self.metadata: dict[str, Any] = {
            key.removeprefix("athena_assets/"): value.value for key, value in evaluation.metadata.items()
        }

    @property
    def counts(self) -> tuple[int, int, int]:
        """Missing, stray, foreign."""
        return self.metadata["missing"], self.metadata["stray"], self.metadata["foreign"]


def check(
    lake: Lake,
    target: Target,
    instance: dg.DagsterInstance | None = None,
    *,
    name: str = "scrub",
    asset: dg.AssetsDefinition | None = None,
    most_partitions: int = MOST_PARTITIONS,
    **arguments: Any,
) -> Checked:
    """Runs the check alone, or after its asset if that is given."""
    checks = build_unload_checks(target, checks=[name], most_partitions=most_partitions)
    selection: dg.AssetSelection = dg.AssetSelection.checks(*checks)
    if asset is not None:
        selection |= dg.AssetSelection.assets(asset)
    result = dg.materialize(
        [asset or build_unload_asset(target, partitions_def=SIZES if target.partitioned else None), *checks],
        instance=instance,
        selection=selection,
        resources={"athena": resource(lake)},
        **arguments,
    )
    [evaluation] = result.get_asset_check_evaluations()
    return Checked(evaluation)


@pytest.fixture
def target(lake: Lake) -> Target:
    """Published."""
    target = lake.target()
    assert run(lake, build_unload_asset(target)).success
    return target


def plant(lake: Lake, location: str, name: str = "planted", **arguments: Any) -> str:
    """A file of somebody else."""
    key = parse_location(location).prefix + name
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"rows", **arguments)
    return f"s3://{lake.bucket}/{key}"


def plant_stray(lake: Lake, location: str) -> str:
    """What a paused owner's late copy would leave: our metadata, and no publication that has the key."""
    one = next(iter(lake.listing(location)))
    body = lake.s3.get_object(Bucket=lake.bucket, Key=one)["Body"].read()
    key = parse_location(location).prefix + published_name(99, 1, 0)
    metadata = {"athena-assets-slot": location, "athena-assets-source": "99-1-0-etag"}
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=body, Metadata=metadata)
    return f"s3://{lake.bucket}/{key}"


def test_a_result_as_published_passes(lake: Lake) -> None:
    target = lake.target()
    found = check(lake, target, asset=build_unload_asset(target))
    assert found.passed
    assert found.metadata == {"missing": 0, "stray": 0, "foreign": 0}


def test_a_location_that_nothing_was_published_to_passes(lake: Lake) -> None:
    assert check(lake, lake.target()).passed


def test_a_stray_that_doubles_rows_fails(lake: Lake, target: Target) -> None:
    planted = plant_stray(lake, target.location)
    found = check(lake, target)
    assert (found.passed, found.severity, found.counts) == (False, "ERROR", (0, 1, 0))
    assert found.metadata["stray_examples"] == [planted]
    assert found.description == f"{target.location}: 0 missing, 1 stray, 0 foreign."


def test_a_strangers_file_fails(lake: Lake, target: Target) -> None:
    planted = plant(lake, target.location)
    found = check(lake, target)
    assert (found.passed, found.severity, found.counts) == (False, "ERROR", (0, 0, 1))
    assert found.metadata["foreign_examples"] == [planted]


def test_a_deleted_file_fails(lake: Lake, target: Target) -> None:
    key = next(iter(lake.listing(target.location)))
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    found = check(lake, target)
    assert (found.passed, found.severity, found.counts) == (False, "ERROR", (1, 0, 0))
    assert found.metadata["missing_examples"] == [f"s3://{lake.bucket}/{key}"]


def test_a_file_that_somebody_replaced_fails(lake: Lake, target: Target) -> None:
    key = next(iter(lake.listing(target.location)))
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"others' rows")
    assert check(lake, target).counts == (1, 0, 1)


def test_the_check_changes_nothing(lake: Lake, target: Target) -> None:
    plant(lake, target.location)
    plant_stray(lake, target.location)
    before = lake.listing(f"s3://{lake.bucket}/", stamped=True)
    assert not check(lake, target).passed
    assert lake.listing(f"s3://{lake.bucket}/", stamped=True) == before


def test_many_differences_are_counted_and_some_are_named(lake: Lake, target: Target) -> None:
    for number in range(EXAMPLES + 5):
        plant(lake, target.location, f"planted-{number:02d}")
    found = check(lake, target)
    assert found.counts == (0, 0, EXAMPLES + 5)
    assert len(found.metadata["foreign_examples"]) == EXAMPLES


def test_a_query_that_runs_meanwhile_hides_nothing(lake: Lake, target: Target) -> None:
    """It writes to staging: what lies at the location is still the last publication's."""
    hold = lake.aws.faults.hold_queries()
    holder = threading.Thread(target=run, args=(lake, build_unload_asset(target)), kwargs={"force": True}, daemon=True)
    holder.start()
    wait_until(lambda: lake.aws.faults.held(hold), "a query is held")
    assert check(lake, target).passed
    plant_stray(lake, target.location)
    found = check(lake, target)
    assert (found.severity, found.counts) == ("ERROR", (0, 1, 0))
    lake.aws.faults.release(hold)
    holder.join(30)


def test_a_swap_that_is_under_way_is_a_warning(lake: Lake, target: Target) -> None:
    # The old files are gone by then, and none of the new ones is there.
    hold = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", key_contains="published/", times=None))
    lake.put_rows("numbers", "part-1.parquet", range(1_000, 1_005))
    swapping = threading.Thread(target=run, args=(lake, build_unload_asset(target)), daemon=True)
    swapping.start()
    wait_until(lambda: (found := lake.register(target.location)) and found.state == "publishing", "the swap began")
    wait_until(lambda: len(lake.listing(target.location)) == 0, "the old files are gone")
    found = check(lake, target)
    assert (found.passed, found.severity) == (False, "WARN")
    assert found.counts[0] > 0
    assert "is being changed" in found.description
    assert found.metadata["owner"]
    lake.aws.faults.release(hold)
    swapping.join(30)
    assert check(lake, target).passed


def test_a_blocked_slot_fails(lake: Lake) -> None:
    target = lake.target(mode="direct")
    lake.aws.faults.fail_queries(after_files=1, error_category=2, retryable=False)
    assert not run(lake, build_unload_asset(target)).success
    found = check(lake, target)
    assert (found.passed, found.severity) == (False, "ERROR")
    assert "is blocked" in found.description


def test_a_direct_query_that_writes_is_a_warning(lake: Lake) -> None:
    target = lake.target(mode="direct")
    hold = lake.aws.faults.hold_queries(at="written")
    holder = threading.Thread(target=run, args=(lake, build_unload_asset(target)), daemon=True)
    holder.start()
    wait_until(lambda: lake.aws.faults.held(hold), "the files are written")
    wait_until(lambda: (found := lake.register(target.location)) and found.state == "running", "its id is noted")
    found = check(lake, target)
    assert (found.passed, found.severity) == (False, "WARN")
    lake.aws.faults.release(hold)
    holder.join(30)
    assert check(lake, target).passed


# --- partitions ------------------------------------------------------------------------------------------------------

RANGE = {"dagster/asset_partition_range_start": "10", "dagster/asset_partition_range_end": "20"}


@pytest.fixture
def published(lake: Lake, instance: dg.DagsterInstance) -> Target:
    """The partitions 10 and 20, and a stray in the second."""
    target = sized(lake)
    assert run(lake, build_unload_asset(target, partitions_def=SIZES), instance, tags=RANGE).success
    plant_stray(lake, at(target, "20"))
    return target


def test_the_partitions_of_the_run_are_checked(lake: Lake, instance: dg.DagsterInstance, published: Target) -> None:
    asset = build_unload_asset(published, partitions_def=SIZES)
    one = check(lake, published, instance, asset=asset, partition_key="10")
    assert one.passed
    assert (one.metadata["partitions_checked"], one.metadata["partitions_left_out"]) == (1, 0)
    both = check(lake, published, instance, asset=asset, tags=RANGE)
    assert (both.passed, both.counts, both.metadata["partitions_checked"]) == (False, (0, 1, 0), 2)
    assert both.description.startswith(at(published, "20"))


def test_without_partitions_of_its_own_a_run_checks_all_that_were_materialized(
    lake: Lake, instance: dg.DagsterInstance, published: Target
) -> None:
    plant(lake, at(published, "30"))  # never materialized: not ours to look at
    found = check(lake, published, instance)
    assert (found.passed, found.counts) == (False, (0, 1, 0))
    assert (found.metadata["partitions_checked"], found.metadata["partitions_left_out"]) == (2, 0)


def test_of_many_partitions_the_last_ones_are_checked(
    lake: Lake, instance: dg.DagsterInstance, published: Target
) -> None:
    found = check(lake, published, instance, most_partitions=1)
    assert (found.metadata["partitions_checked"], found.metadata["partitions_left_out"]) == (1, 1)
    assert found.counts == (0, 1, 0)  # of the partition 20


def put_rows(lake: Lake, uri: str, rows: int) -> None:
    """Writes another file over a published one."""
    body = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64())}), body)
    lake.s3.put_object(Bucket=lake.bucket, Key=uri.removeprefix(f"s3://{lake.bucket}/"), Body=body.getvalue())


def test_the_rows_of_all_files_are_counted_and_compared_with_the_querys(lake: Lake, target: Target) -> None:
    found = check(lake, target, name="row_count")
    assert found.passed
    assert (found.metadata["rows_counted"], found.metadata["rows_given"]) == (ROWS, ROWS)
    put_rows(lake, f"s3://{lake.bucket}/{min(lake.listing(target.location))}", ROWS_PER_FILE - 1)
    found = check(lake, target, name="row_count")
    assert (found.passed, found.severity) == (False, "ERROR")
    assert f"{target.location} holds {ROWS - 1} rows, and its query gave {ROWS}." in found.description


def test_a_file_that_is_gone_is_not_counted_as_empty(lake: Lake, target: Target) -> None:
    lake.s3.delete_object(Bucket=lake.bucket, Key=min(lake.listing(target.location)))
    found = check(lake, target, name="row_count")
    assert (found.passed, found.severity) == (False, "WARN")
    assert "were not counted" in found.description
    assert "is gone" in found.description


def test_rows_are_counted_in_each_partition(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake)
    asset = build_unload_asset(target, partitions_def=SIZES)
    for size in ("10", "20"):
        assert run(lake, asset, instance, partition=size).success
    found = check(lake, target, instance, name="row_count")
    assert found.passed
    assert (found.metadata["rows_counted"], found.metadata["partitions_checked"]) == (30, 2)
    put_rows(lake, f"s3://{lake.bucket}/{min(lake.listing(at(target, '20')))}", 1)
    found = check(lake, target, instance, name="row_count")
    assert found.description.startswith(f"{at(target, '20')} holds 1 rows, and its query gave 20.")


def test_a_row_count_that_athena_did_not_tell_is_not_made_up(lake: Lake) -> None:
    lake.aws.faults.add(
        Fault(Respond(500, "InternalServerException"), operation="GetQueryRuntimeStatistics", times=None)
    )
    target = lake.target()
    assert run(lake, build_unload_asset(target)).success
    found = check(lake, target, name="row_count")
    assert found.passed
    assert found.description == f"{target.location} holds {ROWS} rows; Athena did not tell how many its query gave."


def test_a_changed_column_is_told_by_every_check_until_the_next_publication(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    target = lake.target(query="SELECT n, n AS old, n AS size FROM numbers")
    first = check(lake, target, instance, name="schema_change", asset=build_unload_asset(target))
    assert (first.passed, first.description) == (True, "There is nothing to compare with.")
    changed = replace(target, query="SELECT n, 'x' AS size, n AS new FROM numbers")
    asset = build_unload_asset(changed)
    told = ["new bigint is new", "old bigint is gone", "size was bigint and is string"]
    for _ in range(2):  # the second run reuses what the first published
        found = check(lake, changed, instance, name="schema_change", asset=asset)
        assert (found.passed, found.severity) == (False, "WARN")
        assert found.metadata["changes"] == told
    assert check(lake, changed, instance, name="schema_change").metadata["changes"] == told
    assert run(lake, asset, instance, force=True).success
    assert check(lake, changed, instance, name="schema_change").passed


def test_the_order_of_columns_is_part_of_the_schema(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(query="SELECT n, n AS m FROM numbers")
    assert run(lake, build_unload_asset(target), instance).success
    changed = replace(target, query="SELECT n AS m, n FROM numbers")
    found = check(lake, changed, instance, name="schema_change", asset=build_unload_asset(changed))
    assert found.metadata["changes"] == ["the order was n, m and is m, n"]


def test_partitions_of_one_run_are_each_compared_with_the_publication_before_the_run(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    target = sized(lake)
    assert run(lake, build_unload_asset(target, partitions_def=SIZES), instance, partition="10").success
    changed = replace(target, query="SELECT n, n AS more FROM numbers WHERE n < CAST(${partition} AS BIGINT)")
    several = build_unload_asset(changed, partitions_def=SIZES, backfill_policy=dg.BackfillPolicy.single_run())
    range_tags = {"dagster/asset_partition_range_start": "20", "dagster/asset_partition_range_end": "30"}
    found = check(lake, changed, instance, name="schema_change", asset=several, tags=range_tags)
    assert found.metadata["changes"] == ["more bigint is new"]


def test_a_format_that_tells_no_types_has_nothing_to_compare(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(output="json")
    asset = build_unload_asset(target)
    for force in (False, True):
        assert run(lake, asset, instance, force=force).success
    found = check(lake, target, instance, name="schema_change")
    assert (found.passed, found.description) == (True, "There is nothing to compare with.")


def test_a_blocking_check_keeps_what_depends_on_the_asset_from_running(lake: Lake, target: Target) -> None:
    asset = build_unload_asset(target)
    checks = build_unload_checks(target, blocking=["scrub"])

    @dg.asset(deps=[asset])
    def reader() -> None: ...

    def both() -> dg.ExecuteInProcessResult:
        return dg.materialize([asset, *checks, reader], resources={"athena": resource(lake)}, raise_on_error=False)

    result = both()
    assert {each.check_name: each.passed for each in result.get_asset_check_evaluations()} == {
        "scrub": True,
        "row_count": True,
        "schema_change": True,
    }
    assert len(result.asset_materializations_for_node("reader")) == 1
    plant(lake, target.location)
    result = both()
    assert not result.success
    assert not result.get_asset_materialization_events() or not any(
        event.asset_key == dg.AssetKey("reader") for event in result.get_asset_materialization_events()
    )


@pytest.mark.parametrize("arguments", [{"checks": ["scrap"]}, {"checks": ["scrub"], "blocking": ["row_count"]}])
def test_a_check_that_there_is_not_is_refused_by_name(arguments: dict[str, Any]) -> None:
    target = Target(name="mart", query="SELECT 1 AS one", location="s3://lake/mart/")
    with pytest.raises(errors.InvalidTarget, match=r"mart.*'(scrap|row_count)' is none of its checks"):
        build_unload_checks(target, **arguments)
