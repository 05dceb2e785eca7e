"""What is refused before a query is started, and leaves everything as it was."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from athena_assets import AwsSettings, Published, Publisher, errors
from athena_assets.core.location import parse_location
from athena_assets_tests.e2e.lake import Lake, done


def with_settings(lake: Lake, **changes: Any) -> Publisher:
    settings: AwsSettings = dataclasses.replace(lake.settings, **changes)
    return Publisher(settings)


def test_a_sibling_prefix_is_nobodys_business(lake: Lake) -> None:
    target = lake.target()
    sibling = target.location.rstrip("/") + "_old/"
    key = sibling.split("/", 3)[3] + "kept.parquet"
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"precious")
    publisher = lake.publisher()
    publisher.unload(target)
    publisher.unload(target, force=True)
    assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"precious"
    lake.assert_published_once(target.location)


def test_a_consoles_folder_marker_is_left_alone(lake: Lake) -> None:
    target = lake.target()
    marker = target.location.split("/", 3)[3]
    lake.s3.put_object(Bucket=lake.bucket, Key=marker, Body=b"")
    assert isinstance(lake.publisher().unload(target), Published)
    assert marker in lake.listing(target.location)


def test_an_enforced_result_location_that_clashes_is_refused(lake: Lake) -> None:
    lake.aws.client("athena").create_work_group(
        Name="enforced",
        Configuration={
            "EnforceWorkGroupConfiguration": True,
            "ResultConfiguration": {"OutputLocation": f"s3://{lake.bucket}/enforced/"},
        },
    )
    target = lake.target(workgroup="enforced")
    with pytest.raises(errors.WorkgroupConflict, match="enforces the result location"):
        lake.publisher().unload(target)
    assert lake.queries(target.location) == []
    assert isinstance(with_settings(lake, output_location=None).unload(target), Published)
    lake.assert_published_once(target.location)


@pytest.mark.parametrize("place", ["", "/published/", "/published/inside/deeper/"])
def test_a_result_location_that_overlaps_the_target_is_refused(lake: Lake, place: str) -> None:
    target = lake.target("inside")
    with pytest.raises(errors.WorkgroupConflict, match="overlaps the target's location"):
        with_settings(lake, output_location=f"s3://{lake.bucket}{place}").unload(target)
    assert lake.queries(target.location) == []


def test_no_result_location_at_all_is_refused(lake: Lake) -> None:
    target = lake.target()
    with pytest.raises(errors.WorkgroupConflict, match="name a query result location"):
        with_settings(lake, output_location=None).unload(target)


def test_a_bucket_of_another_account_is_refused(lake: Lake) -> None:
    target = lake.target()
    with pytest.raises(errors.AccessDenied, match="403"):
        with_settings(lake, expected_bucket_owner="999999999999").unload(target)
    assert lake.queries(target.location) == []
    assert lake.register(target.location) is None


def test_every_s3_call_names_the_expected_owner(lake: Lake) -> None:
    publisher = with_settings(lake, expected_bucket_owner="123456789012")
    seen: list[tuple[str, str | None, str | None]] = []

    def record(request: Any, operation_name: str, **_: Any) -> None:
        source = request.headers.get("x-amz-source-expected-bucket-owner")
        seen.append((operation_name, request.headers.get("x-amz-expected-bucket-owner"), source))

    clients = publisher._clients
    for client in (clients.s3, clients.s3_once):
        client.meta.events.register("before-sign.s3", record)
    target = lake.target()
    outcome = done(publisher.unload(target))
    publisher.unload(target, force=True)
    publisher.sample(target, outcome)
    location = parse_location(target.location)
    publisher.scrub(location)
    publisher.collect(location, delete=True)
    publisher.restore(location, outcome.publication.fence)
    assert {owner for _, owner, _ in seen} == {"123456789012"}
    assert {source for operation, _, source in seen if operation == "CopyObject"} == {"123456789012"}
    operations = {operation for operation, _, _ in seen}
    assert operations >= {"CopyObject", "DeleteObject", "GetObject", "ListObjectsV2", "PutObject"}


def test_a_missing_bucket_is_named(lake: Lake) -> None:
    target = lake.target(location="s3://no-such-bucket-anywhere/a/")
    with pytest.raises(errors.AccessDenied, match="NoSuchBucket"):
        lake.publisher().unload(target)


def test_a_syntax_error_that_athena_finds_starts_nothing(lake: Lake) -> None:
    target = lake.target(query="SELECT n FROM numbers WHERE WHERE")
    with pytest.raises(errors.QueryUserError, match="not started"):
        lake.publisher().unload(target)
    assert lake.queries(target.location) == []
    register = lake.register(target.location)
    assert register is not None
    assert register.state == "free"


def test_a_statement_over_the_limit_after_rendering_is_refused(lake: Lake) -> None:
    target = lake.target(query="SELECT n FROM numbers WHERE ${text} <> ''", parameters={"text": "x" * 262_144})
    with pytest.raises(errors.InvalidTarget, match="262,144"):
        lake.publisher().unload(target)
    assert lake.register(target.location) is None
