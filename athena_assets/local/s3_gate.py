"""S3 as moto serves it, made atomic, with the preconditions that moto lacks.

Faithful: conditional PutObject, CopyObject (destination and source), UploadPartCopy (source), CompleteMultipartUpload,
DeleteObject, and the ETag of each entry of DeleteObjects; `If-None-Match: <etag>` on a write is 501; an upload that was
completed or aborted is 404; a wrong expected owner of bucket or copy source is 403. Every request sees one state of the
store: check and effect happen under one lock.

Not faithful: a 409 for a conflict in flight never arises by itself (inject it); a DeleteObject with If-Match on an
absent key answers 412, which no document states; bucket policies are not enforced.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from athena_assets.local import moto_seams
from athena_assets.local.http_server import Reply
from athena_assets.local.identify import Identity, delete_entries

_WRITES = frozenset({"PutObject", "CopyObject", "CompleteMultipartUpload"})
_OF_UPLOADS = frozenset(
    {"UploadPart", "UploadPartCopy", "CompleteMultipartUpload", "AbortMultipartUpload", "ListParts"}
)


def s3_error(status: int, code: str, message: str, resource: str = "") -> Reply:
    """An S3 error document."""
    document = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message><Resource>{escape(resource)}</Resource>"
        "<RequestId>embedded</RequestId></Error>"
    )
    return Reply(status, [("Content-Type", "application/xml")], document.encode())


def serve(apps: moto_seams.MotoApps, identity: Identity, environ: dict[str, Any], body: bytes) -> Reply:
    """Judges the preconditions and runs the request, in one critical section."""
    with moto_seams.LOCK:
        refusal = _refusal(identity, environ)
        if refusal is not None:
            return refusal
        for name in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"):
            if identity.operation in _WRITES or identity.operation == "DeleteObject":
                environ.pop(name, None)
        if identity.operation == "DeleteObjects":
            return _delete_objects(apps, str(identity.bucket), environ, body)
        reply = apps.call("s3", environ)
        if identity.operation in _WRITES and reply.status == 200:
            moto_seams.stamp(str(identity.bucket), str(identity.key))
        return reply


def _refusal(identity: Identity, environ: Mapping[str, Any]) -> Reply | None:
    bucket = identity.bucket
    owner = moto_seams.bucket_owner(bucket) if bucket else None
    if bucket is None or owner is None:
        return None  # moto answers ListBuckets, CreateBucket, NoSuchBucket
    expected = environ.get("HTTP_X_AMZ_EXPECTED_BUCKET_OWNER")
    if expected is not None and expected != owner:
        return s3_error(403, "AccessDenied", "Access Denied", bucket)
    if identity.operation in _OF_UPLOADS:
        upload = parse_qs(str(environ.get("QUERY_STRING", ""))).get("uploadId", [""])[0]
        if not moto_seams.has_upload(bucket, str(identity.key), upload):
            return s3_error(404, "NoSuchUpload", "The specified multipart upload does not exist.", str(identity.key))
    if identity.operation in ("CopyObject", "UploadPartCopy") and (refusal := _copy_source_refusal(environ)):
        return refusal
    if identity.operation in _WRITES:
        return _write_refusal(bucket, str(identity.key), environ)
    if identity.operation == "DeleteObject" and (condition := environ.get("HTTP_IF_MATCH")) is not None:
        current = moto_seams.current_etag(bucket, str(identity.key))
        if current is None or not _matches(condition, current):
            return _precondition_failed("If-Match")
    return None


def _write_refusal(bucket: str, key: str, environ: Mapping[str, Any]) -> Reply | None:
    if_match, if_none_match = environ.get("HTTP_IF_MATCH"), environ.get("HTTP_IF_NONE_MATCH")
    if if_match is None and if_none_match is None:
        return None
    if (if_match is not None and if_none_match is not None) or if_none_match not in (None, "*") or if_match == "*":
        return s3_error(
            501, "NotImplemented", "A header you provided implies functionality that is not implemented", key
        )
    current = moto_seams.current_etag(bucket, key)
    if if_none_match is not None:
        return None if current is None else _precondition_failed("If-None-Match")
    if current is None:
        return s3_error(404, "NoSuchKey", "The specified key does not exist.", key)
    return None if _matches(str(if_match), current) else _precondition_failed("If-Match")


def _copy_source_refusal(environ: Mapping[str, Any]) -> Reply | None:
    source = str(environ.get("HTTP_X_AMZ_COPY_SOURCE", "")).split("?", 1)
    bucket, _, key = unquote(source[0]).removeprefix("/").partition("/")
    owner = moto_seams.bucket_owner(bucket)
    expected = environ.get("HTTP_X_AMZ_SOURCE_EXPECTED_BUCKET_OWNER")
    if owner is not None and expected is not None and expected != owner:
        return s3_error(403, "AccessDenied", "Access Denied", bucket)
    condition = environ.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH")
    if condition is None:
        return None
    if len(source) == 2:
        return s3_error(501, "NotImplemented", "embedded AWS: CopySourceIfMatch with a version id", key)
    current = moto_seams.current_etag(bucket, key)
    if current is None:
        return s3_error(404, "NoSuchKey", "The specified key does not exist.", key)
    return None if _matches(condition, current) else _precondition_failed("x-amz-copy-source-If-Match")


def _matches(condition: str, current: str) -> bool:
    return condition == "*" or condition.strip().strip('"') == current


def _precondition_failed(condition: str) -> Reply:
    document = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>PreconditionFailed</Code>'
        "<Message>At least one of the pre-conditions you specified did not hold</Message>"
        f"<Condition>{condition}</Condition><RequestId>embedded</RequestId></Error>"
    )
    return Reply(412, [("Content-Type", "application/xml")], document.encode())


def _delete_objects(apps: moto_seams.MotoApps, bucket: str, environ: dict[str, Any], body: bytes) -> Reply:
    """Takes the entries whose ETag is stale out of the request, and reports them beside moto's answer for the
    others."""
    stale = [
        key
        for key, etag in delete_entries(body)
        if etag is not None
        and ((current := moto_seams.current_etag(bucket, key)) is None or not _matches(etag, current))
    ]
    if not stale:
        return apps.call("s3", environ)
    remaining = _without_stale(body, set(stale))
    errors = "".join(
        f"<Error><Key>{escape(key)}</Key><Code>PreconditionFailed</Code>"
        "<Message>At least one of the pre-conditions you specified did not hold</Message></Error>"
        for key in stale
    )
    if remaining.find("Object") is None:
        document = f'<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult>{errors}</DeleteResult>'
        return Reply(200, [("Content-Type", "application/xml")], document.encode())
    _replace_body(environ, ElementTree.tostring(remaining))
    reply = apps.call("s3", environ)
    end = b"</DeleteResult>"
    if reply.status != 200 or end not in reply.body:
        return reply
    headers = [(name, value) for name, value in reply.headers if name.lower() != "content-length"]
    return Reply(200, headers, reply.body.replace(end, errors.encode() + end))


def _without_stale(body: bytes, stale: set[str]) -> ElementTree.Element:
    """The same document without the stale entries, and without namespaces, which moto looks names up without."""
    kept = ElementTree.Element("Delete")
    for element in ElementTree.fromstring(body):
        fields = {child.tag.rpartition("}")[2]: child.text for child in element}
        if fields.get("Key") in stale and "ETag" in fields:
            continue
        copied = ElementTree.SubElement(kept, element.tag.rpartition("}")[2])
        copied.text = element.text
        for name, text in fields.items():
            ElementTree.SubElement(copied, name).text = text
    return kept


def _replace_body(environ: dict[str, Any], body: bytes) -> None:
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    for name in [name for name in environ if name.startswith("HTTP_X_AMZ_CHECKSUM") or name == "HTTP_CONTENT_MD5"]:
        del environ[name]
