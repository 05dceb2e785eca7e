"""Faults while the query runs, and of what it leaves: failures, stops, lost ids, damaged data manifests, no rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from athena_assets.local import CutReply, Fault, HoldRequest, Respond
from athena_assets_tests.e2e.faults.ending import DAY, PATIENT, assert_ends, end, files, staging, wait_for
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, wait_until
from athena_assets_tests.e2e.processes import processes


def test_failed_query_with_partial_files_is_tried_again_in_a_staging_of_its_own(lake: Lake) -> None:
    target = lake.target()
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=2)
    outcome = end(lake.publisher(PATIENT), target)
    assert_ends(
        lake,
        target,
        [outcome],
        ["Published"],
        queries=["FAILED", "SUCCEEDED"],
        register="free 1",
        location=files(1, attempt=2),
    )


def test_internal_failures_are_tried_a_bounded_number_of_times(lake: Lake) -> None:
    target = lake.target(retries=2)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=1, times=None)
    ended = end(lake.publisher(PATIENT), target)
    assert "injected fault" in str(ended)
    assert_ends(
        lake,
        target,
        [ended],
        ["QueryInternalError"],
        queries=["FAILED"] * 3,
        register="free 1",
        location=[],
        staged=[each for attempt in (1, 2, 3) for each in staging(1, 1, attempt)],
        rows=range(0),
    )


@pytest.mark.parametrize(
    ("reason", "category", "error"),
    [
        ("DIVISION_BY_ZERO: Division by zero", 2, "QueryUserError"),
        ("Query cancelled! : Bytes scanned limit was exceeded", 1, "ScanLimitExceeded"),
    ],
)
def test_failure_that_money_can_not_cure_is_not_tried_again_and_keeps_the_old_result(
    lake: Lake, reason: str, category: int, error: str
) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    first = end(publisher, target)
    before = lake.listing(target.location, stamped=True)
    lake.aws.faults.fail_queries(sql_contains=target.name, reason=reason, error_category=category, retryable=False)
    ended = end(publisher, target, force=True)
    assert reason in str(ended)
    assert lake.listing(target.location, stamped=True) == before
    assert_ends(
        lake,
        target,
        [first, ended],
        ["Published", error],
        queries=["SUCCEEDED", "FAILED"],
        register="free 2",
        location=files(1),
    )


def test_query_that_somebody_cancels_is_not_started_again(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    (query_id,) = wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    lake.aws.client("athena").stop_query_execution(QueryExecutionId=query_id)
    assert_ends(
        lake,
        target,
        [caller.end()],
        ["QueryCancelled"],
        queries=["CANCELLED"],
        register="free 1",
        location=[],
        rows=range(0),
    )


def test_timeout_stops_the_query_before_it_frees_the_slot(lake: Lake) -> None:
    target = lake.target(timeout=0.5)
    lake.aws.faults.hold_queries(sql_contains=target.name)
    ended = end(lake.publisher(PATIENT), target)
    assert "timeout of 0.5 s" in str(ended)
    assert_ends(
        lake,
        target,
        [ended],
        ["QueryTimedOut"],
        queries=["CANCELLED"],
        register="free 1",
        location=[],
        rows=range(0),
    )


def test_stop_that_loses_against_success_publishes_the_result(lake: Lake) -> None:
    target = lake.target(timeout=0.5)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="written")
    stop = lake.aws.faults.add(Fault(HoldRequest(), "athena", "StopQueryExecution"))
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_for(lake, stop)
    lake.aws.faults.release(hold)
    wait_until(lambda: lake.queries(target.location)[0].state == "SUCCEEDED", "the query succeeds")
    lake.aws.faults.release(stop)
    assert_ends(
        lake, target, [caller.end()], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1)
    )


def test_requeued_query_publishes_its_second_run_without_the_orphan_of_the_first(lake: Lake) -> None:
    target = lake.target()
    lake.aws.faults.requeue(sql_contains=target.name, after_files=1)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="written")
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "both runs have written")
    assert len(lake.staged(target.location)) == 5
    lake.aws.faults.release(hold)
    assert_ends(
        lake, target, [caller.end()], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1)
    )


def test_throttled_polls_are_not_a_missing_query(lake: Lake) -> None:
    target = lake.target()
    # The SDK sends a throttled poll four times; so many in a row are two polls without an answer.
    rule = lake.aws.faults.add(Fault(Respond(400, "ThrottlingException"), "athena", "GetQueryExecution", times=8))
    outcome = end(lake.publisher(PATIENT), target)
    assert lake.aws.faults.hits(rule) == 8
    assert_ends(lake, target, [outcome], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1))


def test_query_id_too_old_for_athena_costs_a_new_query(lake: Lake) -> None:
    target = lake.target()
    with processes(lake, 1, PATIENT) as (owner,):
        poll = lake.aws.faults.add(Fault(HoldRequest(), "athena", "GetQueryExecution"))
        owner.publish(target)
        wait_for(lake, poll)
        wait_until(lambda: lake.queries(target.location)[0].state == "SUCCEEDED", "the query succeeds by itself")
    lake.aws.faults.forget_queries()
    lake.aws.faults.advance_clock(45 * DAY)
    outcome = end(lake.publisher(PATIENT), target)
    assert_ends(
        lake,
        target,
        [outcome],
        ["Published"],
        queries=["SUCCEEDED", "SUCCEEDED"],
        register="free 3",
        location=files(3),
    )


# --- what the query left ---------------------------------------------------------------------------------------------


def publish_with(lake: Lake, damage: Callable[[str], str]) -> None:
    """The data manifest is damaged before its owner reads it; nothing is published, and the next caller is served."""
    target, publisher = lake.target(), lake.publisher(PATIENT)
    read = lake.aws.faults.add(Fault(HoldRequest(), "s3", "GetObject", "-manifest.csv"))
    caller = ThreadCaller(publisher, target).start()
    wait_for(lake, read)
    (key,) = (each for each in lake.listing(f"s3://{lake.bucket}/athena-results/") if each.endswith("-manifest.csv"))
    uris = "".join(f"s3://{lake.bucket}/{each}\n" for each in lake.staged(target.location))
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=damage(uris).encode())
    lake.aws.faults.release(read)
    assert_ends(
        lake,
        target,
        [caller.end()],
        ["ResultInvalid"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=[],
        staged=staging(1, 4),
        rows=range(0),
    )
    assert_ends(
        lake,
        target,
        [end(publisher, target)],
        ["Published"],
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=files(2),
    )


def test_data_manifest_that_breaks_off_in_a_uri_publishes_nothing(lake: Lake) -> None:
    publish_with(lake, lambda uris: uris[:-8])


def test_data_manifest_that_names_a_key_outside_staging_publishes_nothing(lake: Lake) -> None:
    publish_with(lake, lambda uris: uris + f"s3://{lake.bucket}/upstream/numbers/part-0.parquet\n")


def test_data_manifest_that_names_a_file_twice_publishes_nothing(lake: Lake) -> None:
    publish_with(lake, lambda uris: uris + uris.splitlines()[0] + "\n")


def test_data_manifest_that_is_emptied_publishes_nothing(lake: Lake) -> None:
    publish_with(lake, lambda _: "")


def test_data_manifest_whose_transfer_breaks_off_is_read_again(lake: Lake) -> None:
    target = lake.target()
    rule = lake.aws.faults.add(Fault(CutReply(100), "s3", "GetObject", "-manifest.csv", times=2))
    outcome = end(lake.publisher(PATIENT), target)
    assert lake.aws.faults.hits(rule) == 2
    assert_ends(lake, target, [outcome], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1))


def test_missing_data_manifest_publishes_nothing(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    lake.aws.faults.lose_manifest()
    ended = end(publisher, target)
    assert "no data manifest" in str(ended)
    assert_ends(
        lake,
        target,
        [ended],
        ["ResultInvalid"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=[],
        staged=staging(1, 4),
        rows=range(0),
    )


def test_result_whose_files_and_manifest_vanished_is_not_published_as_empty(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    with processes(lake, 1, PATIENT) as (owner,):
        poll = lake.aws.faults.add(Fault(HoldRequest(), "athena", "GetQueryExecution"))
        owner.publish(target)
        wait_for(lake, poll)
        wait_until(lambda: lake.queries(target.location)[-1].state == "SUCCEEDED", "the query succeeds by itself")
    for key in (*lake.staged(target.location), *lake.listing(f"s3://{lake.bucket}/athena-results/")):
        lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [end(publisher, target)],
        ["Published"],
        queries=["SUCCEEDED"] * 3,
        register="free 4",
        location=files(4, 5),
        rows=range(ROWS + 10),
    )


def test_empty_result_replaces_the_old_one_by_nothing(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    empty = lake.target(target.name, query="SELECT n FROM numbers WHERE n < 0")
    ended = [end(publisher, target), end(publisher, empty), end(publisher, empty)]
    assert_ends(
        lake,
        target,
        ended,
        ["Published", "Published", "Reused"],
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=[],
        rows=range(0),
    )


def test_empty_result_can_be_a_failure_that_keeps_the_old_one(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    empty = lake.target(target.name, query="SELECT n FROM numbers WHERE n < 0", on_empty="fail")
    ended = [end(publisher, target), end(publisher, empty)]
    assert_ends(
        lake,
        target,
        ended,
        ["Published", "EmptyResult"],
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=files(1),
    )
