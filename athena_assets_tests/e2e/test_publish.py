"""One publication after another: reuse, replacement, failure, timeout, interruption, identity."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from athena_assets import OutputFormat, Published, Reused, UpstreamTable, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import DropReply, Fault
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.processes import processes


def test_unchanged_upstream_is_reused_and_starts_no_query(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    first = publisher.unload(target)
    second = lake.publisher().unload(target)
    assert isinstance(first, Published)
    assert isinstance(second, Reused)
    assert second.publication == first.publication
    assert len(lake.queries(target.location)) == 1


def test_changed_upstream_replaces_the_result(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    old = set(lake.listing(target.location))
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    publisher.unload(target)
    assert len(lake.queries(target.location)) == 2
    assert not old & set(lake.listing(target.location))
    lake.assert_published_once(target.location, range(ROWS + 10))


def test_upstream_that_changes_while_the_query_runs_is_not_reused(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().outcome, Published)
    assert isinstance(publisher.unload(target), Published)
    assert isinstance(publisher.unload(target), Reused)
    assert len(lake.queries(target.location)) == 2


@pytest.mark.parametrize(
    ("changes", "queries"),
    [
        ({"query": "SELECT n FROM numbers WHERE current_date IS NOT NULL"}, 2),
        ({"reuse": "never"}, 2),
        ({"query": "SELECT n FROM numbers WHERE current_date IS NOT NULL", "reuse": "always"}, 1),
        ({"upstreams": (UpstreamTable("nowhere", "to_be_found"),)}, 2),
        ({"upstreams": ()}, 1),
    ],
)
def test_a_finished_publication_is_reused_only_if_nothing_can_have_changed(
    lake: Lake, changes: dict[str, Any], queries: int
) -> None:
    target, publisher = lake.target(**changes), lake.publisher()
    publisher.unload(target)
    publisher.unload(target)
    assert len(lake.queries(target.location)) == queries
    lake.assert_published_once(target.location)


def test_versions_given_by_the_caller_decide(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    name = f"{lake.database}.numbers"
    publisher.unload(target, upstream_versions={name: "snapshot 1"})
    assert isinstance(publisher.unload(target, upstream_versions={name: "snapshot 1"}), Reused)
    assert isinstance(publisher.unload(target, upstream_versions={name: "snapshot 2"}), Published)
    assert len(lake.queries(target.location)) == 2


def test_a_request_that_returns_finds_its_own_publication(lake: Lake) -> None:
    target, publisher = lake.target(reuse="never"), lake.publisher()
    first = done(publisher.unload(target, request_id="r1"))
    again = done(publisher.unload(target, request_id="r1"))
    assert isinstance(again, Published)
    assert again.publication == first.publication
    publisher.unload(target, request_id="r2")
    superseded = publisher.unload(target, request_id="r1", force=True)
    assert isinstance(superseded, Published)
    assert superseded.superseded
    assert len(lake.queries(target.location)) == 2
    with pytest.raises(errors.RequestConflict, match="r1"):
        publisher.unload(lake.target(target.name, query="SELECT n + 1 AS n FROM numbers"), request_id="r1")


def test_an_old_generation_can_be_published_again(lake: Lake) -> None:
    publisher = lake.publisher()
    one = lake.target(query="SELECT n FROM numbers WHERE n < 10")
    other = lake.target(one.name, query="SELECT n FROM numbers WHERE n < 20")
    for target, count in ((one, 10), (other, 20), (one, 10)):
        assert isinstance(publisher.unload(target), Published)
        lake.assert_published_once(target.location, range(count))


def test_partitions_are_slots_of_their_own(lake: Lake) -> None:
    location = f"s3://{lake.bucket}/published/by_key/${{partition}}/"
    target = lake.target("by_key", location=location, query="SELECT n FROM numbers WHERE n < length(${partition})")
    publisher = lake.publisher()
    for key in ("abc", "x; --", "100%25"):
        publisher.unload(target, partition=key)
        lake.assert_published_once(location.replace("${partition}", key), range(len(key)))
    with pytest.raises(errors.InvalidTarget, match="'"):
        publisher.unload(target, partition="it's")


def test_a_hostile_parameter_is_one_literal(lake: Lake) -> None:
    hostile = "x' OR n < 5 --"
    target = lake.target(query="SELECT n FROM numbers WHERE ${who} = 'x' OR n = 7", parameters={"who": hostile})
    lake.publisher().unload(target)
    lake.assert_published_once(target.location, range(7, 8))


def test_json_is_published_with_its_suffix(lake: Lake) -> None:
    target = lake.target(output=OutputFormat("json"))
    lake.publisher().unload(target)
    assert all(key.endswith(".gz") for key in lake.listing(target.location))
    lake.assert_published_once(target.location)


def test_an_empty_result_is_an_empty_publication(lake: Lake) -> None:
    target, publisher = lake.target(query="SELECT n FROM numbers WHERE n < 0"), lake.publisher()
    assert done(publisher.unload(target)).publication.files == 0
    assert isinstance(publisher.unload(target), Reused)
    lake.assert_published_once(target.location, range(0))


def test_joiners_of_a_failing_query_raise_its_error_and_start_none(lake: Lake) -> None:
    target, publisher = lake.target(query="SELECT n FROM no_such_table"), lake.publisher(lease=60)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="queued")
    callers = [ThreadCaller(publisher, target).start() for _ in range(8)]
    wait_until(lambda: sum(each.told("waiting") for each in callers) == 7, "all but one caller wait")
    lake.aws.faults.release(hold)
    assert [type(caller.join().error) for caller in callers] == [errors.QueryUserError] * 8
    history = lake.queries(target.location)
    assert [each.state for each in history] == ["FAILED"]
    with pytest.raises(errors.QueryUserError, match="TABLE_NOT_FOUND"):
        publisher.unload(target)
    assert len(lake.queries(target.location)) == 2


def test_a_retryable_failure_is_tried_again_in_a_fresh_staging_prefix(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=2)
    outcome = publisher.unload(target)
    assert isinstance(outcome, Published)
    assert outcome.attempts == 2
    assert [each.state for each in lake.queries(target.location)] == ["FAILED", "SUCCEEDED"]
    lake.assert_published_once(target.location)


def test_internal_failures_are_tried_a_bounded_number_of_times(lake: Lake) -> None:
    target = lake.target(retries=2)
    lake.aws.faults.fail_queries(sql_contains=target.name, times=None)
    with pytest.raises(errors.QueryInternalError, match="injected fault"):
        lake.publisher().unload(target)
    assert [each.state for each in lake.queries(target.location)] == ["FAILED"] * 3
    assert lake.listing(target.location) == {}


def test_user_errors_of_athena_are_not_tried_again_and_keep_the_old_result(lake: Lake) -> None:
    publisher = lake.publisher()
    target = lake.target()
    publisher.unload(target)
    before = lake.listing(target.location)
    lake.aws.faults.fail_queries(sql_contains=target.name, error_category=2, retryable=False, reason="DIVISION_BY_ZERO")
    with pytest.raises(errors.QueryUserError, match="DIVISION_BY_ZERO"):
        publisher.unload(target, force=True)
    assert len(lake.queries(target.location)) == 2
    assert lake.listing(target.location) == before


def test_the_scan_limit_is_its_own_error(lake: Lake) -> None:
    target = lake.target()
    reason = "Query cancelled! : Bytes scanned limit was exceeded"
    lake.aws.faults.fail_queries(sql_contains=target.name, reason=reason)
    with pytest.raises(errors.ScanLimitExceeded):
        lake.publisher().unload(target)
    assert len(lake.queries(target.location)) == 1


def test_a_timeout_stops_the_query_before_it_frees_the_slot(lake: Lake) -> None:
    target = lake.target(timeout=0.5)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    with pytest.raises(errors.QueryTimedOut, match=r"timeout of 0\.5 s"):
        lake.publisher().unload(target)
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]
    register = lake.register(target.location)
    assert register is not None
    assert register.state == "free"
    lake.aws.faults.release(hold)
    assert isinstance(lake.publisher().unload(lake.target(target.name)), Published)


def test_a_query_that_somebody_cancels_is_not_started_again(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(lake.publisher(), target).start()
    (query_id,) = wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    lake.aws.client("athena").stop_query_execution(QueryExecutionId=query_id)
    assert isinstance(caller.join().error, errors.QueryCancelled)
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]


def test_on_conflict_fail_names_the_owner(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    (query_id,) = wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    wait_until(lambda: caller.told("running"), "the query id is noted")
    with pytest.raises(errors.SlotBusy, match=rf"process {os.getpid()} .*query {query_id}"):
        publisher.unload(lake.target(target.name, on_conflict="fail"))
    lake.aws.faults.release(hold)
    assert caller.join().error is None
    assert len(lake.queries(target.location)) == 1


def test_a_wait_has_a_deadline(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(lease=60)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    with pytest.raises(errors.SlotBusy, match="of waiting"):
        publisher.unload(lake.target(target.name, wait_timeout=0.5))
    lake.aws.faults.release(hold)
    assert caller.join().error is None


def test_a_lost_data_manifest_publishes_nothing(lake: Lake) -> None:
    target = lake.target()
    lake.aws.faults.lose_manifest()
    with pytest.raises(errors.ResultInvalid, match="no data manifest"):
        lake.publisher().unload(target)
    assert lake.listing(target.location) == {}
    assert isinstance(lake.publisher().unload(target), Published)
    lake.assert_published_once(target.location)


def test_a_deleted_register_is_never_recreated_by_its_owner(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(lake.publisher(), target).start()
    wait_until(lambda: caller.told("running"), "the query runs")
    key = keys.register_key(parse_location(target.location))
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().error, errors.RegisterVanished)
    assert lake.register(target.location) is None
    assert lake.listing(target.location) == {}


@pytest.mark.parametrize("body", [b"", b"{}", b'{"schema": 2}', b"not json"])
def test_a_register_that_can_not_be_read_is_left_alone(lake: Lake, body: bytes) -> None:
    target = lake.target()
    key = keys.register_key(parse_location(target.location))
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=body)
    with pytest.raises(errors.RegisterUnreadable, match="register"):
        lake.publisher().unload(target)
    assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == body
    assert lake.queries(target.location) == []


def test_committed_files_that_vanish_are_an_error_and_the_next_request_runs_anew(lake: Lake) -> None:
    target = lake.target()
    with processes(lake, 1) as (owner,):
        rule = lake.aws.faults.add(Fault(DropReply(), "s3", "CopyObject", "published/", times=None))
        owner.publish(target)
        wait_until(lambda: lake.aws.faults.hits(rule) >= 1, "the owner copies")
        owner.signal(signal.SIGSTOP)
        lake.aws.faults.clear()
        for key in (*lake.staged(target.location), *lake.listing(target.location)):
            lake.s3.delete_object(Bucket=lake.bucket, Key=key)
        outcome = lake.publisher().unload(target)
        assert isinstance(outcome, Published)
        assert len(lake.queries(target.location)) == 2
        lake.assert_published_once(target.location)
        owner.signal(signal.SIGCONT)
        assert owner.result().get("error") == "PublicationLost"
        lake.assert_published_once(target.location)


@pytest.mark.parametrize("moment", ["running", "submitting"])
def test_an_interrupted_script_stops_its_query_and_frees_the_slot(lake: Lake, moment: str) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    script = textwrap.dedent(
        f"""
        from athena_assets import AwsSettings, Publisher, Target
        settings = AwsSettings(endpoint_url={lake.aws.endpoint_url!r}, region="us-east-1", access_key_id="x",
                               secret_access_key="y", output_location={lake.settings.output_location!r})
        target = Target(name={target.name!r}, query={target.query!r}, location={target.location!r},
                        database={target.database!r})
        Publisher(settings).unload(target, observe=lambda line: print(line, flush=True))
        """
    )
    if moment == "submitting":  # Athena has the query, its owner does not know
        lake.aws.faults.add(Fault(DropReply(), "athena", "StartQueryExecution", times=3))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    if moment == "running":
        assert process.stdout is not None
        assert any(line.startswith("running") for line in process.stdout)
    process.send_signal(signal.SIGINT)
    _, errors_told = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors_told
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]
    register = lake.register(target.location)
    assert register is not None
    assert register.state == "free"
    lake.aws.faults.clear()
    assert isinstance(lake.publisher().unload(target), Published)
    lake.assert_published_once(target.location)


def test_columns_are_read_from_the_published_file(lake: Lake) -> None:
    query = (
        "SELECT n, CAST(n AS double) AS d, CAST(n AS varchar) AS s, n > 1 AS b, DATE '2020-01-02' AS day, "
        "CAST(n AS integer) AS i, CAST(n AS decimal(10, 2)) AS price FROM numbers"
    )
    target, publisher = lake.target(query=query), lake.publisher()
    columns = publisher.columns(target, done(publisher.unload(target)))
    assert columns is not None
    assert [(each.name, each.type) for each in columns] == [
        ("n", "bigint"),
        ("d", "double"),
        ("s", "string"),
        ("b", "boolean"),
        ("day", "date"),
        ("i", "int"),
        ("price", "decimal(10,2)"),
    ]


def test_columns_of_json_and_of_an_empty_result_are_not_made_up(lake: Lake) -> None:
    publisher = lake.publisher()
    for changes in ({"output": OutputFormat("json")}, {"query": "SELECT n FROM numbers WHERE n < 0"}):
        target = lake.target(**changes)
        assert publisher.columns(target, done(publisher.unload(target))) is None
