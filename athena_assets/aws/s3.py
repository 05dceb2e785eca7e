"""S3: the register, manifests, staging and published files of one bucket."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from athena_assets.aws.multipart import PartCopies
from athena_assets.aws.replies import Refusal, call, question
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import (
    AbortUploads,
    Absent,
    CopyObject,
    DeleteObject,
    Done,
    HeadObject,
    ListedObject,
    ListFolders,
    ListObjects,
    ObjectHead,
    ObjectRead,
    ReadObject,
    ReadUri,
    Refused,
    Unanswered,
    WriteObject,
    Written,
)


class S3:
    """Performs the protocol's S3 effects on one bucket. Reads are tried again by the SDK, writes are sent once."""

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket
        self._owner = clients.settings.expected_bucket_owner
        self._parts = PartCopies(clients, bucket)

    def read(self, effect: ReadObject) -> ObjectRead | Absent | Unanswered:
        return self._read(self._bucket, effect.key)

    def read_uri(self, effect: ReadUri) -> bytes | Absent | Unanswered:
        parts = urlsplit(effect.uri, allow_fragments=False)
        found = self._read(parts.netloc, parts.path.removeprefix("/"))
        return found.body if isinstance(found, ObjectRead) else found

    def _read(self, bucket: str, key: str) -> ObjectRead | Absent | Unanswered:
        def get_object(**arguments: Any) -> ObjectRead:
            response = self._clients.s3.get_object(**arguments)
            date = _date(response)
            modified = response["LastModified"].timestamp()
            return ObjectRead(
                response["Body"].read(), response["ETag"], date or modified, (date or modified) - modified
            )

        answer = question(
            f"s3://{bucket}/{key}", get_object, {"Bucket": bucket, "Key": key, "ExpectedBucketOwner": self._owner}
        )
        return Absent() if isinstance(answer, Refusal) else answer

    def write(self, effect: WriteObject) -> Written | Refused | Unanswered:
        condition = {"IfNoneMatch": "*"} if effect.if_match is None else {"IfMatch": effect.if_match}
        answer = call(
            self._uri(effect.key),
            self._clients.s3_once.put_object,
            {
                "Bucket": self._bucket,
                "Key": effect.key,
                "Body": effect.body,
                "ContentType": "application/json",
                "ExpectedBucketOwner": self._owner,
                **condition,
            },
        )
        if isinstance(answer, Refusal):
            return Unanswered(answer.code) if answer.throttled else answer.as_answer()
        if isinstance(answer, Unanswered):
            return answer
        return Written(answer["ETag"], _date(answer) or 0.0)

    def list(self, effect: ListObjects) -> tuple[ListedObject, ...] | Unanswered:
        return self.list_prefix(self._bucket, effect.prefix)

    def list_prefix(self, bucket: str, prefix: str) -> tuple[ListedObject, ...] | Unanswered:
        """Every object whose key begins with `prefix`; all pages are answered, or the whole is not."""
        pages = self._pages(bucket, prefix)
        if isinstance(pages, Unanswered):
            return pages
        return tuple(
            ListedObject(each["Key"], each["Size"], each["ETag"], each["LastModified"].timestamp())
            for page in pages
            for each in page.get("Contents", ())
        )

    def list_folders(self, effect: ListFolders) -> tuple[str, ...] | Unanswered:
        pages = self._pages(self._bucket, effect.prefix, delimiter="/")
        if isinstance(pages, Unanswered):
            return pages
        return tuple(each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ()))

    def _pages(self, bucket: str, prefix: str, delimiter: str | None = None) -> Sequence[Any] | Unanswered:
        found = []
        token: str | None = None
        while True:
            answer = question(
                f"s3://{bucket}/{prefix}",
                self._clients.s3.list_objects_v2,
                {
                    "Bucket": bucket,
                    "Prefix": prefix,
                    "Delimiter": delimiter,
                    "ContinuationToken": token,
                    "ExpectedBucketOwner": self._owner,
                },
            )
            if isinstance(answer, Refusal):
                return Unanswered(f"HTTP {answer.status} {answer.code}")
            if isinstance(answer, Unanswered):
                return answer
            found.append(answer)
            if not answer["IsTruncated"]:
                return found
            token = answer["NextContinuationToken"]

    def head(self, effect: HeadObject) -> ObjectHead | Absent | Unanswered:
        answer = question(
            self._uri(effect.key),
            self._clients.s3.head_object,
            {"Bucket": self._bucket, "Key": effect.key, "ExpectedBucketOwner": self._owner},
        )
        if isinstance(answer, Refusal):
            return Absent()
        if isinstance(answer, Unanswered):
            return answer
        return ObjectHead(answer["ContentLength"], answer["ETag"], answer["Metadata"])

    def copy(self, effect: CopyObject) -> Done | Absent | Refused | Unanswered:
        if self._parts.needed(effect.size):
            return self._parts.copy(effect)
        answer = call(
            self._uri(effect.destination),
            self._clients.s3_once.copy_object,
            {
                "Bucket": self._bucket,
                "Key": effect.destination,
                "CopySource": {"Bucket": self._bucket, "Key": effect.source},
                "CopySourceIfMatch": effect.source_etag,
                "IfNoneMatch": "*",
                "Metadata": effect.metadata,
                "MetadataDirective": "COPY" if effect.metadata is None else "REPLACE",
                "ExpectedBucketOwner": self._owner,
                "ExpectedSourceBucketOwner": self._owner,
            },
        )
        if isinstance(answer, Refusal):
            if answer.throttled:
                return Unanswered(answer.code)
            return Absent() if answer.code == "NoSuchKey" else answer.as_answer()
        return answer if isinstance(answer, Unanswered) else Done()

    def abort_uploads(self, effect: AbortUploads) -> Done | Refused | Unanswered:
        return self._parts.abort(effect)

    def delete(self, effect: DeleteObject) -> Done | Refused | Unanswered:
        answer = call(
            self._uri(effect.key),
            self._clients.s3_once.delete_object,
            {
                "Bucket": self._bucket,
                "Key": effect.key,
                "IfMatch": effect.etag,
                "ExpectedBucketOwner": self._owner,
            },
        )
        if isinstance(answer, Refusal):
            if answer.throttled:
                return Unanswered(answer.code)
            return Done() if answer.code == "NoSuchKey" else answer.as_answer()
        return answer if isinstance(answer, Unanswered) else Done()

    def _uri(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"


def _date(response: Any) -> float | None:
    """S3's clock, from the `Date` header of one response (whole seconds); None where a proxy drops it."""
    header = response["ResponseMetadata"]["HTTPHeaders"].get("date")
    if header is None:
        return None
    parsed: datetime = parsedate_to_datetime(header)
    return parsed.timestamp()
