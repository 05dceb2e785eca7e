"""Names an HTTP request as the SDK would: service, operation, bucket, key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree

DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a request asks for. See `RequestRecord` for the meaning of `key`."""

    service: str
    operation: str
    bucket: str | None
    key: str | None
    region: str


_BUCKET_GET = {
    "location": "GetBucketLocation",
    "versioning": "GetBucketVersioning",
    "versions": "ListObjectVersions",
    "uploads": "ListMultipartUploads",
    "lifecycle": "GetBucketLifecycleConfiguration",
    "policy": "GetBucketPolicy",
    "tagging": "GetBucketTagging",
    "acl": "GetBucketAcl",
    "encryption": "GetBucketEncryption",
    "publicAccessBlock": "GetPublicAccessBlock",
    "object-lock": "GetObjectLockConfiguration",
}
_BUCKET_PUT = {
    "versioning": "PutBucketVersioning",
    "lifecycle": "PutBucketLifecycleConfiguration",
    "policy": "PutBucketPolicy",
    "tagging": "PutBucketTagging",
    "acl": "PutBucketAcl",
    "encryption": "PutBucketEncryption",
    "publicAccessBlock": "PutPublicAccessBlock",
    "object-lock": "PutObjectLockConfiguration",
}
_BUCKET_DELETE = {
    "lifecycle": "DeleteBucketLifecycle",
    "policy": "DeleteBucketPolicy",
    "tagging": "DeleteBucketTagging",
    "encryption": "DeleteBucketEncryption",
    "publicAccessBlock": "DeletePublicAccessBlock",
}
_KEY = {
    "GET": {
        "uploadId": "ListParts",
        "tagging": "GetObjectTagging",
        "acl": "GetObjectAcl",
        "attributes": "GetObjectAttributes",
    },
    "PUT": {"tagging": "PutObjectTagging", "acl": "PutObjectAcl", "retention": "PutObjectRetention"},
    "POST": {"uploads": "CreateMultipartUpload", "uploadId": "CompleteMultipartUpload", "restore": "RestoreObject"},
    "DELETE": {"uploadId": "AbortMultipartUpload", "tagging": "DeleteObjectTagging"},
    "HEAD": {},
}
# Lambda's paths after `/<date>/functions/<name>`; its other operations are not named.
_FUNCTION = {
    ("GET", ""): "GetFunction",
    ("DELETE", ""): "DeleteFunction",
    ("PUT", "code"): "UpdateFunctionCode",
    ("GET", "configuration"): "GetFunctionConfiguration",
    ("PUT", "configuration"): "UpdateFunctionConfiguration",
    ("POST", "invocations"): "Invoke",
    ("POST", "versions"): "PublishVersion",
}
_KEY_DEFAULT = {
    "GET": "GetObject",
    "PUT": "PutObject",
    "POST": "PostObject",
    "DELETE": "DeleteObject",
    "HEAD": "HeadObject",
}


def _first(table: Mapping[str, str], query: Mapping[str, list[str]], default: str) -> str:
    return next((operation for name, operation in table.items() if name in query), default)


def _credential_scope(environ: Mapping[str, Any]) -> tuple[str | None, str]:
    """Service and region that the request is signed for; the signature itself is not checked."""
    authorization = str(environ.get("HTTP_AUTHORIZATION", ""))
    _, found, rest = authorization.partition("Credential=")
    parts = rest.split(",")[0].split("/")
    if found and len(parts) >= 5:
        return parts[-2].lower(), parts[-3]
    return None, DEFAULT_REGION


def access_key(environ: Mapping[str, Any]) -> str | None:
    """The access key that the request is signed with; `None` if it is not signed."""
    _, found, rest = str(environ.get("HTTP_AUTHORIZATION", "")).partition("Credential=")
    return rest.split("/", 1)[0] if found else None


def identify(environ: Mapping[str, Any], body: bytes) -> Identity:
    """Never fails: what cannot be named is `Unknown`, and left to moto."""
    service, region = _credential_scope(environ)
    target = str(environ.get("HTTP_X_AMZ_TARGET", ""))
    if target:
        return _json_service(service, target, body, region)
    if service == "lambda":
        return _lambda(environ, body, region)
    if service not in (None, "s3"):
        form = parse_qs(body[:4096].decode("latin-1")) if body else {}
        return Identity(str(service), form.get("Action", ["Unknown"])[0], None, None, region)
    return _s3(environ, body, region)


def _json_service(service: str | None, target: str, body: bytes, region: str) -> Identity:
    prefix, _, operation = target.rpartition(".")
    named = service or {"AmazonAthena": "athena", "AWSGlue": "glue", "AWSStepFunctions": "states"}.get(prefix, prefix)
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        document = {}
    key: str | None = None
    if isinstance(document, dict):
        if named == "athena":
            key = document.get("QueryString") or document.get("QueryExecutionId")
        elif named == "glue":
            table_input = document.get("TableInput")
            fallback = table_input.get("Name") if isinstance(table_input, dict) else None
            table = document.get("TableName") or (document.get("Name") if "DatabaseName" in document else fallback)
            parts = [document.get("DatabaseName") or document.get("Name"), table or fallback]
            key = ".".join(str(part) for part in parts if part) or None
        elif named == "states":
            key = document.get("name") or document.get("executionArn") or document.get("stateMachineArn")
    return Identity(named, operation, None, key, region)


def _lambda(environ: Mapping[str, Any], body: bytes, region: str) -> Identity:
    method = str(environ["REQUEST_METHOD"])
    # The raw path: a function may be named by its ARN, and a layer's ARN in a path may hold an encoded slash.
    raw = str(environ.get("RAW_URI") or environ.get("PATH_INFO", "/")).split("?", 1)[0]
    parts = [unquote(part) for part in raw.strip("/").split("/")]
    operation, key = "Unknown", None
    if parts[1:2] == ["functions"]:
        if len(parts) == 2:
            operation = {"GET": "ListFunctions", "POST": "CreateFunction"}.get(method, "Unknown")
            key = _created(body) if operation == "CreateFunction" else None
        else:
            key = parts[2]
            operation = _FUNCTION.get((method, "/".join(parts[3:])), "Unknown")
    return Identity("lambda", operation, None, key, region)


def _created(body: bytes) -> str | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    name = document.get("FunctionName") if isinstance(document, dict) else None
    return None if name is None else str(name)


def split_path(environ: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Bucket and key of a path-style S3 request. The raw path is used: a key may contain `%2F` or begin with `/`."""
    raw = str(environ.get("RAW_URI") or environ.get("PATH_INFO", "/")).split("?", 1)[0]
    bucket, _, key = raw.removeprefix("/").partition("/")
    return (unquote(bucket) or None), (unquote(key) or None)


def _s3(environ: Mapping[str, Any], body: bytes, region: str) -> Identity:
    method = str(environ["REQUEST_METHOD"])
    query = parse_qs(str(environ.get("QUERY_STRING", "")), keep_blank_values=True)
    bucket, key = split_path(environ)
    if bucket is None:
        operation = "ListBuckets" if method == "GET" else "Unknown"
    elif key is None:
        operation, key = _bucket_operation(method, query, body)
    else:
        operation = _first(_KEY.get(method, {}), query, _KEY_DEFAULT.get(method, "Unknown"))
        if method == "PUT":
            copies = "HTTP_X_AMZ_COPY_SOURCE" in environ
            if "uploadId" in query:
                operation = "UploadPartCopy" if copies else "UploadPart"
            elif copies and operation == "PutObject":
                operation = "CopyObject"
    return Identity("s3", operation, bucket, key, region)


def _bucket_operation(method: str, query: Mapping[str, list[str]], body: bytes) -> tuple[str, str | None]:
    if method == "GET":
        default = "ListObjectsV2" if query.get("list-type") == ["2"] else "ListObjects"
        operation = _first(_BUCKET_GET, query, default)
        return operation, query.get("prefix", [None])[0] if operation.startswith("List") else None
    if method == "POST" and "delete" in query:
        return "DeleteObjects", "\n".join(entry[0] for entry in delete_entries(body))
    tables = {"PUT": (_BUCKET_PUT, "CreateBucket"), "DELETE": (_BUCKET_DELETE, "DeleteBucket")}
    if method in tables:
        table, default = tables[method]
        return _first(table, query, default), None
    return {"HEAD": "HeadBucket"}.get(method, "Unknown"), None


def delete_entries(body: bytes) -> list[tuple[str, str | None]]:
    """Key and ETag condition of each entry of a DeleteObjects document; empty if it is not XML (moto says why)."""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        return []
    entries = []
    for element in root:
        if element.tag.rpartition("}")[2] != "Object":
            continue
        fields = {child.tag.rpartition("}")[2]: child.text or "" for child in element}
        entries.append((fields.get("Key", ""), fields.get("ETag")))
    return entries
