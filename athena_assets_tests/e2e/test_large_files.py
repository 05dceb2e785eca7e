"""Files that one CopyObject can't copy: in parts, under the same conditions, and nothing of it outlives the slot."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from athena_assets import Published, errors
from athena_assets.aws import multipart
from athena_assets.aws.s3 import S3
from athena_assets.aws.session import AwsClients
from athena_assets.core import keys
from athena_assets.core.effects import AbortUploads, Absent, CopyObject, Done, Refused, Unanswered
from athena_assets.core.location import parse_location
from athena_assets.local import DropReply, DropRequest, Fault, HoldRequest, Respond, RespondAfterApply
from athena_assets.local.faults import Action
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, wait_until

MIB = 1024**2
BODY = bytes(range(256)) * (11 * MIB // 256)  # three parts of five, five and one
LABELLED: dict[str, Any] = {
    "Metadata": {"by": "hand"},
    "ContentType": "text/csv",
    "ContentEncoding": "identity",
    "ContentLanguage": "de",
    "ContentDisposition": "inline",
    "CacheControl": "no-cache",
    "Expires": datetime(2030, 1, 2, tzinfo=UTC),
}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has more than 100 bytes is copied in parts, of the smallest size that S3 takes."""
    monkeypatch.setattr(multipart, "LARGEST_COPY", 100)
    monkeypatch.setattr(multipart, "PART_BYTES", 5 * MIB)


def uploads(lake: Lake) -> list[str]:
    return [each["Key"] for each in lake.s3.list_multipart_uploads(Bucket=lake.bucket).get("Uploads", ())]


def put(lake: Lake, key: str, body: bytes = BODY, **arguments: Any) -> str:
    return str(lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=body, **arguments)["ETag"])


def copy(lake: Lake, etag: str, destination: str = "copy", metadata: dict[str, str] | None = None) -> Any:
    effect = CopyObject("source", etag, len(BODY), destination, metadata)
    return S3(AwsClients(lake.settings), lake.bucket).copy(effect)


# --- one copy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [None, {"athena-assets-slot": "s3://lake/x/"}], ids=["kept", "replaced"])
def test_a_copy_in_parts_is_what_a_single_copy_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, metadata: dict[str, str] | None
) -> None:
    etag = put(lake, "source", Tagging="team=sales&cost=a%3Db", **LABELLED)
    assert copy(lake, etag, "single", metadata) == Done()
    monkeypatch.setattr(multipart, "LARGEST_COPY", 5 * MIB)
    monkeypatch.setattr(multipart, "PART_BYTES", 5 * MIB)
    assert copy(lake, etag, "parts", metadata) == Done()
    assert len(lake.aws.requests("s3", "UploadPartCopy")) == 3
    assert lake.s3.get_object(Bucket=lake.bucket, Key="parts")["Body"].read() == BODY
    heads = [lake.s3.head_object(Bucket=lake.bucket, Key=key) for key in ("single", "parts")]
    compared = [name for name in LABELLED if name != "Expires"]
    assert [heads[1].get(name) for name in compared] == [heads[0].get(name) for name in compared]
    if metadata is None:
        tags = lake.s3.get_object_tagging(Bucket=lake.bucket, Key="parts")["TagSet"]
        assert {each["Key"]: each["Value"] for each in tags} == {"team": "sales", "cost": "a=b"}
    assert uploads(lake) == []


def test_a_source_that_was_changed_is_not_copied(lake: Lake, small_parts: None) -> None:
    etag = put(lake, "source")
    put(lake, "source", BODY[::-1])
    assert copy(lake, etag) == Refused(412, "PreconditionFailed")
    assert "copy" not in lake.listing(f"s3://{lake.bucket}/copy")
    assert uploads(lake) == []


@pytest.mark.parametrize("metadata", [None, {}])
def test_a_source_that_is_gone_is_said(lake: Lake, small_parts: None, metadata: dict[str, str] | None) -> None:
    assert copy(lake, '"x"', metadata=metadata) == Absent()
    assert uploads(lake) == []


def test_what_lies_at_the_destination_is_not_overwritten(lake: Lake, small_parts: None) -> None:
    etag = put(lake, "source")
    put(lake, "copy", b"precious")
    assert copy(lake, etag) == Refused(412, "PreconditionFailed")
    assert lake.s3.get_object(Bucket=lake.bucket, Key="copy")["Body"].read() == b"precious"
    assert uploads(lake) == []


@pytest.mark.parametrize(
    "action", [DropReply(), DropRequest(), Respond(503, "SlowDown"), Respond(500, "InternalError")]
)
@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPartCopy", "CompleteMultipartUpload"])
def test_a_doubtful_answer_is_unanswered_and_what_was_begun_is_ended(
    lake: Lake, small_parts: None, operation: str, action: Action
) -> None:
    etag = put(lake, "source")
    lake.aws.faults.add(Fault(action, "s3", operation))
    assert isinstance(copy(lake, etag), Unanswered)
    applied = isinstance(action, DropReply)
    assert ("copy" in lake.listing(f"s3://{lake.bucket}/copy")) == (applied and operation == "CompleteMultipartUpload")
    # Nobody knows the id of an upload whose creation was not answered.
    assert uploads(lake) == (["copy"] if applied and operation == "CreateMultipartUpload" else [])


def test_uploads_are_ended_by_their_exact_keys(lake: Lake, small_parts: None) -> None:
    for key in ("copy", "copy", "copy-of-a-stranger", "small"):
        lake.s3.create_multipart_upload(Bucket=lake.bucket, Key=key)
    s3 = S3(AwsClients(lake.settings), lake.bucket)
    large, small = (CopyObject("source", '"x"', size, key, None) for size, key in ((len(BODY), "copy"), (1, "small")))
    assert s3.abort_uploads(AbortUploads((large, small))) == Done()
    assert sorted(uploads(lake)) == ["copy-of-a-stranger", "small"]
    assert s3.abort_uploads(AbortUploads((large, small))) == Done()


# --- publications ----------------------------------------------------------------------------------------------------


def test_a_result_of_large_files_is_published_kept_and_restored(lake: Lake, small_parts: None) -> None:
    target, publisher = lake.target(adopt_existing=True), lake.publisher()
    location = parse_location(target.location)
    put(lake, f"{location.prefix}old.csv", **LABELLED)
    publisher.unload(target)
    lake.assert_published_once(target.location)
    moved = keys.adopted_prefix(location, 1) + "old.csv"
    assert lake.s3.get_object(Bucket=lake.bucket, Key=moved)["Body"].read() == BODY
    assert lake.s3.head_object(Bucket=lake.bucket, Key=moved)["ContentType"] == "text/csv"
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    publisher.unload(target)
    lake.assert_published_once(target.location, range(ROWS + 10))
    assert lake.rows(f"s3://{lake.bucket}/{keys.backup_root(location)}") == Counter(range(ROWS))
    publisher.restore(location, 1)
    lake.assert_published_once(target.location)
    assert publisher.scrub(location).clean
    assert lake.aws.requests("s3", "CopyObject") == []
    assert uploads(lake) == []


@pytest.mark.parametrize(
    "action",
    [
        DropReply(),
        DropRequest(),
        Respond(503, "SlowDown"),
        Respond(409, "ConditionalRequestConflict"),
        RespondAfterApply(500, "InternalError"),
        RespondAfterApply(412, "PreconditionFailed"),
    ],
)
@pytest.mark.parametrize(
    "operation", ["CreateMultipartUpload", "UploadPartCopy", "CompleteMultipartUpload", "ListMultipartUploads"]
)
def test_a_doubtful_answer_to_one_call_publishes_once(
    lake: Lake, small_parts: None, operation: str, action: Action
) -> None:
    target, publisher = lake.target(), lake.publisher(lease=60)
    rule = lake.aws.faults.add(Fault(action, "s3", operation, "published/"))
    assert isinstance(publisher.unload(target), Published)
    assert lake.aws.faults.hits(rule) == 1
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)
    assert uploads(lake) == []


def test_a_copy_that_is_completed_after_the_next_publication_brings_nothing_back(lake: Lake, small_parts: None) -> None:
    target, publisher = lake.target(), lake.publisher()
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CompleteMultipartUpload", "published/"))
    paused = ThreadCaller(lake.publisher(), target, {"request_id": "paused"}).start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the completion is on its way")
    assert isinstance(publisher.unload(target), Published)  # it rolls the swap forward
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    assert isinstance(publisher.unload(target), Published)
    lake.aws.faults.release(rule)
    outcome = paused.join().outcome
    assert isinstance(outcome, Published)
    assert outcome.superseded
    late = [each.status for each in lake.aws.requests("s3", "CompleteMultipartUpload", "published/")]
    assert late.count(404) == 1
    lake.assert_published_once(target.location, range(ROWS + 10))


def test_a_missing_permission_is_named_and_the_swap_can_be_finished(lake: Lake, small_parts: None) -> None:
    target, publisher = lake.target(), lake.publisher()
    lake.aws.faults.add(Fault(Respond(403, "AccessDenied"), "s3", "ListMultipartUploads"))
    with pytest.raises(errors.AccessDenied, match="list_multipart_uploads"):
        publisher.unload(target)
    publisher.unload(target)
    lake.assert_published_once(target.location)
    assert len(lake.queries(target.location)) == 1


# --- side by side ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["CopyObject", "DeleteObject"])
def test_copies_and_deletes_of_a_swap_are_under_way_together(lake: Lake, operation: str) -> None:
    target, publisher = lake.target(), lake.publisher(lease=60)
    lake.aws.faults.rows_per_file(50)  # 20 files
    publisher.unload(target)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", operation, "published/", times=None))
    caller = ThreadCaller(publisher, target, {"force": True}).start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 8, "eight are on their way and none is answered")
    lake.aws.faults.release(rule)
    assert isinstance(caller.join().outcome, Published)
    lake.assert_published_once(target.location)


def test_a_batch_that_is_slower_than_the_lease_costs_it_and_nothing_else(lake: Lake) -> None:
    target = lake.target()
    lake.aws.faults.rows_per_file(50)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", "published/", times=8))
    caller = ThreadCaller(lake.publisher(lease=2), target).start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 8, "the first batch is on its way")
    other = ThreadCaller(lake.publisher(lease=60), target).start()
    wait_until(lambda: other.told("taken over"), "another caller rolls the same plan forward")
    lake.aws.faults.release(rule)
    assert isinstance(caller.join().outcome, Published)
    assert isinstance(other.join().outcome, Published)
    lake.assert_published_once(target.location)
    assert len(lake.queries(target.location)) == 1
