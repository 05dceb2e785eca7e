"""For someone with an account: what we assume of AWS, and one publication, on the real thing.

    AWS_E2E=1 AWS_E2E_LOCATION=s3://my-bucket/scratch/ [AWS_E2E_WORKGROUP=primary] make test-all

Uses the default credentials. Writes under AWS_E2E_LOCATION and the bucket's control prefix, makes a Glue database,
scans no table, and removes what it wrote.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from athena_assets import AwsSettings, Published, Publisher, Reused, Skipped, Target
from athena_assets.core import keys
from athena_assets.core.location import Location, parse_location

pytestmark = [pytest.mark.aws_e2e, pytest.mark.timeout(900)]

QUERY = "SELECT n FROM (VALUES 1, 2, 3) AS t (n)"


@pytest.fixture
def place() -> Iterator[Location]:
    root = parse_location(os.environ["AWS_E2E_LOCATION"])
    place = parse_location(f"{root}{uuid.uuid4().hex}/")
    yield place
    bucket = boto3.resource("s3").Bucket(place.bucket)
    for prefix in (place.prefix, keys.slot_prefix(place), f"{root.prefix}results/"):
        bucket.objects.filter(Prefix=prefix).delete()


@pytest.fixture
def publisher() -> Publisher:
    root = parse_location(os.environ["AWS_E2E_LOCATION"])
    workgroup = os.environ.get("AWS_E2E_WORKGROUP", "primary")
    return Publisher(AwsSettings(workgroup=workgroup, output_location=f"{root}results/"))


@pytest.fixture
def database() -> Iterator[str]:
    name, glue = f"aws_e2e_{uuid.uuid4().hex}", boto3.client("glue")
    glue.create_database(DatabaseInput={"Name": name})
    yield name
    glue.delete_database(Name=name)


def once(service: Any) -> Any:
    return boto3.client(service, config=Config(retries={"total_max_attempts": 1}))


def status_of(call: Any, **arguments: Any) -> int:
    try:
        response = call(**arguments)
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    return int(response["ResponseMetadata"]["HTTPStatusCode"])


def test_s3_refuses_what_the_register_needs_refused(place: Location) -> None:
    s3 = once("s3")
    where = {"Bucket": place.bucket, "Key": f"{place.prefix}object"}
    assert status_of(s3.put_object, **where, IfMatch='"0"', Body=b"") == 404
    etag = s3.put_object(**where, Body=b"1", IfNoneMatch="*")["ETag"]
    assert status_of(s3.put_object, **where, Body=b"2", IfNoneMatch="*") == 412
    assert status_of(s3.put_object, **where, Body=b"2", IfMatch='"0"') == 412
    copy = {"Bucket": place.bucket, "CopySource": where, "CopySourceIfMatch": etag}
    assert status_of(s3.copy_object, **copy, Key=f"{place.prefix}copy", IfNoneMatch="*") == 200
    assert status_of(s3.copy_object, **copy, Key=f"{place.prefix}copy", IfNoneMatch="*") == 412
    assert status_of(s3.delete_object, **where, IfMatch='"0"') == 412
    assert status_of(s3.delete_object, **where, IfMatch=etag) == 204


def test_a_token_answers_with_its_first_query(place: Location, publisher: Publisher) -> None:
    athena = once("athena")
    start = {
        "QueryString": f"-- one\n{QUERY}",
        "ClientRequestToken": uuid.uuid4().hex,
        "WorkGroup": publisher.settings.workgroup,
        "ResultConfiguration": {"OutputLocation": publisher.settings.output_location},
    }
    first = athena.start_query_execution(**start)["QueryExecutionId"]
    assert athena.start_query_execution(**start)["QueryExecutionId"] == first
    with pytest.raises(ClientError) as refused:
        athena.start_query_execution(**(start | {"QueryString": f"-- two\n{QUERY}"}))
    assert refused.value.response.get("AthenaErrorCode") == "IDEMPOTENT_PARAMETER_MISMATCH"
    while athena.get_query_execution(QueryExecutionId=first)["QueryExecution"]["Status"]["State"] != "SUCCEEDED":
        time.sleep(1)


def test_eight_threads_share_one_publication(place: Location, publisher: Publisher) -> None:
    target = Target(name="aws_e2e", query=QUERY, location=str(place))
    outcomes: list[Published | Reused | Skipped] = []
    threads = [threading.Thread(target=lambda: outcomes.append(publisher.unload(target))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(each).__name__ for each in outcomes) == ["Published", *["Reused"] * 7]
    listed = boto3.client("s3").list_objects_v2(Bucket=place.bucket, Prefix=place.prefix).get("Contents", [])
    assert not isinstance(outcomes[0], Skipped)
    publication = outcomes[0].publication
    assert len(listed) == publication.files
    assert sum(each["Size"] for each in listed) == publication.bytes


def test_a_forced_request_replaces_the_result(place: Location, publisher: Publisher) -> None:
    target = Target(name="aws_e2e", query=QUERY, location=str(place))
    s3 = boto3.client("s3")
    first = publisher.unload(target)
    old = {each["Key"] for each in s3.list_objects_v2(Bucket=place.bucket, Prefix=place.prefix)["Contents"]}
    second = publisher.unload(target, force=True)
    new = {each["Key"] for each in s3.list_objects_v2(Bucket=place.bucket, Prefix=place.prefix)["Contents"]}
    assert isinstance(first, Published)
    assert isinstance(second, Published)
    assert second.publication.query_id != first.publication.query_id
    assert new
    assert not old & new


def test_glue_refuses_an_update_of_an_older_version(place: Location, database: str) -> None:
    glue = once("glue")
    table = {"Name": "t", "StorageDescriptor": {"Location": str(place)}}
    glue.create_table(DatabaseName=database, TableInput=table)
    version = glue.get_table(DatabaseName=database, Name="t")["Table"]["VersionId"]
    update = {"DatabaseName": database, "TableInput": table, "VersionId": version, "SkipArchive": True}
    glue.update_table(**update)
    assert glue.get_table(DatabaseName=database, Name="t")["Table"]["VersionId"] != version
    with pytest.raises(ClientError) as refused:
        glue.update_table(**update)
    assert refused.value.response["Error"]["Code"] == "ConcurrentModificationException"


def test_a_glue_table_is_pointed_at_each_result(place: Location, publisher: Publisher, database: str) -> None:
    target = Target(name="aws_e2e", query=QUERY, location=str(place), mode="pointer", glue_table=f"{database}.t")
    places = []
    for force in (False, True):
        outcome = publisher.unload(target, force=force)
        assert isinstance(outcome, Published)
        table = boto3.client("glue").get_table(DatabaseName=database, Name="t")["Table"]
        places.append(table["StorageDescriptor"]["Location"])
        assert places[-1] == f"s3://{place.bucket}/{outcome.publication.directory}"
        files = publisher.read_manifest(target).files
        assert len(files) == outcome.publication.files
        assert all(file.uri.startswith(places[-1]) for file in files)
    assert places[0] != places[1]
