"""S3's preconditions, as documented, and atomic."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from athena_assets_tests.local.conftest import Lake, status_of

OWNER, STRANGER = "123456789012", "999999999999"


def test_create_once_lets_the_first_writer_win(lake: Lake) -> None:
    lake.put("k", b"first", IfNoneMatch="*")
    with pytest.raises(ClientError) as error:
        lake.put("k", b"second", IfNoneMatch="*")
    assert status_of(error) == (412, "PreconditionFailed")
    assert lake.read("k") == b"first"


def test_if_match_replaces_only_what_was_read(lake: Lake) -> None:
    etag = lake.put("k", b"1")
    newer = lake.put("k", b"2", IfMatch=etag)
    with pytest.raises(ClientError) as error:
        lake.put("k", b"3", IfMatch=etag)
    assert status_of(error) == (412, "PreconditionFailed")
    lake.put("k", b"4", IfMatch=newer.strip('"'))
    assert lake.read("k") == b"4"


def test_if_match_on_an_absent_key_is_404(lake: Lake) -> None:
    with pytest.raises(ClientError) as error:
        lake.put("k", IfMatch='"abc"')
    assert status_of(error) == (404, "NoSuchKey")
    assert lake.keys() == []


def test_if_none_match_with_an_etag_is_not_implemented(lake: Lake) -> None:
    etag = lake.put("k", b"1")
    with pytest.raises(ClientError) as error:
        lake.put("k", b"2", IfNoneMatch=etag)
    assert status_of(error) == (501, "NotImplemented")
    assert lake.read("k") == b"1"


def test_a_condition_on_an_absent_bucket_says_so(lake: Lake) -> None:
    with pytest.raises(ClientError) as error:
        lake.put("k", bucket="nowhere", IfNoneMatch="*")
    assert status_of(error) == (404, "NoSuchBucket")


def test_sixteen_writers_have_one_winner_in_each_of_a_hundred_rounds(lake: Lake) -> None:
    writers, rounds = 16, 100
    barrier = threading.Barrier(writers)
    body = b"x" * 20_000
    refusals: list[str] = []

    def write(number: int) -> list[bool]:
        won = []
        for turn in range(rounds):
            barrier.wait()
            try:
                lake.put(f"round-{turn}", body + bytes([number]), IfNoneMatch="*")
                won.append(True)
            except ClientError as error:
                won.append(False)
                refusals.append(error.response["Error"]["Code"])
        return won

    with ThreadPoolExecutor(writers) as pool:
        results = list(pool.map(write, range(writers)))
    assert [sum(results[writer][turn] for writer in range(writers)) for turn in range(rounds)] == [1] * rounds
    assert set(refusals) == {"PreconditionFailed"}


def test_compare_and_swap_loses_no_increment(lake: Lake) -> None:
    lake.put("counter", b"0")

    def add() -> None:
        for _ in range(10):
            while True:
                found = lake.s3.get_object(Bucket="out", Key="counter")
                value = int(found["Body"].read())
                try:
                    lake.put("counter", str(value + 1).encode(), IfMatch=found["ETag"])
                    break
                except ClientError as error:
                    if error.response["Error"]["Code"] != "PreconditionFailed":
                        raise

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lake.read("counter") == b"80"


def copy(lake: Lake, **arguments: Any) -> None:
    lake.s3.copy_object(Bucket="out", Key="copy", CopySource={"Bucket": "out", "Key": "source"}, **arguments)


def test_copy_judges_the_destination(lake: Lake) -> None:
    lake.put("source", b"new")
    etag = lake.put("copy", b"old")
    with pytest.raises(ClientError) as error:
        copy(lake, IfNoneMatch="*")
    assert status_of(error) == (412, "PreconditionFailed")
    with pytest.raises(ClientError) as error:
        copy(lake, IfMatch='"stale"')
    assert status_of(error) == (412, "PreconditionFailed")
    assert lake.read("copy") == b"old"
    copy(lake, IfMatch=etag)
    assert lake.read("copy") == b"new"


def test_copy_judges_its_source(lake: Lake) -> None:
    etag = lake.put("source", b"1")
    lake.put("source", b"2")
    with pytest.raises(ClientError) as error:
        copy(lake, CopySourceIfMatch=etag)
    assert status_of(error) == (412, "PreconditionFailed")
    copy(lake, CopySourceIfMatch=lake.put("source", b"3"), IfNoneMatch="*")
    assert lake.read("copy") == b"3"


def test_conditional_copy_of_an_absent_source_is_404(lake: Lake) -> None:
    with pytest.raises(ClientError) as error:
        copy(lake, CopySourceIfMatch='"x"')
    assert status_of(error) == (404, "NoSuchKey")


def test_delete_spares_what_was_changed(lake: Lake) -> None:
    etag = lake.put("k", b"1")
    lake.put("k", b"2")
    with pytest.raises(ClientError) as error:
        lake.s3.delete_object(Bucket="out", Key="k", IfMatch=etag)
    assert status_of(error) == (412, "PreconditionFailed")
    lake.s3.delete_object(Bucket="out", Key="k", IfMatch=lake.put("k", b"3"))
    assert lake.keys() == []


def test_batch_delete_judges_every_key(lake: Lake) -> None:
    kept, stale = lake.put("a b&c", b"1"), lake.put("stale", b"1")
    lake.put("stale", b"2")
    lake.put("free", b"1")
    objects = [{"Key": "a b&c", "ETag": kept}, {"Key": "stale", "ETag": stale}, {"Key": "free"}]
    answer = lake.s3.delete_objects(Bucket="out", Delete={"Objects": objects})
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == ["a b&c", "free"]
    assert [(entry["Key"], entry["Code"]) for entry in answer["Errors"]] == [("stale", "PreconditionFailed")]
    assert lake.keys() == ["stale"]


def test_batch_delete_of_stale_keys_only_deletes_nothing(lake: Lake) -> None:
    lake.put("k", b"1")
    answer = lake.s3.delete_objects(Bucket="out", Delete={"Objects": [{"Key": "k", "ETag": '"x"'}]})
    assert [entry["Key"] for entry in answer["Errors"]] == ["k"]
    assert "Deleted" not in answer
    assert lake.keys() == ["k"]


def test_completing_an_upload_judges_the_destination(lake: Lake) -> None:
    upload = lake.s3.create_multipart_upload(Bucket="out", Key="k")["UploadId"]
    part = lake.s3.upload_part(Bucket="out", Key="k", UploadId=upload, PartNumber=1, Body=b"part")
    lake.put("k", b"other")
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"stale"'}):
        with pytest.raises(ClientError) as error:
            lake.s3.complete_multipart_upload(
                Bucket="out", Key="k", UploadId=upload, MultipartUpload=parts, **condition
            )
        assert status_of(error) == (412, "PreconditionFailed")
    assert lake.read("k") == b"other"


def copied_part(lake: Lake, upload: str, **conditions: Any) -> str:
    answer = lake.s3.upload_part_copy(
        Bucket="out",
        Key="k",
        UploadId=upload,
        PartNumber=1,
        CopySource={"Bucket": "out", "Key": "source"},
        **conditions,
    )
    return str(answer["CopyPartResult"]["ETag"])


def complete(lake: Lake, upload: str, etag: str) -> None:
    parts = {"Parts": [{"ETag": etag, "PartNumber": 1}]}
    lake.s3.complete_multipart_upload(Bucket="out", Key="k", UploadId=upload, MultipartUpload=parts, IfNoneMatch="*")


def test_copying_a_part_judges_its_source_and_takes_its_range(lake: Lake) -> None:
    stale = lake.put("source", b"old")
    etag = lake.put("source", b"0123456789")
    upload = lake.s3.create_multipart_upload(Bucket="out", Key="k")["UploadId"]
    with pytest.raises(ClientError) as error:
        copied_part(lake, upload, CopySourceIfMatch=stale)
    assert status_of(error) == (412, "PreconditionFailed")
    with pytest.raises(ClientError) as error:
        copied_part(lake, upload, ExpectedSourceBucketOwner=STRANGER)
    assert status_of(error)[0] == 403
    complete(lake, upload, copied_part(lake, upload, CopySourceIfMatch=etag, CopySourceRange="bytes=2-4"))
    assert lake.read("k") == b"234"
    lake.s3.delete_object(Bucket="out", Key="source")
    with pytest.raises(ClientError) as error:
        copied_part(lake, lake.s3.create_multipart_upload(Bucket="out", Key="k")["UploadId"], CopySourceIfMatch=etag)
    assert status_of(error) == (404, "NoSuchKey")


@pytest.mark.parametrize("end", ["abort", "complete"])
def test_an_upload_that_has_ended_takes_nothing_more(lake: Lake, end: str) -> None:
    lake.put("source")
    upload = lake.s3.create_multipart_upload(Bucket="out", Key="k")["UploadId"]
    etag = copied_part(lake, upload)
    if end == "abort":
        lake.s3.abort_multipart_upload(Bucket="out", Key="k", UploadId=upload)
    else:
        complete(lake, upload, etag)
        lake.s3.delete_object(Bucket="out", Key="k")
    calls = (
        lambda: copied_part(lake, upload),
        lambda: complete(lake, upload, etag),
        lambda: lake.s3.abort_multipart_upload(Bucket="out", Key="k", UploadId=upload),
    )
    for call in calls:
        with pytest.raises(ClientError) as error:
            call()
        assert status_of(error) == (404, "NoSuchUpload")
    assert lake.keys() == ["source"]
    assert "Uploads" not in lake.s3.list_multipart_uploads(Bucket="out")


@pytest.mark.parametrize("operation", ["put", "get", "head", "list", "delete", "copy", "copy source"])
def test_a_wrong_expected_owner_is_refused(lake: Lake, operation: str) -> None:
    lake.put("source")
    where = {"Bucket": "out", "Key": "source"}
    calls: dict[str, Any] = {
        "put": lambda owner: lake.put("source", ExpectedBucketOwner=owner),
        "get": lambda owner: lake.s3.get_object(**where, ExpectedBucketOwner=owner),
        "head": lambda owner: lake.s3.head_object(**where, ExpectedBucketOwner=owner),
        "list": lambda owner: lake.s3.list_objects_v2(Bucket="out", ExpectedBucketOwner=owner),
        "delete": lambda owner: lake.s3.delete_object(Bucket="out", Key="other", ExpectedBucketOwner=owner),
        "copy": lambda owner: copy(lake, ExpectedBucketOwner=owner),
        "copy source": lambda owner: copy(lake, ExpectedSourceBucketOwner=owner),
    }
    calls[operation](OWNER)
    with pytest.raises(ClientError) as error:
        calls[operation](STRANGER)
    assert status_of(error)[0] == 403


def test_metadata_survives_put_and_replacing_copy(lake: Lake) -> None:
    lake.put("source", Metadata={"write-id": "1", "under_score": "a"}, ContentType="text/plain")
    assert lake.s3.head_object(Bucket="out", Key="source")["Metadata"] == {"write-id": "1", "under_score": "a"}
    copy(lake, MetadataDirective="REPLACE", Metadata={"write-id": "2"})
    assert lake.s3.head_object(Bucket="out", Key="copy")["Metadata"] == {"write-id": "2"}
    copy(lake)
    assert lake.s3.head_object(Bucket="out", Key="copy")["Metadata"] == {"write-id": "1", "under_score": "a"}


def test_listings_page_without_gaps_or_repeats(lake: Lake) -> None:
    names = sorted(f"p/{number:04d}" for number in range(250))
    for name in names:
        lake.put(name)
    lake.put("q")
    found: list[str] = []
    pages = 0
    arguments: dict[str, str] = {}
    while True:
        page = lake.s3.list_objects_v2(Bucket="out", Prefix="p/", MaxKeys=100, **arguments)
        found += [entry["Key"] for entry in page["Contents"]]
        pages += 1
        if not page["IsTruncated"]:
            break
        arguments = {"ContinuationToken": page["NextContinuationToken"]}
    assert (found, pages) == (names, 3)
    after = lake.s3.list_objects_v2(Bucket="out", StartAfter="p/0248")
    assert [entry["Key"] for entry in after["Contents"]] == ["p/0249", "q"]


def test_answers_carry_the_servers_clock(lake: Lake) -> None:
    lake.put("k")
    for answer in (
        lake.s3.get_object(Bucket="out", Key="k"),
        lake.s3.head_object(Bucket="out", Key="k"),
    ):
        assert "date" in answer["ResponseMetadata"]["HTTPHeaders"]
        assert abs(answer["LastModified"].timestamp() - time.time()) < 5
    with pytest.raises(ClientError) as error:
        lake.s3.get_object(Bucket="out", Key="absent")
    assert "date" in error.value.response["ResponseMetadata"]["HTTPHeaders"]


@pytest.mark.parametrize(
    "key", ["a b", "a%2Fb", "a+b", "ä", "a=1/b=2/c", "/leading", "double//slash", "q?x&y", "_x%20y"]
)
def test_keys_are_taken_as_they_are(lake: Lake, key: str) -> None:
    lake.put(key, b"1", IfNoneMatch="*")
    with pytest.raises(ClientError) as error:
        lake.put(key, b"2", IfNoneMatch="*")
    assert status_of(error) == (412, "PreconditionFailed")
    assert lake.read(key) == b"1"
    assert lake.keys() == [key]
