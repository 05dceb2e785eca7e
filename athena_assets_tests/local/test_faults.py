"""Injected faults do exactly what they say, to exactly the requests that they name."""

from __future__ import annotations

import functools
import threading
import time
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError, ResponseStreamingError

from athena_assets.local import (
    ApplyLate,
    CutReply,
    Delay,
    DropReply,
    DropRequest,
    EmbeddedAws,
    EmbeddedAwsError,
    Fault,
    HoldReply,
    HoldRequest,
    Respond,
    RespondAfterApply,
)
from athena_assets_tests.local.conftest import ONE_ATTEMPT, Lake, eventually, status_of

UNLOAD = "UNLOAD (SELECT n FROM numbers) TO 's3://out/{}/' WITH (format = 'PARQUET')"


def put_fault(action: Any, **rule: Any) -> Fault:
    return Fault(action, service="s3", operation="PutObject", key_contains="register", **rule)


def was_hit(lake: Lake, rule: str) -> bool:
    return lake.aws.faults.hits(rule) == 1


def in_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


def test_a_dropped_reply_was_applied(lake: Lake) -> None:
    rule = lake.aws.faults.add(put_fault(DropReply()))
    with pytest.raises(ConnectionClosedError):
        lake.put("a/register.json", b"mine", IfNoneMatch="*")
    assert lake.read("a/register.json") == b"mine"
    assert lake.aws.faults.hits(rule) == 1
    assert [entry.status for entry in lake.aws.requests("s3", "PutObject", "register")] == [-1]


def test_a_retry_after_a_dropped_reply_meets_its_own_write(lake: Lake) -> None:
    lake.aws.faults.add(put_fault(DropReply()))
    retrying = lake.aws.client("s3")
    with pytest.raises(ClientError) as error:
        retrying.put_object(Bucket="out", Key="register", Body=b"mine", IfNoneMatch="*")
    assert status_of(error) == (412, "PreconditionFailed")
    assert lake.read("register") == b"mine"


def test_a_dropped_request_was_not_applied(lake: Lake) -> None:
    lake.aws.faults.add(put_fault(DropRequest()))
    with pytest.raises(HTTPClientError):
        lake.put("register")
    assert lake.keys() == []
    lake.put("register")


def test_an_answer_instead_is_a_well_formed_error_of_s3(lake: Lake) -> None:
    lake.aws.faults.add(put_fault(Respond(409, "ConditionalRequestConflict", "in flight <&>")))
    with pytest.raises(ClientError) as error:
        lake.put("register", IfNoneMatch="*")
    assert status_of(error) == (409, "ConditionalRequestConflict")
    assert error.value.response["Error"]["Message"] == "in flight <&>"
    assert lake.keys() == []


def test_an_answer_after_applying_hides_the_success(lake: Lake) -> None:
    lake.aws.faults.add(put_fault(RespondAfterApply(503, "SlowDown")))
    with pytest.raises(ClientError) as error:
        lake.put("register")
    assert status_of(error) == (503, "SlowDown")
    assert lake.keys() == ["register"]


def test_athena_and_glue_errors_are_their_own(numbers: Lake) -> None:
    numbers.aws.faults.add(Fault(Respond(400, "TooManyRequestsException", "slow"), "athena", "StartQueryExecution"))
    with pytest.raises(numbers.athena.exceptions.TooManyRequestsException):
        numbers.start("SELECT 1")
    assert numbers.aws.queries() == []
    numbers.aws.faults.add(Fault(Respond(400, "ThrottlingException"), "glue", "GetTable", "db.numbers"))
    with pytest.raises(ClientError) as error:
        numbers.glue.get_table(DatabaseName="db", Name="numbers")
    assert status_of(error) == (400, "ThrottlingException")


def test_a_dropped_reply_of_a_start_leaves_a_query(numbers: Lake) -> None:
    numbers.aws.faults.add(Fault(DropReply(), "athena", "StartQueryExecution", key_contains="numbers"))
    with pytest.raises(ConnectionClosedError):
        numbers.start("SELECT count(*) FROM numbers")
    assert len(numbers.aws.queries()) == 1


def test_skip_and_times_choose_the_requests(lake: Lake) -> None:
    rule = lake.aws.faults.add(put_fault(Respond(503, "SlowDown"), skip=1, times=2))
    outcomes = []
    for number in range(5):
        lake.put(f"other-{number}")
        try:
            lake.put(f"register-{number}")
            outcomes.append("ok")
        except ClientError:
            outcomes.append("failed")
    assert outcomes == ["ok", "failed", "failed", "ok", "ok"]
    assert lake.aws.faults.hits(rule) == 2


def test_without_times_a_rule_lasts_until_removed(lake: Lake) -> None:
    rule = lake.aws.faults.add(put_fault(Respond(503, "SlowDown"), times=None))
    for _ in range(3):
        with pytest.raises(ClientError):
            lake.put("register")
    lake.aws.faults.remove(rule)
    lake.put("register")


def test_a_held_request_is_applied_only_after_release(lake: Lake) -> None:
    rule = lake.aws.faults.add(put_fault(HoldRequest()))
    thread, results = in_thread(lambda: lake.put("register", b"held"))
    eventually(lambda: lake.aws.faults.hits(rule) == 1)
    lake.put("register", b"other")  # the same key: no lock is held by the one who waits
    time.sleep(0.1)
    assert results == []
    assert lake.read("register") == b"other"
    lake.aws.faults.release(rule)
    thread.join(10)
    assert lake.read("register") == b"held"


def test_a_held_reply_was_applied_before(lake: Lake) -> None:
    rule = lake.aws.faults.add(put_fault(HoldReply()))
    thread, results = in_thread(lambda: lake.put("register", b"held"))
    eventually(lambda: lake.keys() == ["register"])
    assert results == []
    lake.aws.faults.release(rule)
    thread.join(10)
    assert len(results) == 1


def test_a_request_with_a_held_reply_counts_as_a_hit_once_it_is_applied(lake: Lake) -> None:
    rule = lake.aws.faults.add(put_fault(HoldReply()))
    body = bytes(64 << 20)  # takes the server longer to store than us to ask
    thread, _ = in_thread(lambda: lake.put("register", body))
    while not was_hit(lake, rule):
        assert thread.is_alive()
    lake.aws.faults.advance_clock(86_400)
    written = lake.s3.head_object(Bucket="out", Key="register")["LastModified"]
    assert written.timestamp() < time.time() + 3_600  # the clock was moved after it was applied
    lake.aws.faults.release(rule)
    thread.join(10)


def test_a_late_request_is_applied_after_its_sender_was_cut_off(lake: Lake) -> None:
    rule = lake.aws.faults.add(put_fault(ApplyLate()))
    with pytest.raises(ConnectionClosedError):
        lake.put("register", b"late", IfNoneMatch="*")
    assert lake.keys() == []
    lake.aws.faults.release(rule)
    eventually(lambda: lake.keys() == ["register"])
    assert lake.read("register") == b"late"


def test_a_late_request_is_judged_when_it_is_applied(lake: Lake) -> None:
    rule = lake.aws.faults.add(put_fault(ApplyLate()))
    with pytest.raises(ConnectionClosedError):
        lake.put("register", b"late", IfNoneMatch="*")
    lake.put("register", b"first")
    assert [entry.status for entry in lake.aws.requests("s3", "PutObject", "register")] == [-1, 200]
    lake.aws.faults.release(rule)
    eventually(lambda: [entry.status for entry in lake.aws.requests("s3", "PutObject", "register")] == [412, 200])
    assert lake.read("register") == b"first"


def test_a_cut_reply_was_applied_and_ends_in_the_middle(lake: Lake) -> None:
    lake.put("register", b"0123456789")
    lake.aws.faults.add(Fault(CutReply(4), "s3", "GetObject"))
    body = lake.s3.get_object(Bucket="out", Key="register")["Body"]
    with pytest.raises(ResponseStreamingError):
        body.read()
    assert lake.read("register") == b"0123456789"


def test_the_clock_that_is_advanced_makes_old_objects_older_and_new_ones_new(lake: Lake) -> None:
    def age(key: str) -> float:
        answer = lake.s3.head_object(Bucket="out", Key=key)
        date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return float((date - answer["LastModified"]).total_seconds())

    day = 86_400
    lake.put("old")
    lake.aws.faults.advance_clock(day)
    lake.put("new")
    lake.s3.copy_object(Bucket="out", Key="copied", CopySource="out/old")
    assert age("old") >= day
    assert age("new") < day
    assert age("copied") < day
    lake.aws.faults.clear()
    assert age("new") < 0


def test_a_delay_is_waited_before_applying(lake: Lake) -> None:
    lake.aws.faults.add(put_fault(Delay(0.3)))
    started = time.monotonic()
    thread, _ = in_thread(lambda: lake.put("register"))
    lake.put("other")
    assert lake.keys() == ["other"]
    thread.join(10)
    assert time.monotonic() - started >= 0.3
    assert lake.keys() == ["other", "register"]


def test_clear_and_reset_let_the_held_go(lake: Lake) -> None:
    for end in (lake.aws.faults.clear, lake.aws.reset):
        rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "ListBuckets"))
        thread, results = in_thread(lambda: lake.s3.list_buckets())
        eventually(functools.partial(was_hit, lake, rule))
        end()
        thread.join(10)
        assert len(results) == 1


def test_queries_are_held_by_their_text(numbers: Lake) -> None:
    faults = numbers.aws.faults
    hold = faults.hold_queries(sql_contains="out/one", at="checked")
    one, two = numbers.start(UNLOAD.format("one")), numbers.start(UNLOAD.format("two"))
    assert numbers.wait(two)["Status"]["State"] == "SUCCEEDED"
    assert faults.held(hold) == [one]
    assert numbers.keys("one/") == []
    faults.release(hold)
    assert numbers.wait(one)["Status"]["State"] == "SUCCEEDED"
    assert numbers.run(UNLOAD.format("one/later"))["Status"]["State"] == "SUCCEEDED"
    assert faults.held(hold) == []


def test_many_held_queries_keep_nobody_from_running(numbers: Lake) -> None:
    hold = numbers.aws.faults.hold_queries(sql_contains="held", at="checked")
    ids = [numbers.start(UNLOAD.format(f"held{number}")) for number in range(20)]
    eventually(lambda: len(numbers.aws.faults.held(hold)) == 20)
    assert numbers.rows("SELECT count(*) FROM numbers") == [("100",)]
    numbers.aws.faults.release(hold)
    assert {numbers.wait(query_id)["Status"]["State"] for query_id in ids} == {"SUCCEEDED"}


def test_a_query_held_before_its_check_sees_later_files(numbers: Lake) -> None:
    hold = numbers.aws.faults.hold_queries(at="queued")
    query_id = numbers.start(UNLOAD.format("p"))
    numbers.put("p/x")
    numbers.aws.faults.release(hold)
    assert "HIVE_PATH_ALREADY_EXISTS" in numbers.wait(query_id)["Status"]["StateChangeReason"]


def test_a_query_held_after_its_check_does_not(numbers: Lake) -> None:
    hold = numbers.aws.faults.hold_queries(at="checked")
    query_id = numbers.start(UNLOAD.format("p"))
    eventually(lambda: numbers.aws.faults.held(hold))
    numbers.put("p/x")
    numbers.aws.faults.release(hold)
    assert numbers.wait(query_id)["Status"]["State"] == "SUCCEEDED"
    assert len(numbers.keys("p/")) == 2


@pytest.mark.parametrize(("after_files", "expected"), [(0, 0), (2, 2), (99, 5)])
def test_a_failing_query_leaves_the_files_it_wrote(numbers: Lake, after_files: int, expected: int) -> None:
    numbers.aws.faults.rows_per_file(20)
    numbers.aws.faults.fail_queries(after_files=after_files, reason="INTERNAL: x", error_type=7, retryable=True)
    status = numbers.run(UNLOAD.format("p"))["Status"]
    assert (status["State"], status["StateChangeReason"]) == ("FAILED", "INTERNAL: x")
    error = status["AthenaError"]
    assert (error["ErrorCategory"], error["ErrorType"], error["Retryable"]) == (1, 7, True)
    assert len(numbers.keys("p/")) == expected
    assert numbers.keys(bucket="results") == []
    assert numbers.run(UNLOAD.format("q"))["Status"]["State"] == "SUCCEEDED"


def test_forgotten_queries_are_unknown_to_the_api_and_new_ones_are_not(numbers: Lake) -> None:
    old = numbers.run(UNLOAD.format("p"))["QueryExecutionId"]
    numbers.aws.faults.forget_queries()
    new = numbers.run(UNLOAD.format("q"))["QueryExecutionId"]
    with pytest.raises(ClientError) as error:
        numbers.athena.get_query_execution(QueryExecutionId=old)
    assert status_of(error) == (400, "InvalidRequestException")
    assert numbers.athena.list_query_executions()["QueryExecutionIds"] == [new]
    assert [query.query_id for query in numbers.aws.queries()] == [old, new]


def test_a_lost_manifest_is_named_but_absent(numbers: Lake) -> None:
    numbers.aws.faults.lose_manifest()
    lost, found = numbers.run(UNLOAD.format("p")), numbers.run(UNLOAD.format("q"))
    assert lost["Status"]["State"] == "SUCCEEDED"
    manifests = [key for key in numbers.keys(bucket="results") if key.endswith("-manifest.csv")]
    assert manifests == [f"q/{found['QueryExecutionId']}-manifest.csv"]
    assert lost["Statistics"]["DataManifestLocation"].endswith(f"{lost['QueryExecutionId']}-manifest.csv")


def test_the_log_tells_who_asked_for_what_in_order(lake: Lake) -> None:
    lake.put("p/k")
    lake.keys("p/")
    lake.s3.copy_object(Bucket="out", Key="c", CopySource={"Bucket": "out", "Key": "p/k"})
    lake.s3.delete_objects(Bucket="out", Delete={"Objects": [{"Key": "c"}, {"Key": "p/k"}]})
    with pytest.raises(ClientError):
        lake.s3.head_object(Bucket="out", Key="c")
    log = [entry for entry in lake.aws.requests("s3") if entry.operation != "CreateBucket"]
    assert [(entry.operation, entry.bucket, entry.key, entry.status) for entry in log] == [
        ("PutObject", "out", "p/k", 200),
        ("ListObjectsV2", "out", "p/", 200),
        ("CopyObject", "out", "c", 200),
        ("DeleteObjects", "out", "c\np/k", 200),
        ("HeadObject", "out", "c", 404),
    ]
    assert [entry.sequence for entry in log] == sorted(entry.sequence for entry in log)
    assert all("Boto3" in entry.user_agent for entry in log)
    (table_call,) = lake.aws.requests("glue", "CreateDatabase")
    assert table_call.status == 200


def test_reset_stops_queries_and_empties_everything(numbers: Lake) -> None:
    hold = numbers.aws.faults.hold_queries(at="checked")
    numbers.start(UNLOAD.format("p"))
    eventually(lambda: numbers.aws.faults.held(hold))
    numbers.aws.reset()
    assert numbers.aws.queries() == []
    assert numbers.aws.requests() == []
    assert numbers.s3.list_buckets()["Buckets"] == []
    assert numbers.glue.get_databases()["DatabaseList"] == []
    numbers.s3.create_bucket(Bucket="out")
    time.sleep(0.2)
    assert numbers.keys() == []


def test_unfit_control_calls_are_refused(lake: Lake) -> None:
    for call in (
        lambda: lake.aws.faults.hits("fault-none"),
        lambda: lake.aws.faults.hold_queries(at="nowhere"),
        lambda: lake.aws.faults.rows_per_file(0),
    ):
        with pytest.raises(EmbeddedAwsError):
            call()


def test_faults_work_through_another_handle(lake: Lake) -> None:
    other = EmbeddedAws.attach(lake.aws.endpoint_url)
    other.faults.add(put_fault(Respond(503, "SlowDown")))
    with pytest.raises(ClientError):
        lake.put("register")
    other.client("s3", ONE_ATTEMPT).put_object(Bucket="out", Key="register", Body=b"")
