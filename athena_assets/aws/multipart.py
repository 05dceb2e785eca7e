"""Server-side copies of what is too large for one CopyObject: in parts, several at once.

The conditions are those of the single copy: each part names the source's ETag, and the completion creates the object
or does nothing. An upload that a dead caller left can still be completed when its source is gone; `AbortUploads` ends
it before the slot is released.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import Any
from urllib.parse import urlencode

from athena_assets.aws.at_once import at_once
from athena_assets.aws.replies import Refusal, call, question
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import AbortUploads, Absent, CopyObject, Done, Refused, Unanswered

LARGEST_COPY = 5 * 1024**3  # bytes of one CopyObject; S3 API reference
PART_BYTES = 512 * 1024**2  # at least 5 MiB, at most 5 GiB
MOST_PARTS = 10_000  # of one upload; S3 user guide, "Amazon S3 multipart upload limits"
PARTS_AT_ONCE = 8

# What CopyObject takes along with the user's metadata; CreateMultipartUpload has to be told.
_ATTRIBUTES = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Expires",
    "Metadata",
)


class PartCopies:
    """Copies within one bucket. Every write is sent once."""

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket
        self._owner = clients.settings.expected_bucket_owner

    @staticmethod
    def needed(size: int) -> bool:
        return size > LARGEST_COPY

    def copy(self, effect: CopyObject) -> Done | Absent | Refused | Unanswered:
        """As `S3.copy`. Whatever was begun and is not complete for sure is aborted; a lost abort leaves an upload."""
        attributes = {"Metadata": effect.metadata} if effect.metadata is not None else self._attributes(effect)
        if not isinstance(attributes, dict):
            return attributes
        key = effect.destination
        created = self._call("create_multipart_upload", key, attributes)
        if not isinstance(created, dict):
            return created
        upload = {"UploadId": created["UploadId"]}
        size = max(PART_BYTES, ceil(effect.size / MOST_PARTS))
        parts = at_once(
            [partial(self._part, effect, upload, first, size) for first in range(0, effect.size, size)], PARTS_AT_ONCE
        )
        answer: Done | Absent | Refused | Unanswered | None = next(
            (each for each in parts if not isinstance(each, dict)), None
        )
        if answer is None:
            found = self._call(
                "complete_multipart_upload", key, upload | {"MultipartUpload": {"Parts": parts}, "IfNoneMatch": "*"}
            )
            answer = Done() if isinstance(found, dict) else found
        if not isinstance(answer, Done):
            self._call("abort_multipart_upload", key, upload)
        return answer

    def abort(self, effect: AbortUploads) -> Done | Refused | Unanswered:
        """Ends the uploads onto destinations that need parts; of exactly those keys, so that no stranger's is touched.

        Lost reply: repeating it is harmless.
        """
        for each in effect.copies:
            if not self.needed(each.size):
                continue
            key = each.destination
            listed = question(
                f"s3://{self._bucket}/{key}",
                self._clients.s3.list_multipart_uploads,
                {"Bucket": self._bucket, "Prefix": key, "ExpectedBucketOwner": self._owner},
            )
            if isinstance(listed, Refusal):
                return Unanswered(f"HTTP {listed.status} {listed.code}")
            if isinstance(listed, Unanswered):
                return listed
            for upload in listed.get("Uploads", ()):
                if upload["Key"] != key:
                    continue
                answer = self._call("abort_multipart_upload", key, {"UploadId": upload["UploadId"]})
                if isinstance(answer, Refused | Unanswered):
                    return answer
            if listed["IsTruncated"]:
                return Unanswered("there are more uploads than one listing tells")
        return Done()

    def _attributes(self, effect: CopyObject) -> dict[str, Any] | Absent | Refused | Unanswered:
        where = {"Bucket": self._bucket, "Key": effect.source, "ExpectedBucketOwner": self._owner}
        subject = f"s3://{self._bucket}/{effect.source}"
        head = question(subject, self._clients.s3.head_object, where)
        if isinstance(head, Refusal):
            return Absent() if head.status == 404 else head.as_answer()
        if isinstance(head, Unanswered):
            return head
        found: dict[str, Any] = {name: head[name] for name in _ATTRIBUTES if name in head}  # type: ignore[literal-required]
        if head.get("TagCount"):
            tags = question(subject, self._clients.s3.get_object_tagging, where)
            if isinstance(tags, Refusal):
                return Absent() if tags.status == 404 else tags.as_answer()
            if isinstance(tags, Unanswered):
                return tags
            found["Tagging"] = urlencode([(tag["Key"], tag["Value"]) for tag in tags["TagSet"]])
        return found

    def _part(
        self, effect: CopyObject, upload: dict[str, str], first: int, size: int
    ) -> dict[str, Any] | Absent | Refused | Unanswered:
        last = min(first + size, effect.size) - 1
        number = first // size + 1
        answer = self._call(
            "upload_part_copy",
            effect.destination,
            upload
            | {
                "PartNumber": number,
                "CopySource": {"Bucket": self._bucket, "Key": effect.source},
                "CopySourceIfMatch": effect.source_etag,
                "CopySourceRange": f"bytes={first}-{last}",
                "ExpectedSourceBucketOwner": self._owner,
            },
        )
        if not isinstance(answer, dict):
            return answer
        result = answer["CopyPartResult"]
        checksums = {name: value for name, value in result.items() if name.startswith("Checksum")}
        return {"PartNumber": number, "ETag": result["ETag"], **checksums}

    def _call(
        self, operation: str, key: str, arguments: dict[str, Any]
    ) -> dict[str, Any] | Absent | Refused | Unanswered:
        """One write, sent once. `Absent`: the source is gone, or the upload that was to be ended."""
        answer: Any = call(
            f"s3://{self._bucket}/{key}",
            getattr(self._clients.s3_once, operation),
            {"Bucket": self._bucket, "Key": key, "ExpectedBucketOwner": self._owner, **arguments},
        )
        if not isinstance(answer, Refusal):
            found: dict[str, Any] | Unanswered = answer
            return found
        if answer.throttled:
            return Unanswered(answer.code)
        if answer.code == "NoSuchUpload":  # another roller has ended it; the destination tells what became of it
            return Absent() if operation == "abort_multipart_upload" else Unanswered(answer.code)
        return Absent() if answer.code == "NoSuchKey" else answer.as_answer()
