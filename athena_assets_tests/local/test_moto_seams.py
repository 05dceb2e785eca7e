"""Each private part of moto that `moto_seams` leans on, in process: fails when a new moto moves one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import boto3
import moto
import pytest
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.stepfunctions.parser.asl.utils.boto_client import boto_client_for

from athena_assets.local import moto_seams, moto_task_seams
from athena_assets.local.s3_clock import CLOCK
from athena_assets_tests.local.conftest import eventually
from athena_assets_tests.local.functions import ROLE, zipped


@pytest.fixture(autouse=True)
def inside_moto() -> Iterator[None]:
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="p/1", Body=b"one")
        yield
        moto_seams.reset()


def test_the_pinned_moto_is_the_one_that_was_read() -> None:
    assert moto.__version__ == "5.2.5"


def test_bucket_owner_is_the_account() -> None:
    assert moto_seams.bucket_owner("bucket") == DEFAULT_ACCOUNT_ID
    assert moto_seams.bucket_owner("absent") is None


def test_etag_is_what_the_api_says() -> None:
    told = boto3.client("s3", region_name="us-east-1").head_object(Bucket="bucket", Key="p/1")["ETag"]
    assert moto_seams.current_etag("bucket", "p/1") == told.strip('"')
    assert moto_seams.current_etag("bucket", "absent") is None
    assert moto_seams.current_etag("absent", "p/1") is None


def test_a_stamp_moves_what_the_api_says_by_the_advanced_clock() -> None:
    client = boto3.client("s3", region_name="us-east-1")
    before = client.head_object(Bucket="bucket", Key="p/1")["LastModified"]
    CLOCK.advance(3600)
    try:
        moto_seams.stamp("bucket", "p/1")
    finally:
        CLOCK.reset()
    assert client.head_object(Bucket="bucket", Key="p/1")["LastModified"] - before == timedelta(hours=1)


def test_a_delete_marker_is_no_object() -> None:
    client = boto3.client("s3", region_name="us-east-1")
    client.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    client.delete_object(Bucket="bucket", Key="p/1")
    assert moto_seams.current_etag("bucket", "p/1") is None
    assert moto_seams.list_objects("bucket", "") == []


def test_objects_written_from_inside_are_read_outside_and_inside() -> None:
    assert moto_seams.put_object("bucket", "p/0", b"zero", unless=lambda: False)
    assert boto3.client("s3", region_name="us-east-1").get_object(Bucket="bucket", Key="p/0")["Body"].read() == b"zero"
    assert [(entry.key, entry.size) for entry in moto_seams.list_objects("bucket", "p/")] == [("p/0", 4), ("p/1", 3)]
    found = moto_seams.read_object("bucket", "p/1")
    assert found is not None
    assert found[1] == b"one"


def test_a_stopped_writer_writes_nothing() -> None:
    assert not moto_seams.put_object("bucket", "p/2", b"", unless=lambda: True)
    assert [entry.key for entry in moto_seams.list_objects("bucket", "p/")] == ["p/1"]


def test_glue_tables_come_with_their_partitions() -> None:
    glue: Any = boto3.client("glue", region_name="us-east-1")
    glue.create_database(DatabaseInput={"Name": "db"})
    storage = {"Columns": [{"Name": "n", "Type": "int"}], "Location": "s3://bucket/t/"}
    keys = [{"Name": "day", "Type": "string"}]
    glue.create_table(DatabaseName="db", TableInput={"Name": "t", "StorageDescriptor": storage, "PartitionKeys": keys})
    glue.create_partition(
        DatabaseName="db", TableName="t", PartitionInput={"Values": ["1"], "StorageDescriptor": storage}
    )
    table = moto_seams.glue_table("us-east-1", "db", "t")
    assert table is not None
    assert (table["VersionId"], [entry["Values"] for entry in table["Partitions"]]) == ("1", [["1"]])
    assert moto_seams.glue_table("us-east-1", "db", "absent") is None
    assert moto_seams.glue_has_database("us-east-1", "db")
    assert not moto_seams.glue_has_database("us-east-1", "absent")


def test_functions_are_found_with_their_code() -> None:
    boto3.client("iam").create_role(RoleName="role", AssumeRolePolicyDocument="{}")
    code = zipped({"app.py": ""})
    client: Any = boto3.client("lambda", region_name="us-east-1")
    settings = {"Role": ROLE, "Handler": "app.handler", "Environment": {"Variables": {"B": "2", "A": "1"}}}
    for name, runtime in (("f", "python3.13"), ("other", "nodejs22.x")):
        client.create_function(FunctionName=name, Code={"ZipFile": code}, Runtime=runtime, Timeout=7, **settings)
    found = moto_task_seams.find_function("us-east-1", "f", None)
    assert found is not None
    assert (found.name, found.version, found.region, found.handler) == ("f", "$LATEST", "us-east-1", "app.handler")
    assert (found.runtime, found.timeout, found.memory_size) == ("python3.13", 7.0, 128)
    assert (found.variables, found.code) == ((("A", "1"), ("B", "2")), code)
    client.update_function_code(FunctionName="f", ZipFile=zipped({"app.py": "x = 1"}))
    assert moto_task_seams.find_function("us-east-1", "f", "$LATEST") != found
    assert moto_task_seams.find_function("us-east-1", "f", "7") is None
    assert moto_task_seams.find_function("us-east-1", "absent", None) is None
    with pytest.raises(ValueError, match="other is no Python function"):
        moto_task_seams.find_function("us-east-1", "other", None)


def test_step_functions_call_other_services_with_their_own_key() -> None:
    moto_task_seams.prepare_callers()
    client: Any = boto_client_for("us-east-1", "lambda")
    assert client._get_credentials().access_key == moto_task_seams.CALLER


def test_executions_run_and_are_stopped() -> None:
    moto_task_seams.execute_state_machines()
    client: Any = boto3.client("stepfunctions", region_name="us-east-1")
    text = json.dumps({"StartAt": "W", "States": {"W": {"Type": "Wait", "SecondsPath": "$.seconds", "End": True}}})
    machine = client.create_state_machine(name="m", definition=text, roleArn=ROLE)["stateMachineArn"]
    assert moto_task_seams.find_state_machine("us-east-1", "m") == (text, ROLE)
    assert moto_task_seams.find_state_machine("us-east-1", "absent") is None

    def start(seconds: int) -> Any:
        begun = client.start_execution(stateMachineArn=machine, name=f"w{seconds}", input=f'{{"seconds": {seconds}}}')
        return moto_task_seams.find_execution(begun["executionArn"])

    ended = start(0)
    eventually(lambda: ended.status == "SUCCEEDED")
    assert moto_task_seams.end_of(ended) == ended.stop_date
    assert moto_task_seams.stop_execution(ended, "Ours", "why") == ended.stop_date
    assert (ended.status, ended.error) == ("SUCCEEDED", None)
    waiting = start(600)
    assert moto_task_seams.end_of(waiting) is None
    stopped = moto_task_seams.stop_execution(waiting, "Ours", "why")
    assert (waiting.status, waiting.error, waiting.cause) == ("ABORTED", "Ours", "why")
    # What moto's thread does if the stop comes between two looks of it.
    waiting.exec_worker.env.set_error({"error": "States.Runtime", "cause": "No such state None."})
    waiting.exec_worker.env.set_timed_out()
    eventually(lambda: waiting.stop_date != stopped)
    moto_task_seams.reflect_stops()
    assert (waiting.status, waiting.error, waiting.cause) == ("ABORTED", "Ours", "why")
    assert moto_task_seams.end_of(waiting) == stopped
    assert moto_task_seams.find_execution(machine) is None
    last = start(601)
    moto_task_seams.stop_execution(start(602), None, None)
    eventually(lambda: last.exec_worker.env is not None and last.exec_worker.env.program_state() is not None)
    moto_task_seams.stop_executions()
    moto_task_seams.reflect_stops()
    assert last.status == "ABORTED"


def test_reset_empties_every_backend() -> None:
    moto_seams.reset()
    assert moto_seams.bucket_owner("bucket") is None


@pytest.mark.parametrize(("service", "path"), [("s3", "/bucket/p/1"), ("sts", "/")])
def test_applications_serve_requests(service: str, path: str) -> None:
    scope = f"Credential=embedded/20260101/us-east-1/{service}/aws4_request"
    environ = {
        "REQUEST_METHOD": "GET" if service == "s3" else "POST",
        "PATH_INFO": path,
        "QUERY_STRING": "" if service == "s3" else "Action=GetCallerIdentity&Version=2011-06-15",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "5000",
        "HTTP_HOST": "127.0.0.1:5000",
        "HTTP_AUTHORIZATION": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(b""),
        "CONTENT_LENGTH": "0",
    }
    reply = moto_seams.MotoApps().call(service, environ)
    assert reply.status == 200
    assert (b"one" if service == "s3" else DEFAULT_ACCOUNT_ID.encode()) in reply.body
