"""deploy/bucket.yaml: valid, and its policies grant what the code really sends, no more and no less.

The embedded AWS enforces no policy and runs no lifecycle rule. What is compared here is the text of the policies with
the requests that real publications send.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from athena_assets import UpstreamTable, errors
from athena_assets.aws import multipart
from athena_assets.aws.glue_watch import look_at
from athena_assets.aws.running import running_queries
from athena_assets.aws.session import AwsClients
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import EmbeddedAws, Fault, Respond
from athena_assets_tests.deploy.template import (
    ACCOUNT,
    BUCKET_YAML,
    REGION,
    ROLE_ARN,
    covers,
    denied,
    listed,
    resources,
)
from athena_assets_tests.e2e.lake import ROWS_PER_FILE, Lake

ACTIONS = {
    "s3:GetObject": ["s3:GetObject"],
    "s3:HeadObject": ["s3:GetObject"],
    "s3:ListObjectsV2": ["s3:ListBucket"],
    "s3:PutObject": ["s3:PutObject"],
    "s3:CopyObject": ["s3:PutObject"],  # of the destination; the source's GetObject is asserted where it is sent
    "s3:DeleteObject": ["s3:DeleteObject"],
    "s3:CreateMultipartUpload": ["s3:PutObject"],
    "s3:UploadPartCopy": ["s3:PutObject"],
    "s3:CompleteMultipartUpload": ["s3:PutObject"],
    "s3:AbortMultipartUpload": ["s3:AbortMultipartUpload"],
    "s3:ListMultipartUploads": ["s3:ListBucketMultipartUploads"],
}
"""The IAM actions of an operation; every operation of Athena and Glue is an action of the same name."""


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with EmbeddedAws.start() as aws:
        aws.faults.rows_per_file(ROWS_PER_FILE)
        yield Lake(aws)


@pytest.fixture(scope="module")
def stack(lake: Lake) -> dict[str, Any]:
    return resources(
        BucketName=lake.bucket,
        PublisherPrincipals=f"arn:aws:iam::{ACCOUNT}:role/dagster",
        WorkGroups="primary,ad-hoc.2",
        UpstreamDatabases=f"elsewhere,{lake.database}",
        UpstreamBucketArns=f"arn:aws:s3:::elsewhere,arn:aws:s3:::{lake.bucket}",
        PublishedDatabases=lake.database,
    )


@pytest.fixture(scope="module")
def sent(lake: Lake) -> set[tuple[str, str]]:
    """(action, resource ARN) of every request of publications of all kinds, and of the commands for people."""
    publisher = lake.publisher(lease=60)
    already = {each.sequence for each in lake.aws.requests()}

    target = lake.target("staged")
    location = parse_location(target.location)
    publisher.unload(target)
    publisher.unload(target, force=True)
    publisher.restore(location, 1)
    prefix = location.prefix
    lake.s3.put_object(Bucket=lake.bucket, Key=f"{prefix}stranger", Body=b"x")
    assert not publisher.scrub(location).clean
    publisher.unload(lake.target("direct", mode="direct"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multipart, "LARGEST_COPY", 0)
        lake.aws.faults.add(Fault(Respond(503, "SlowDown"), "s3", "CompleteMultipartUpload"))
        publisher.unload(lake.target("large"))

    failing = lake.target("failing", retries=0)
    lake.aws.faults.fail_queries(sql_contains="failing", after_files=2)
    with pytest.raises(errors.QueryInternalError):
        publisher.unload(failing)
    publisher.collect(parse_location(failing.location), delete=True)

    slow = lake.target("slow", timeout=0.3)
    hold = lake.aws.faults.hold_queries(sql_contains="slow")
    with pytest.raises(errors.QueryTimedOut):
        publisher.unload(slow)
    lake.aws.faults.release(hold)

    add_partitioned_table(lake)
    parts = lake.target(
        "parts",
        query="SELECT n FROM numbers WHERE n < length(${partition})",
        location=f"s3://{lake.bucket}/published/parts/dt=${{partition}}/",
        glue_table=f"{lake.database}.shown",
        upstreams=(UpstreamTable(lake.database, "by_day"),),
    )
    outcomes = dict(publisher.unload_partitions(parts, ["a", "bb"]))
    assert not [each for each in outcomes.values() if isinstance(each, Exception)]
    publisher.unload(parts, partition="a", force=True)

    for changes in ({}, {"location": f"s3://{lake.bucket}/published/pointed_by_day/dt=${{partition}}/"}):
        pointed = lake.target(
            "pointed", mode="pointer", **{"glue_table": f"{lake.database}.moved_{len(changes)}", **changes}
        )
        for _ in range(2):
            publisher.unload(pointed, partition="a" if changes else None, force=True)

    running_queries(AwsClients(lake.settings), ["primary"])
    tables = [UpstreamTable(lake.database, name) for name in ("numbers", "by_day")]
    assert not look_at(AwsClients(lake.settings), tables, {}, seconds=60).failed

    return {
        request
        for each in lake.aws.requests()
        if each.sequence not in already and "athena_assets/" in each.user_agent
        for request in requests_of(each.service, each.operation, each.bucket, each.key)
    }


def add_partitioned_table(lake: Lake) -> None:
    table = lake.glue.get_table(DatabaseName=lake.database, Name="numbers")["Table"]
    storage = table["StorageDescriptor"]
    lake.glue.create_table(
        DatabaseName=lake.database,
        TableInput={
            "Name": "by_day",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": table["Parameters"],
            "PartitionKeys": [{"Name": "day", "Type": "string"}],
            "StorageDescriptor": storage,
        },
    )
    lake.glue.create_partition(
        DatabaseName=lake.database,
        TableName="by_day",
        PartitionInput={"Values": ["2024-01-31"], "StorageDescriptor": storage},
    )


def requests_of(service: str, operation: str, bucket: str | None, key: str | None) -> list[tuple[str, str]]:
    match service:
        case "s3":
            resource = f"arn:aws:s3:::{bucket}" + ("" if operation.startswith("List") else f"/{key}")
        case "athena":
            resource = f"arn:aws:athena:{REGION}:{ACCOUNT}:workgroup/primary"
        case _:
            assert service == "glue"
            assert key is not None
            table = key.replace(".", "/") if "." in key else f"{key}/*"
            resource = f"arn:aws:glue:{REGION}:{ACCOUNT}:table/{table}"
    name = f"{service}:{operation}"
    return [(action, resource) for action in (ACTIONS[name] if service == "s3" else [name])]


def statements(stack: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The statements of every policy of the publisher's role whose Sid begins so."""
    return [
        statement
        for resource in stack.values()
        if resource["Type"] == "AWS::IAM::RolePolicy"
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        if statement["Sid"].startswith(kind)
    ]


def actions(found: list[dict[str, Any]]) -> set[str]:
    return {action for statement in found for action in listed(statement["Action"])}


# --- the template ----------------------------------------------------------------------------------------------------


def test_cfn_lint_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("cfn-lint")
    run = subprocess.run([program, str(BUCKET_YAML)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_no_lifecycle_rule_expires_what_a_register_may_name(stack: dict[str, Any]) -> None:
    rules = stack["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    expiring = [rule for rule in rules if "ExpirationInDays" in rule or "ExpirationDate" in rule]
    assert [rule["Prefix"] for rule in expiring] == ["athena-results/"]
    for rule in expiring:
        for kept in (keys.CONTROL_PREFIX, "published/"):
            assert not kept.startswith(rule["Prefix"])
            assert not rule["Prefix"].startswith(kept)
    assert all(rule["Status"] == "Enabled" for rule in rules)
    # Athena's longest DML timeout is 240 minutes; a day of a lifecycle rule is never shorter than 24 hours.
    (abort,) = [rule["AbortIncompleteMultipartUpload"] for rule in rules if "AbortIncompleteMultipartUpload" in rule]
    assert abort["DaysAfterInitiation"] * 24 * 60 > 240


# --- the publisher's policy ------------------------------------------------------------------------------------------


def test_every_request_of_the_code_is_allowed(stack: dict[str, Any], sent: set[tuple[str, str]]) -> None:
    allowed = statements(stack, "Publisher")
    refused = [request for request in sent if not any(covers(each, *request) for each in allowed)]
    assert refused == []


def test_no_action_is_allowed_that_the_code_does_not_send(stack: dict[str, Any], sent: set[tuple[str, str]]) -> None:
    assert actions(statements(stack, "Publisher")) == {action for action, _ in sent}


def test_queries_run_in_each_workgroup_that_is_given_and_in_no_other(stack: dict[str, Any]) -> None:
    found = [each for each in statements(stack, "Publisher") if each["Sid"] == "PublisherRunsQueries"]
    workgroups = [f"arn:aws:athena:{REGION}:{ACCOUNT}:workgroup/{name}" for name in ("primary", "ad-hoc.2")]
    assert [each["Resource"] for each in found] == workgroups
    assert found[0]["Action"] == found[1]["Action"]


def test_every_statement_says_who_needs_it_and_allows_no_wildcard_action(stack: dict[str, Any]) -> None:
    everything = statements(stack, "")
    assert len(everything) == len(statements(stack, "Publisher")) + len(statements(stack, "Athena"))
    assert not [action for action in actions(everything) if "*" in action]
    assert not [resource for each in everything for resource in listed(each["Resource"]) if resource == "*"]


def test_the_publisher_deletes_only_at_locations_and_under_control(lake: Lake, stack: dict[str, Any]) -> None:
    everything = statements(stack, "")
    for key in ("upstream/numbers/part-0.parquet", "athena-results/x.csv", "published"):
        assert not any(covers(each, "s3:DeleteObject", f"arn:aws:s3:::{lake.bucket}/{key}") for each in everything)


def test_readers_only_read(stack: dict[str, Any]) -> None:
    granted = actions(stack["ReaderPolicy"]["Properties"]["PolicyDocument"]["Statement"])
    assert granted == {"s3:GetBucketLocation", "s3:GetObject", "s3:ListBucket"}


# --- the bucket's policy ---------------------------------------------------------------------------------------------

DELETE, CONDITION, CONTROL = (
    "NobodyDeletesARegister",
    "RegistersAreWrittenUnderACondition",
    "OnlyThePublisherWritesUnderControl",
)
REGISTER, STAGED, MANIFEST, PUBLISHED = "register.json", "staging/00000001-01-ab/x", "manifests/00000001-01.json", None
PUBLISHER, OTHER = {"aws:PrincipalArn": ROLE_ARN}, {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:role/other"}
CREATES, REPLACES = {"s3:if-none-match": "*"}, {"s3:if-match": '"etag"'}


@pytest.mark.parametrize(
    ("action", "below", "context", "expected"),
    [
        ("s3:PutObject", REGISTER, PUBLISHER | CREATES, set()),
        ("s3:PutObject", REGISTER, PUBLISHER | REPLACES, set()),
        ("s3:PutObject", REGISTER, PUBLISHER, {CONDITION}),
        ("s3:PutObject", REGISTER, OTHER, {CONDITION, CONTROL}),
        ("s3:PutObject", REGISTER, OTHER | CREATES, {CONTROL}),
        ("s3:DeleteObject", REGISTER, PUBLISHER | REPLACES, {DELETE}),
        ("s3:DeleteObjectVersion", REGISTER, OTHER, {DELETE, CONTROL}),
        ("s3:PutObject", STAGED, PUBLISHER, set()),  # Athena's own uploads carry no condition
        ("s3:DeleteObject", STAGED, PUBLISHER | REPLACES, set()),
        ("s3:DeleteObject", STAGED, OTHER, {CONTROL}),
        ("s3:PutObject", MANIFEST, OTHER | CREATES, {CONTROL}),
        ("s3:GetObject", REGISTER, OTHER, set()),
        ("s3:PutObject", PUBLISHED, OTHER, set()),  # who may write at locations is not this policy's concern
    ],
)
def test_the_bucket_refuses_what_would_break_the_protocol(
    lake: Lake, stack: dict[str, Any], action: str, below: str | None, context: dict[str, str], expected: set[str]
) -> None:
    location = parse_location(f"s3://{lake.bucket}/published/some where/x=1/")
    key = f"{location.prefix}00000001-01-00000" if below is None else f"{keys.slot_prefix(location)}{below}"
    policy = stack["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert denied(policy, action, f"arn:aws:s3:::{lake.bucket}/{key}", context) == expected


def test_every_register_key_is_covered_by_the_bucket_policy(lake: Lake, stack: dict[str, Any]) -> None:
    policy = {each["Sid"]: each for each in stack["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]}
    for path in ("a", "a/b/c", "x=1/y 2", "r/register.json"):
        location = parse_location(f"s3://{lake.bucket}/{path}/")
        register = f"arn:aws:s3:::{lake.bucket}/{keys.register_key(location)}"
        assert covers(policy[DELETE], "s3:DeleteObject", register)
        for other in (keys.manifest_key(location, 1, 1), keys.published_key(location, 1, 1, 0, "x.parquet")):
            assert not covers(policy[DELETE], "s3:DeleteObject", f"arn:aws:s3:::{lake.bucket}/{other}")


def test_every_write_of_the_code_carries_a_condition(lake: Lake) -> None:
    """Else the policy would refuse it: the request log has no headers, so the SDK's events tell."""
    publisher = lake.publisher(lease=60)
    seen: list[tuple[str, set[str]]] = []

    def before(model: Any, params: dict[str, Any], **_: Any) -> None:
        seen.append((model.name, {name.lower() for name in params["headers"]}))

    client = publisher._clients.s3_once
    client.meta.events.register("before-call.s3", before)  # type: ignore[no-untyped-call,unused-ignore]
    target = lake.target("conditions")
    publisher.unload(target)
    publisher.unload(target, force=True)
    assert {name for name, _ in seen} == {"PutObject", "CopyObject", "DeleteObject"}
    assert [name for name, headers in seen if not headers & {"if-match", "if-none-match"}] == []
