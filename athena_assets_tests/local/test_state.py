"""State in a folder: what a client was told is true for the next server, also after a SIGKILL."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from moto import mock_aws

from athena_assets.local import EmbeddedAws, EmbeddedAwsError, moto_seams
from athena_assets.local.state_folder import FILE
from athena_assets_tests.local.conftest import Lake, eventually, status_of

ROOT = Path(__file__).resolve().parents[2]
UNLOAD = "UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' WITH (format = 'PARQUET')"


@contextmanager
def served(folder: Path) -> Iterator[tuple[EmbeddedAws, subprocess.Popen[bytes]]]:
    """A server that the test may kill."""
    command = [sys.executable, "-m", "athena_assets.local.server", "--state", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["port"]
            yield EmbeddedAws.attach(f"http://127.0.0.1:{port}"), process
        finally:
            process.kill()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def again(aws: EmbeddedAws) -> Lake:
    """A `Lake` on a server that already has its buckets."""
    lake = Lake.__new__(Lake)
    lake.aws = aws
    lake.s3, lake.athena, lake.glue = (aws.client(name) for name in ("s3", "athena", "glue"))
    return lake


def test_every_conditional_put_that_was_acknowledged_survives_a_sigkill(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}  # the last turn of each writer that it was told of

    def write(lake: Lake, number: int) -> None:
        key, etag = f"register-{number}", None
        for turn in range(100_000):
            condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
            try:
                etag = lake.put(key, f"{number} {turn}".encode(), **condition)
            except (ClientError, BotoCoreError):
                return
            acknowledged[key] = turn

    with served(tmp_path) as (aws, process):
        lake = Lake(aws)
        writers = [threading.Thread(target=write, args=(lake, number)) for number in range(8)]
        for writer in writers:
            writer.start()
        eventually(lambda: len(acknowledged) == 8)
        time.sleep(0.5)
        kill(process)
        for writer in writers:
            writer.join()
    with served(tmp_path) as (aws, _):
        lake = again(aws)
        for key, turn in acknowledged.items():
            found = lake.s3.get_object(Bucket="out", Key=key)
            # The one after it may have been applied without its reply having arrived.
            assert int(found["Body"].read().split()[1]) in (turn, turn + 1)
            with pytest.raises(ClientError) as error:
                lake.put(key, IfNoneMatch="*")
            assert status_of(error) == (412, "PreconditionFailed")
            lake.put(key, b"next", IfMatch=found["ETag"])


def test_a_later_server_knows_what_the_earlier_one_told(tmp_path: Path) -> None:
    tokens = {name: uuid.uuid4().hex for name in ("unload", "failed", "forgotten")}
    with served(tmp_path) as (aws, process):
        lake = Lake(aws)
        lake.put("tagged é/ %20", b"body", Metadata={"a": "b"}, ContentType="text/plain", Tagging="t=1")
        lake.put("gone")
        lake.s3.delete_object(Bucket="out", Key="gone")
        lake.put("gone-too")
        lake.s3.delete_objects(Bucket="out", Delete={"Objects": [{"Key": "gone-too"}]})
        lake.s3.create_bucket(Bucket="removed")
        lake.s3.delete_bucket(Bucket="removed")
        upload = lake.s3.create_multipart_upload(Bucket="out", Key="parts")["UploadId"]
        part = lake.s3.upload_part(Bucket="out", Key="parts", UploadId=upload, PartNumber=1, Body=b"part")
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        lake.s3.complete_multipart_upload(Bucket="out", Key="parts", UploadId=upload, MultipartUpload=parts)
        lake.s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
        lake.table("numbers", pa.table({"n": pa.array(range(100), pa.int64())}))
        lake.put("marked", bucket="data")
        lake.s3.delete_object(Bucket="data", Key="marked")
        lake.athena.create_work_group(Name="kept", Configuration={"EnforceWorkGroupConfiguration": False})
        lake.athena.create_work_group(Name="dropped")
        lake.athena.delete_work_group(WorkGroup="dropped")
        lake.start("SELECT 1 AS v", ClientRequestToken=tokens["forgotten"])
        aws.faults.forget_tokens()
        first = lake.run(UNLOAD, ClientRequestToken=tokens["unload"])
        failed = lake.run(f"{UNLOAD} -- again", ClientRequestToken=tokens["failed"])
        rows = lake.run("SELECT n FROM numbers WHERE n < 2 ORDER BY n")["QueryExecutionId"]
        before = observed(lake)
        kill(process)
    with served(tmp_path) as (aws, _):
        lake = again(aws)
        assert observed(lake) == before
        assert lake.keys() == [*before["keys"]]
        assert lake.read("tagged é/ %20") == b"body"
        assert lake.describe(first["QueryExecutionId"]) == first
        assert lake.describe(failed["QueryExecutionId"]) == failed
        assert lake.start(UNLOAD, ClientRequestToken=tokens["unload"]) == first["QueryExecutionId"]
        assert lake.start(f"{UNLOAD} -- again", ClientRequestToken=tokens["failed"]) == failed["QueryExecutionId"]
        assert lake.start("SELECT 1 AS v", ClientRequestToken=tokens["forgotten"]) not in before["queries"]
        answer = lake.athena.get_query_results(QueryExecutionId=rows)["ResultSet"]["Rows"]
        assert [row["Data"][0]["VarCharValue"] for row in answer] == ["n", "0", "1"]
        assert lake.rows("SELECT count(*) FROM numbers") == [("100",)]
        assert lake.describe(lake.athena.list_query_executions()["QueryExecutionIds"][0])["Query"].startswith(
            "SELECT c"
        )


def observed(lake: Lake) -> dict[str, Any]:
    """What the API tells of everything that is kept."""
    head = lake.s3.head_object(Bucket="out", Key="tagged é/ %20")
    versions = lake.s3.list_object_versions(Bucket="data")
    keys = lake.keys()
    return {
        "buckets": lake.s3.list_buckets()["Buckets"],
        "keys": {key: lake.s3.head_object(Bucket="out", Key=key)["ETag"] for key in keys},
        "head": {name: head[name] for name in ("ETag", "LastModified", "Metadata", "ContentType")},
        "tags": lake.s3.get_object_tagging(Bucket="out", Key="tagged é/ %20")["TagSet"],
        "versions": [(each["Key"], each["VersionId"]) for each in versions["Versions"]],
        "markers": [(each["Key"], each["VersionId"]) for each in versions["DeleteMarkers"]],
        "tables": lake.glue.get_tables(DatabaseName="db")["TableList"],
        "groups": lake.athena.list_work_groups()["WorkGroups"][:1],
        "queries": [query.query_id for query in lake.aws.queries()],
    }


@pytest.mark.long
def test_a_query_that_ran_when_the_server_was_killed_has_failed(tmp_path: Path) -> None:
    token = uuid.uuid4().hex
    with served(tmp_path) as (aws, process):
        lake = Lake(aws)
        lake.table("numbers", pa.table({"n": pa.array([1], pa.int64())}))
        hold = aws.faults.hold_queries(at="written")
        query_id = lake.start(UNLOAD, ClientRequestToken=token)
        eventually(lambda: aws.faults.held(hold) == [query_id])
        kill(process)
    for _ in range(2):
        with served(tmp_path) as (aws, process):
            lake = again(aws)
            status = lake.describe(query_id)["Status"]
            assert status["State"] == "FAILED"
            assert status["AthenaError"]["ErrorCategory"] == 1
            assert len(lake.keys("p/")) == 1
            assert lake.start(UNLOAD, ClientRequestToken=token) == query_id
            kill(process)


@pytest.mark.long
def test_a_reset_empties_the_folder_too(tmp_path: Path) -> None:
    with EmbeddedAws.start(state=tmp_path) as aws:
        lake = Lake(aws)
        lake.put("k")
        hold = aws.faults.hold_queries(at="checked")
        query_id = lake.start("SELECT 1 AS v")
        eventually(lambda: aws.faults.held(hold) == [query_id])
        aws.reset()
        lake.s3.create_bucket(Bucket="after")
    with EmbeddedAws.start(state=tmp_path) as aws:
        assert [bucket["Name"] for bucket in aws.client("s3").list_buckets()["Buckets"]] == ["after"]
        assert aws.queries() == []
        assert aws.client("glue").get_databases()["DatabaseList"] == []


@pytest.mark.long
def test_a_folder_has_one_server_at_a_time(tmp_path: Path) -> None:
    with EmbeddedAws.start(state=tmp_path):
        log = tmp_path / "log"
        with pytest.raises(EmbeddedAwsError):
            EmbeddedAws.start(state=tmp_path, log_path=log)
        assert "is another embedded AWS using it?" in log.read_text()


@pytest.mark.parametrize("how", ["another version", "no database"])
def test_what_another_version_wrote_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / FILE
    if how == "no database":
        path.write_bytes(b"x" * 10_000)
    else:
        with EmbeddedAws.start(state=tmp_path):
            assert path.exists()
        connection = sqlite3.connect(path)
        connection.execute("UPDATE state SET value = 'embedded AWS, format 999' WHERE kind = 'version'")
        connection.commit()
        connection.close()
    with pytest.raises(EmbeddedAwsError):
        EmbeddedAws.start(state=tmp_path, log_path=tmp_path / "log")
    wanted = "format 999, this is" if how == "another version" else "is not a state of the embedded AWS"
    assert wanted in (tmp_path / "log").read_text()


def test_motos_objects_come_back_from_their_dumps() -> None:
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="k", Body=b"one")
        bucket, key = moto_seams.dump_bucket("bucket"), moto_seams.dump_key("bucket", "k")
        moto_seams.reset()
        assert bucket is not None
        assert key is not None
        moto_seams.load_bucket("bucket", bucket)
        assert moto_seams.list_objects("bucket", "") == []
        moto_seams.load_key("bucket", "k", key)
        assert client.get_object(Bucket="bucket", Key="k")["Body"].read() == b"one"
        assert moto_seams.dump_bucket("absent") is None
        assert moto_seams.dump_key("bucket", "absent") is None
        moto_seams.reset()
