"""States, stopping, tokens, history and workgroups."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from athena_assets_tests.local.conftest import Lake, eventually, status_of

UNLOAD = "UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' WITH (format = 'PARQUET')"


def token() -> str:
    return uuid.uuid4().hex


def state(lake: Lake, query_id: str) -> str:
    return str(lake.describe(query_id)["Status"]["State"])


def test_a_query_goes_from_queued_over_running_to_succeeded(numbers: Lake) -> None:
    faults = numbers.aws.faults
    queued, checked = faults.hold_queries(at="queued"), faults.hold_queries(at="checked")
    query_id = numbers.start(UNLOAD)
    eventually(lambda: faults.held(queued) == [query_id])
    assert state(numbers, query_id) == "QUEUED"
    faults.release(queued)
    eventually(lambda: faults.held(checked) == [query_id])
    assert state(numbers, query_id) == "RUNNING"
    assert "CompletionDateTime" not in numbers.describe(query_id)["Status"]
    faults.release(checked)
    assert numbers.wait(query_id)["Status"]["State"] == "SUCCEEDED"


@pytest.mark.parametrize("at", ["queued", "checked"])
def test_a_stopped_query_is_cancelled_and_writes_nothing(numbers: Lake, at: str) -> None:
    hold = numbers.aws.faults.hold_queries(at=at)
    query_id = numbers.start(UNLOAD)
    eventually(lambda: numbers.aws.faults.held(hold) == [query_id])
    numbers.athena.stop_query_execution(QueryExecutionId=query_id)
    assert numbers.wait(query_id)["Status"]["State"] == "CANCELLED"
    numbers.aws.faults.release(hold)
    time.sleep(0.1)
    assert numbers.keys() == []


def test_files_of_a_stopped_query_stay(numbers: Lake) -> None:
    hold = numbers.aws.faults.hold_queries(at="written")
    query_id = numbers.start(UNLOAD)
    eventually(lambda: numbers.aws.faults.held(hold) == [query_id])
    numbers.athena.stop_query_execution(QueryExecutionId=query_id)
    assert numbers.wait(query_id)["Status"]["State"] == "CANCELLED"
    assert len(numbers.keys("p/")) == 1
    assert numbers.keys(bucket="results") == []


def test_stopping_during_the_delay_takes_effect_at_once(numbers: Lake) -> None:
    numbers.aws.faults.query_delay(30)
    query_id = numbers.start(UNLOAD)
    eventually(lambda: state(numbers, query_id) == "RUNNING")
    numbers.athena.stop_query_execution(QueryExecutionId=query_id)
    assert numbers.wait(query_id)["Status"]["State"] == "CANCELLED"


LONG = (
    "SELECT count(*) FROM unnest(sequence(1, 400000)) AS a(x) CROSS JOIN unnest(sequence(1, 400000)) AS b(y)"
    " WHERE (x * y) % 7 < x % 5"
)


def test_stopping_interrupts_a_long_computation(lake: Lake) -> None:
    query_id = lake.start(LONG)
    eventually(lambda: state(lake, query_id) == "RUNNING")
    time.sleep(0.3)
    assert state(lake, query_id) == "RUNNING"
    lake.athena.stop_query_execution(QueryExecutionId=query_id)
    assert lake.wait(query_id)["Status"]["State"] == "CANCELLED"


def test_a_query_that_waits_for_others_can_be_stopped(lake: Lake) -> None:
    busy = [lake.start(LONG) for _ in range(3)]
    time.sleep(0.3)
    waiting = lake.start("SELECT 1")
    time.sleep(0.3)
    assert state(lake, waiting) == "RUNNING"
    lake.athena.stop_query_execution(QueryExecutionId=waiting)
    assert lake.wait(waiting)["Status"]["State"] == "CANCELLED"
    for query_id in busy:
        lake.athena.stop_query_execution(QueryExecutionId=query_id)
        assert lake.wait(query_id)["Status"]["State"] == "CANCELLED"


def test_stopping_a_finished_query_changes_nothing(numbers: Lake) -> None:
    before = numbers.run(UNLOAD)
    numbers.athena.stop_query_execution(QueryExecutionId=before["QueryExecutionId"])
    after = numbers.describe(before["QueryExecutionId"])
    assert (after["Status"], after["Statistics"]) == (before["Status"], before["Statistics"])


def test_unknown_queries_are_an_invalid_request(lake: Lake) -> None:
    for call in (lake.athena.get_query_execution, lake.athena.stop_query_execution, lake.athena.get_query_results):
        with pytest.raises(ClientError) as error:
            call(QueryExecutionId=str(uuid.uuid4()))
        assert status_of(error) == (400, "InvalidRequestException")


def test_one_token_starts_one_query(numbers: Lake) -> None:
    chosen, callers = token(), 16
    barrier = threading.Barrier(callers)

    def call(number: int) -> str:
        barrier.wait()
        return numbers.start(UNLOAD, ClientRequestToken=chosen)

    with ThreadPoolExecutor(callers) as pool:
        ids = set(pool.map(call, range(callers)))
    (query,) = numbers.aws.queries()
    assert ids == {query.query_id}
    assert query.client_request_token == chosen


def test_a_token_still_names_its_failed_or_cancelled_query(numbers: Lake) -> None:
    numbers.put("p/in-the-way")
    failed, chosen = token(), token()
    first = numbers.start(UNLOAD, ClientRequestToken=failed)
    assert numbers.wait(first)["Status"]["State"] == "FAILED"
    assert numbers.start(UNLOAD, ClientRequestToken=failed) == first
    numbers.aws.faults.hold_queries(at="queued")
    second = numbers.start(UNLOAD, ClientRequestToken=chosen)
    numbers.athena.stop_query_execution(QueryExecutionId=second)
    assert numbers.start(UNLOAD, ClientRequestToken=chosen) == second


@pytest.mark.parametrize(
    "changed",
    [
        {"QueryString": UNLOAD + " "},
        {"QueryExecutionContext": {"Database": "other"}},
        {"QueryExecutionContext": {"Database": "db", "Catalog": "AwsDataCatalog"}},
        {"ResultConfiguration": {"OutputLocation": "s3://results/elsewhere/"}},
    ],
)
def test_another_request_under_one_token_is_a_mismatch(numbers: Lake, changed: dict[str, Any]) -> None:
    chosen = token()
    request: dict[str, Any] = {
        "QueryString": UNLOAD,
        "QueryExecutionContext": {"Database": "db"},
        "ResultConfiguration": {"OutputLocation": "s3://results/q/"},
        "ClientRequestToken": chosen,
    }
    numbers.athena.start_query_execution(**request)
    with pytest.raises(ClientError) as error:
        numbers.athena.start_query_execution(**{**request, **changed})
    assert status_of(error) == (400, "InvalidRequestException")
    response: Any = error.value.response
    assert response["AthenaErrorCode"] == "IDEMPOTENT_PARAMETER_MISMATCH"
    assert len(numbers.aws.queries()) == 1


def test_workgroup_and_parameters_are_not_compared(numbers: Lake) -> None:
    numbers.athena.create_work_group(Name="other", Configuration={"EnforceWorkGroupConfiguration": False})
    chosen = token()
    first = numbers.start(UNLOAD, ClientRequestToken=chosen)
    assert numbers.start(UNLOAD, ClientRequestToken=chosen, WorkGroup="other") == first
    assert numbers.start(UNLOAD, ClientRequestToken=chosen, ExecutionParameters=["1"]) == first


def test_a_rejected_statement_leaves_the_token_unused(numbers: Lake) -> None:
    chosen = token()
    with pytest.raises(ClientError) as error:
        numbers.start("UNLOAD SELECT", ClientRequestToken=chosen)
    response: Any = error.value.response
    assert response["AthenaErrorCode"] == "MALFORMED_QUERY"
    assert numbers.wait(numbers.start(UNLOAD, ClientRequestToken=chosen))["Status"]["State"] == "SUCCEEDED"


def test_forgotten_tokens_start_again(numbers: Lake) -> None:
    chosen = token()
    first = numbers.start(UNLOAD, ClientRequestToken=chosen)
    numbers.aws.faults.forget_tokens()
    assert numbers.start(UNLOAD, ClientRequestToken=chosen) != first


@pytest.mark.parametrize("length", [129, 300])
def test_a_token_of_the_wrong_length_is_refused(numbers: Lake, length: int) -> None:
    with pytest.raises(ClientError) as error:
        numbers.start(UNLOAD, ClientRequestToken="x" * length)
    assert status_of(error) == (400, "InvalidRequestException")


def test_history_lists_newest_first_in_pages_of_its_workgroup(numbers: Lake) -> None:
    numbers.athena.create_work_group(Name="other", Configuration={"EnforceWorkGroupConfiguration": False})
    ids = [numbers.start("SELECT 1") for _ in range(5)]
    foreign = numbers.start("SELECT 1", WorkGroup="other")
    first = numbers.athena.list_query_executions(MaxResults=2)
    newer = numbers.start("SELECT 2")
    rest = numbers.athena.list_query_executions(NextToken=first["NextToken"])
    assert first["QueryExecutionIds"] + rest["QueryExecutionIds"] == ids[::-1]
    assert "NextToken" not in rest
    assert numbers.athena.list_query_executions(WorkGroup="other")["QueryExecutionIds"] == [foreign]
    assert [query.query_id for query in numbers.aws.queries()] == [*ids, foreign, newer]


def test_batches_name_what_they_do_not_know(numbers: Lake) -> None:
    query_id, unknown = numbers.start("SELECT 1"), str(uuid.uuid4())
    answer = numbers.athena.batch_get_query_execution(QueryExecutionIds=[unknown, query_id])
    assert [entry["QueryExecutionId"] for entry in answer["QueryExecutions"]] == [query_id]
    assert [entry["QueryExecutionId"] for entry in answer["UnprocessedQueryExecutionIds"]] == [unknown]
    with pytest.raises(ClientError):
        numbers.athena.batch_get_query_execution(QueryExecutionIds=[query_id] * 51)


def test_results_of_an_unfinished_query_are_refused(numbers: Lake) -> None:
    numbers.aws.faults.hold_queries(at="queued")
    with pytest.raises(ClientError) as error:
        numbers.athena.get_query_results(QueryExecutionId=numbers.start("SELECT 1"))
    assert status_of(error) == (400, "InvalidRequestException")


def test_an_enforced_location_overrides_the_querys(numbers: Lake) -> None:
    numbers.athena.create_work_group(
        Name="strict", Configuration={"ResultConfiguration": {"OutputLocation": "s3://results/enforced"}}
    )
    found = numbers.athena.get_work_group(WorkGroup="strict")["WorkGroup"]["Configuration"]
    assert found["EnforceWorkGroupConfiguration"] is True
    query_id = numbers.start(UNLOAD, WorkGroup="strict")
    assert numbers.wait(query_id)["Statistics"]["DataManifestLocation"].startswith("s3://results/enforced/")
    assert numbers.describe(query_id)["WorkGroup"] == "strict"


def test_a_query_without_any_result_location_is_refused(numbers: Lake) -> None:
    with pytest.raises(ClientError) as error:
        numbers.athena.start_query_execution(QueryString="SELECT 1")
    assert status_of(error) == (400, "InvalidRequestException")
    assert "No output location provided" in error.value.response["Error"]["Message"]


@pytest.mark.parametrize("location", ["results/q/", "s3://absent-bucket/q/"])
def test_a_result_location_that_is_none_is_refused(numbers: Lake, location: str) -> None:
    with pytest.raises(ClientError) as error:
        numbers.start("SELECT 1", ResultConfiguration={"OutputLocation": location})
    assert status_of(error) == (400, "InvalidRequestException")


def test_an_unknown_workgroup_is_refused(numbers: Lake) -> None:
    with pytest.raises(ClientError) as error:
        numbers.start("SELECT 1", WorkGroup="absent")
    assert status_of(error) == (400, "InvalidRequestException")
    assert numbers.athena.get_work_group(WorkGroup="primary")["WorkGroup"]["State"] == "ENABLED"


def test_what_athena_offers_and_this_does_not_is_said(lake: Lake) -> None:
    with pytest.raises(ClientError, match="ListDataCatalogs is not built"):
        lake.athena.list_data_catalogs()


def test_glue_update_with_a_stale_version_is_refused(numbers: Lake) -> None:
    table = numbers.glue.get_table(DatabaseName="db", Name="numbers")["Table"]
    change = {"Name": "numbers", "StorageDescriptor": table["StorageDescriptor"]}
    numbers.glue.update_table(DatabaseName="db", TableInput=change, VersionId=table["VersionId"])
    with pytest.raises(ClientError) as error:
        numbers.glue.update_table(DatabaseName="db", TableInput=change, VersionId=table["VersionId"])
    assert status_of(error) == (400, "ConcurrentModificationException")
    assert numbers.glue.get_tables(DatabaseName="db")["TableList"][0]["VersionId"] != table["VersionId"]
