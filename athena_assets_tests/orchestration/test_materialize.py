"""Real runs against the embedded AWS: what they publish, reuse and record."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from athena_assets import UpstreamTable
from athena_assets.orchestration import AthenaUnloadResource, build_unload_asset
from athena_assets_tests.e2e.lake import LEASE, ROWS, Lake, wait_until
from athena_assets_tests.orchestration import one_asset
from athena_assets_tests.orchestration.runs import SIZES, failure_of, partitions, recorded, resource, run, sized


def test_every_figure_is_what_athena_and_s3_say(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target("mart/numbers", location=f"s3://{lake.bucket}/published/numbers")
    result = run(lake, build_unload_asset(target), instance)
    [metadata] = recorded(result)
    [query] = lake.queries(target.location)
    execution = lake.aws.client("athena").get_query_execution(QueryExecutionId=query.query_id)["QueryExecution"]
    files = lake.listing(target.location)
    register = lake.register(target.location)
    assert register is not None
    assert register.publication is not None
    statistics = execution["Statistics"]
    assert metadata.pop("athena_assets/published_at") == register.publication.at
    head, rule, *shown = metadata.pop("athena_assets/preview").splitlines()
    assert (head, rule, len(shown)) == ("| n |", "| --- |", 10)
    assert {int(line.strip("| ")) for line in shown} <= set(lake.rows(target.location))
    assert metadata == {
        "dagster/uri": f"s3://{lake.bucket}/published/numbers/",
        "dagster/row_count": ROWS,
        "dagster/column_schema": dg.TableSchema(columns=[dg.TableColumn("n", "bigint")]),
        "athena_assets/request_id": f"{result.run_id}/mart/numbers",
        "athena_assets/generation": register.publication.generation,
        "athena_assets/mode": "staged",
        "athena_assets/reused": False,
        "athena_assets/attempts": 1,
        "athena_assets/waited_seconds": 0.0,
        "athena_assets/cost_estimate_usd": pytest.approx(10 / 2**20 * 5),  # the least that a query costs
        "athena_assets/rows": sum(lake.rows(target.location).values()),
        "athena_assets/files": len(files),
        "athena_assets/bytes": sum(size for _, size in files.values()),
        "athena_assets/query_id": query.query_id,
        "athena_assets/query_bytes_scanned": statistics["DataScannedInBytes"],
        "athena_assets/query_queue_seconds": statistics["QueryQueueTimeInMillis"] / 1000,
        "athena_assets/query_engine_seconds": statistics["EngineExecutionTimeInMillis"] / 1000,
        "athena_assets/query_total_seconds": statistics["TotalExecutionTimeInMillis"] / 1000,
    }
    assert register.publication.run == result.run_id
    assert register.lease == LEASE  # as the resource says


def test_the_story_of_the_publication_is_in_the_runs_log(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target()
    result = run(lake, build_unload_asset(target), instance)
    [query] = lake.queries(target.location)
    told = [event.user_message for event in instance.all_logs(result.run_id)]
    assert f"running: query {query.query_id}" in told
    again = run(lake, build_unload_asset(target), instance)
    told = [event.user_message for event in instance.all_logs(again.run_id)]
    [last] = [line for line in told if line.startswith("reused, no query was started")]
    assert f"query {query.query_id} of run {result.run_id}" in last


def test_a_deployment_may_keep_data_out_of_dagster(lake: Lake) -> None:
    asset = build_unload_asset(lake.target())
    result = dg.materialize([asset], resources={"athena": resource(lake, preview_rows=0)})
    [metadata] = recorded(result)
    assert "athena_assets/preview" not in metadata
    assert metadata["dagster/column_schema"] == dg.TableSchema(columns=[dg.TableColumn("n", "bigint")])


def test_a_run_over_unchanged_data_reuses_and_names_the_run_that_published(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    target = lake.target()
    asset = build_unload_asset(target)
    first, second = run(lake, asset, instance), run(lake, asset, instance)
    [query] = lake.queries(target.location)
    [[before], [metadata]] = recorded(first), recorded(second)
    assert metadata["athena_assets/reused"] is True
    assert metadata["athena_assets/reused_from_run"] == first.run_id
    assert metadata["athena_assets/reused_from_request"] == before["athena_assets/request_id"]
    assert metadata["athena_assets/request_id"] != before["athena_assets/request_id"]
    assert metadata["athena_assets/joined"] is False
    assert (metadata["athena_assets/attempts"], metadata["athena_assets/cost_estimate_usd"]) == (0, 0.0)
    about_the_result = {key for key in before if "query_" in key or key.startswith("dagster/")}
    assert {key: metadata[key] for key in about_the_result} == {key: before[key] for key in about_the_result}
    assert metadata["athena_assets/query_id"] == query.query_id


def test_changed_data_are_published_anew(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target()
    asset = build_unload_asset(target)
    run(lake, asset, instance)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 5))
    [metadata] = recorded(run(lake, asset, instance))
    assert metadata["athena_assets/reused"] is False
    lake.assert_published_once(target.location, range(ROWS + 5))


@pytest.mark.parametrize("how", ["launchpad", "run tag"])
def test_force_runs_the_query_anew(lake: Lake, instance: dg.DagsterInstance, how: str) -> None:
    target = lake.target()
    asset = build_unload_asset(target)
    run(lake, asset, instance)
    forced = {"force": True} if how == "launchpad" else {"tags": {"athena_assets/force": "true"}}
    [metadata] = recorded(run(lake, asset, instance, **forced))
    assert metadata["athena_assets/reused"] is False
    assert len(lake.queries(target.location)) == 2
    lake.assert_published_once(target.location)


def test_a_mistyped_force_tag_fails_the_run_before_any_query(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target()
    description, metadata = failure_of(
        run(lake, build_unload_asset(target), instance, tags={"athena_assets/force": "yes"})
    )
    assert "athena_assets/force" in description
    assert "'yes'" in description
    assert metadata["athena_assets/next_step"] == "Use true or false."
    assert lake.aws.queries() == []


def test_a_partitions_run_publishes_that_partition(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake)
    result = run(lake, build_unload_asset(target, partitions_def=SIZES), instance, partition="20")
    [metadata] = recorded(result)
    assert partitions(result) == ["20"]
    assert metadata["dagster/partition_row_count"] == 20
    assert "dagster/row_count" not in metadata
    assert metadata["dagster/uri"] == f"s3://{lake.bucket}/sized/20/"
    assert metadata["athena_assets/request_id"].endswith("/sized/partition=20")
    assert lake.rows(f"s3://{lake.bucket}/sized/") == Counter(range(20))


def test_a_users_error_is_not_tried_again_by_a_retry_policy(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(query="SELECT no_such_column FROM numbers")
    result = run(lake, build_unload_asset(target, retry_policy=dg.RetryPolicy(max_retries=2)), instance)
    description, metadata = failure_of(result)
    assert description.startswith("QueryUserError: ")
    [query] = lake.queries(target.location)
    assert query.query_id in description
    assert metadata["athena_assets/query_id"] == query.query_id
    assert metadata["athena_assets/error"] == "QueryUserError"


def test_an_internal_failure_is_tried_again_as_the_same_wish(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target("again", retries=0)
    lake.aws.faults.fail_queries(times=1)
    result = run(lake, build_unload_asset(target, retry_policy=dg.RetryPolicy(max_retries=1)), instance)
    assert result.success
    [metadata] = recorded(result)
    assert metadata["athena_assets/request_id"] == f"{result.run_id}/again"
    assert [query.state for query in lake.queries(target.location)] == ["FAILED", "SUCCEEDED"]
    lake.assert_published_once(target.location)


def test_a_failure_that_outlasts_the_retries_is_shown_as_itself(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(retries=0)
    lake.aws.faults.fail_queries(times=None)
    result = run(lake, build_unload_asset(target, retry_policy=dg.RetryPolicy(max_retries=1)), instance)
    description, _ = failure_of(result)
    assert description.startswith("QueryInternalError: ")
    assert [query.state for query in lake.queries(target.location)] == ["FAILED", "FAILED"]


def test_a_busy_slot_is_skipped_by_policy_and_its_holder_is_named(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(on_conflict="skip")
    asset = build_unload_asset(target)
    hold = lake.aws.faults.hold_queries()
    holder = threading.Thread(target=run, args=(lake, asset), daemon=True)
    holder.start()
    [query_id] = wait_until(lambda: lake.aws.faults.held(hold), "a query is held")
    register = wait_until(lambda: (found := lake.register(target.location)) and found.state == "running" and found, "")
    result = run(lake, asset, instance)
    assert lake.aws.faults.held(hold) == [query_id]
    lake.aws.faults.release(hold)
    holder.join(30)
    assert result.success
    assert recorded(result) == []
    assert instance.get_latest_materialization_event(asset.key) is None
    [line] = [each.user_message for each in instance.all_logs(result.run_id) if "skipped" in each.user_message]
    assert query_id in line
    assert register.owner.run in line
    [observation] = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.ASSET_OBSERVATION
    ]
    told = {key: value.value for key, value in observation.metadata.items()}
    assert str(told.pop("athena_assets/owner")) in line
    assert told == {
        "athena_assets/skipped": True,
        "athena_assets/request_id": f"{result.run_id}/{target.name}",
        "athena_assets/query_id": query_id,
    }
    [metadata] = recorded(run(lake, asset, instance))  # the slot is free again
    assert metadata["athena_assets/query_id"] == query_id
    lake.assert_published_once(target.location)


def test_a_run_that_skips_skips_what_depends_on_it(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(on_conflict="skip")
    asset = build_unload_asset(target)
    ran: list[str] = []

    @dg.asset(deps=[asset])
    def report() -> None:
        ran.append("report")

    def both() -> dg.ExecuteInProcessResult:
        return dg.materialize([asset, report], instance=instance, resources={"athena": resource(lake)})

    hold = lake.aws.faults.hold_queries()
    holder = threading.Thread(target=run, args=(lake, asset), daemon=True)
    holder.start()
    wait_until(lambda: lake.aws.faults.held(hold), "a query is held")
    assert both().success
    assert ran == []
    lake.aws.faults.release(hold)
    holder.join(30)
    assert both().success
    assert ran == ["report"]


def test_a_busy_slot_fails_by_policy_and_names_the_holder(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(on_conflict="fail")
    asset = build_unload_asset(target)
    hold = lake.aws.faults.hold_queries()
    holder = threading.Thread(target=run, args=(lake, asset), daemon=True)
    holder.start()
    [query_id] = wait_until(lambda: lake.aws.faults.held(hold), "a query is held")
    register = wait_until(lambda: (found := lake.register(target.location)) and found.state == "running" and found, "")
    description, metadata = failure_of(run(lake, asset, instance))
    lake.aws.faults.release(hold)
    holder.join(30)
    assert description.startswith("SlotBusy: ")
    assert metadata["athena_assets/query_id"] == query_id
    assert register.owner.run in metadata["athena_assets/owner"]
    lake.assert_published_once(target.location)


def test_a_retried_run_finds_what_its_predecessor_published(
    lake: Lake, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = lake.target(reuse="never")
    for name, value in one_asset.environment(lake, target, tmp_path).items():
        monkeypatch.setenv(name, value)
    job = dg.reconstructable(one_asset.numbers_job)

    def execute(parent: str | None = None, **tags: str) -> Any:
        options = None if parent is None else dg.ReexecutionOptions(parent_run_id=parent)
        tags = {f"dagster/{name}": value for name, value in tags.items()}
        with dg.execute_job(job, instance, tags=tags, reexecution_options=options) as result:
            assert result.success
            [event] = result.filter_events(lambda each: each.is_step_materialization)
            return result.run_id, event.step_materialization_data.materialization.metadata["athena_assets/query_id"]

    first, query_id = execute()
    _, of_the_retry = execute(first, retry_number="1")
    by_hand, of_the_hand = execute(first)
    _, of_the_hands_retry = execute(by_hand, retry_number="2")
    assert of_the_retry == query_id
    assert of_the_hand != query_id
    assert of_the_hands_retry == of_the_hand
    assert len(lake.queries(target.location)) == 2


def test_a_resource_whose_settings_can_not_be_used_fails_the_run_with_its_parts_and_is_not_tried_again(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = build_unload_asset(lake.target(), retry_policy=dg.RetryPolicy(max_retries=2))
    unusable = AthenaUnloadResource(profile_name="nobody_has_this_profile")
    result = dg.materialize([asset], instance=instance, resources={"athena": unusable}, raise_on_error=False)
    description, metadata = failure_of(result)
    assert "nobody_has_this_profile" in description
    assert metadata["athena_assets/next_step"]
    assert lake.aws.queries() == []


def test_a_run_of_a_partitioned_asset_that_names_no_partition_says_so(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = sized(lake)
    description, _ = failure_of(run(lake, build_unload_asset(target, partitions_def=SIZES), instance))
    assert f"target '{target.name}'" in description
    assert "the run names none" in description


def test_what_the_library_warns_of_is_in_the_runs_log(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(upstreams=(UpstreamTable(lake.database, "gone"),))
    told = [event.user_message for event in instance.all_logs(run(lake, build_unload_asset(target), instance).run_id)]
    [line] = [each for each in told if "gone" in each and "unknown" in each]
    assert lake.database in line
