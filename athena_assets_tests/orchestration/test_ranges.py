"""Runs of several partitions: published at once, recorded as they commit, and none lost for another's failure."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from athena_assets import Target
from athena_assets.orchestration import build_unload_asset
from athena_assets_tests.e2e.lake import Lake, wait_until
from athena_assets_tests.orchestration.runs import SIZES, at, failure_of, partitions, recorded, run, sized

RANGE = {"dagster/asset_partition_range_start": "10", "dagster/asset_partition_range_end": "30"}
KEYS = SIZES.get_partition_keys()


def asset_of(target: Target, **arguments: Any) -> dg.AssetsDefinition:
    return build_unload_asset(target, partitions_def=SIZES, **arguments)


def queries(lake: Lake, target: Target) -> dict[str, list[str]]:
    return {key: [query.state for query in lake.queries(at(target, key))] for key in KEYS}


def assert_all_published_once(lake: Lake, target: Target) -> None:
    for key in KEYS:
        lake.assert_published_once(at(target, key), range(int(key)))


@contextmanager
def in_the_background(
    lake: Lake, asset: dg.AssetsDefinition, instance: dg.DagsterInstance, **arguments: Any
) -> Iterator[list[dg.ExecuteInProcessResult]]:
    """A run in a thread; its result is in the list once it has ended."""
    results: list[dg.ExecuteInProcessResult] = []

    def work() -> None:
        results.append(run(lake, asset, instance, **arguments))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield results
    finally:
        lake.aws.faults.clear()
        thread.join(60)
        assert not thread.is_alive()


def test_each_partition_is_recorded_with_its_own_figures(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake)
    result = run(lake, asset_of(target), instance, tags=RANGE)
    assert result.success
    rows = {
        (partition, metadata["dagster/partition_row_count"], metadata["dagster/uri"])
        for partition, metadata in zip(partitions(result), recorded(result), strict=True)
    }
    assert rows == {(key, int(key), at(target, key)) for key in KEYS}
    assert {metadata["athena_assets/request_id"] for metadata in recorded(result)} == {
        f"{result.run_id}/sized/partition={key}" for key in KEYS
    }
    assert_all_published_once(lake, target)


def test_the_story_names_the_partition_in_each_line(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake)
    result = run(lake, asset_of(target), instance, tags=RANGE)
    told = [event.user_message for event in instance.all_logs(result.run_id)]
    for key in KEYS:
        [query] = lake.queries(at(target, key))
        assert f"{key}: running: query {query.query_id}" in told


def test_the_log_says_how_many_are_published(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.aws.faults.fail_queries(sql_contains="'20'", error_category=2, retryable=False)
    result = run(lake, asset_of(sized(lake)), instance, tags=RANGE)
    assert not result.success
    told = [event.user_message for event in instance.all_logs(result.run_id)]
    assert [line for line in told if line.endswith(" of 3 published")] == ["1 of 3 published", "2 of 3 published"]


def test_partitions_are_published_at_once_and_recorded_while_others_still_run(lake: Lake, tmp_path: Path) -> None:
    target = sized(lake)
    (tmp_path / "dagster.yaml").touch()
    hold = lake.aws.faults.hold_queries()
    only = lake.aws.faults.hold_queries(sql_contains="sized%2F10", at="checked")
    with (
        dg.DagsterInstance.from_config(str(tmp_path)) as of_the_run,
        dg.DagsterInstance.from_config(str(tmp_path)) as instance,
        in_the_background(lake, asset_of(target), of_the_run, tags=RANGE) as results,
    ):
        wait_until(lambda: len(lake.aws.faults.held(hold)) == 3, "all queries run at once")
        lake.aws.faults.release(hold)
        key = dg.AssetKey("sized")

        def stored() -> set[str | None]:
            found = instance.fetch_materializations(key, limit=10).records
            return {record.partition_key for record in found}

        wait_until(lambda: stored() == {"20", "30"}, "the others are stored")
        assert len(lake.aws.faults.held(only)) == 1
        assert results == []
        lake.aws.faults.release(only)
        wait_until(lambda: stored() == set(KEYS), "the last one is stored")
    assert results[0].success
    assert_all_published_once(lake, target)


def test_a_failed_partition_is_named_and_loses_none_of_the_others(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake)
    lake.aws.faults.fail_queries(sql_contains="'20'", error_category=2, retryable=False)
    result = run(lake, asset_of(target, retry_policy=dg.RetryPolicy(max_retries=2)), instance, tags=RANGE)
    assert set(partitions(result)) == {"10", "30"}
    assert len(partitions(result)) == 2
    description, metadata = failure_of(result)
    assert description.startswith("1 of 3 partitions were not published.\n20: QueryUserError: ")
    [failed] = lake.queries(at(target, "20"))
    assert metadata["athena_assets/failed_partitions"]["20"]["query_id"] == failed.query_id
    # Not tried again: a user's error does not pass by itself.
    assert queries(lake, target) == {"10": ["SUCCEEDED"], "20": ["FAILED"], "30": ["SUCCEEDED"]}


def test_a_retry_runs_only_what_is_missing(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake, retries=0, reuse="never")
    lake.aws.faults.fail_queries(sql_contains="'20'", times=1)
    result = run(lake, asset_of(target, retry_policy=dg.RetryPolicy(max_retries=1)), instance, tags=RANGE)
    assert result.success
    assert set(partitions(result)) == set(KEYS)
    assert queries(lake, target) == {"10": ["SUCCEEDED"], "20": ["FAILED", "SUCCEEDED"], "30": ["SUCCEEDED"]}
    assert_all_published_once(lake, target)


def test_another_run_of_the_range_runs_only_what_is_missing(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake)
    lake.aws.faults.fail_queries(sql_contains="'20'", error_category=2, retryable=False, times=1)
    assert not run(lake, asset_of(target), instance, tags=RANGE).success
    again = run(lake, asset_of(target), instance, tags=RANGE)
    assert again.success
    reused = {
        (partition, metadata["athena_assets/reused"])
        for partition, metadata in zip(partitions(again), recorded(again), strict=True)
    }
    assert reused == {("10", True), ("20", False), ("30", True)}
    assert queries(lake, target) == {"10": ["SUCCEEDED"], "20": ["FAILED", "SUCCEEDED"], "30": ["SUCCEEDED"]}
    assert_all_published_once(lake, target)


def test_a_skipped_partition_is_not_recorded_and_the_others_are(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake, on_conflict="skip")
    asset = asset_of(target)
    hold = lake.aws.faults.hold_queries(sql_contains="sized%2F20")
    with dg.DagsterInstance.ephemeral() as elsewhere, in_the_background(lake, asset, elsewhere, partition="20"):
        [query_id] = wait_until(lambda: lake.aws.faults.held(hold), "the partition is held by another run")
        wait_until(lambda: (found := lake.register(at(target, "20"))) and found.state == "running", "")
        result = run(lake, asset, instance, tags=RANGE)
    assert result.success
    assert sorted(filter(None, partitions(result))) == ["10", "30"]
    [line] = [each.user_message for each in instance.all_logs(result.run_id) if "skipped" in each.user_message]
    assert line.startswith("20: skipped, not materialized")
    assert line.endswith(f"query {query_id}")
    assert_all_published_once(lake, target)


def test_what_is_wrong_with_the_whole_range_fails_it_before_any_query(lake: Lake, instance: dg.DagsterInstance) -> None:
    result = run(lake, asset_of(sized(lake)), instance, tags=RANGE | {"athena_assets/force": "yes"})
    description, _ = failure_of(result)
    assert description.startswith("InvalidTarget: ")
    assert lake.aws.queries() == []


@pytest.mark.long
def test_force_runs_all_queries_anew(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake)
    run(lake, asset_of(target), instance, tags=RANGE)
    assert run(lake, asset_of(target), instance, tags=RANGE | {"athena_assets/force": "true"}).success
    assert queries(lake, target) == {key: ["SUCCEEDED", "SUCCEEDED"] for key in KEYS}
    assert_all_published_once(lake, target)
