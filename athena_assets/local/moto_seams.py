"""Every private part of moto that this package leans on, and nothing else does. Tasks' are in `moto_task_seams`.

moto is pinned; `test_moto_seams.py` fails when one of these moves. Nothing of moto is patched: requests are judged
before moto sees them, and its stores are read and written through these functions, always under `LOCK`.

Seams: `s3_backends[account]["aws"].buckets[name].keys` (current version of a key, or a delete marker; `getlist` and
`setlist` for all versions), `FakeKey.etag`, `.value`, `.size`, `.metadata`, `.arn`, `.last_modified`,
`FakeBucket.account_id`, `.arn`, `.partition`, `.multiparts`, `FakeMultipart.key_name`, `S3Backend.put_object`,
`.tagger`, `s3_backends.bucket_accounts`;
`glue_backends[account][region].databases`, `.get_table`, `.partitions`, `.as_dict`; `moto_api_backend.reset`. Buckets,
keys and databases can be pickled.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.glue.models import glue_backends
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import FakeDeleteMarker, FakeKey, s3_backends

from athena_assets.local.http_server import Reply
from athena_assets.local.s3_clock import CLOCK

WsgiApp = Callable[[dict[str, Any], Any], Any]
ACCOUNT = DEFAULT_ACCOUNT_ID

# One lock for all of moto's state. moto checks and then acts without one, and disposes of an object's buffer while
# another thread may be reading it. It is held for one moto call at a time: never while a query runs or a fault holds
# a request.
LOCK = threading.RLock()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing would show it."""

    bucket: str
    key: str
    etag: str
    size: int


class MotoApps:
    """moto's server application. S3's and Glue's parts are called directly.

    moto's dispatcher lists a folder for every request, which is a third of the time of an S3 request; it serves the
    other services, and S3 Control, which shares S3's signing name.
    """

    def __init__(self) -> None:
        self._direct: dict[str, WsgiApp] = {"s3": create_backend_app("s3"), "glue": create_backend_app("glue")}
        self._dispatcher: WsgiApp = DomainDispatcherApplication(create_backend_app)

    def call(self, service: str, environ: dict[str, Any]) -> Reply:
        """Runs one request through moto. The caller holds `LOCK` where moto's state matters."""
        if str(environ.get("PATH_INFO", "")).startswith("/v20180820/"):
            return _call(self._dispatcher, environ)
        return _call(self._direct.get(service, self._dispatcher), environ)


def _call(app: WsgiApp, environ: dict[str, Any]) -> Reply:
    status = 500
    headers: list[tuple[str, str]] = []

    def start_response(line: str, fields: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        nonlocal status, headers
        status, headers = int(line.split(" ", 1)[0]), list(fields)
        return lambda data: None

    chunks = app(environ, start_response)
    try:
        body = b"".join(chunks)
    finally:
        if hasattr(chunks, "close"):
            chunks.close()
    return Reply(status, headers, body)


def _bucket(name: str) -> Any | None:
    return s3_backends[ACCOUNT]["aws"].buckets.get(name)


def _live_key(bucket: Any, key: str) -> FakeKey | None:
    found = bucket.keys.get(key)
    return None if isinstance(found, FakeDeleteMarker) else found


def bucket_owner(name: str) -> str | None:
    """Account of the bucket's owner; `None` if there is no such bucket."""
    with LOCK:
        bucket = _bucket(name)
        return None if bucket is None else str(bucket.account_id)


def current_etag(bucket: str, key: str) -> str | None:
    """ETag without quotes; `None` if the key (or its bucket) does not exist."""
    with LOCK:
        holder = _bucket(bucket)
        found = None if holder is None else _live_key(holder, key)
        return None if found is None else found.etag.strip('"')


def has_upload(bucket: str, key: str, upload_id: str) -> bool:
    """Whether an upload of this key is under way: begun, neither completed nor aborted."""
    with LOCK:
        holder = _bucket(bucket)
        found = None if holder is None else holder.multiparts.get(upload_id)
        return found is not None and found.key_name == key


def list_objects(bucket: str, prefix: str) -> list[StoredObject]:
    """All current objects under a prefix, in key order; empty if there is no such bucket."""
    with LOCK:
        holder = _bucket(bucket)
        if holder is None:
            return []
        names = sorted(name for name in holder.keys if name.startswith(prefix))
        keys = [(name, _live_key(holder, name)) for name in names]
        return [StoredObject(bucket, name, key.etag.strip('"'), int(key.size)) for name, key in keys if key is not None]


def read_object(bucket: str, key: str) -> tuple[str, bytes] | None:
    """ETag and content of one object, read in one moment; `None` if it is gone."""
    with LOCK:
        holder = _bucket(bucket)
        found = None if holder is None else _live_key(holder, key)
        return None if found is None else (found.etag.strip('"'), found.value)


def put_object(bucket: str, key: str, body: bytes, unless: Callable[[], bool]) -> bool:
    """An unconditional PUT from inside. `unless` is asked under the lock: `True` means that nothing was written."""
    with LOCK:
        if unless():
            return False
        s3_backends[ACCOUNT]["aws"].put_object(bucket, key, body)
        stamp(bucket, key)
        return True


def stamp(bucket: str, key: str) -> None:
    """A new object's `Last-Modified`, by the clock that tests can advance."""
    with LOCK:
        holder = _bucket(bucket)
        found = None if holder is None else _live_key(holder, key)
        if found is not None:
            found.last_modified += timedelta(seconds=CLOCK.offset)


def glue_table(region: str, database: str, name: str) -> dict[str, Any] | None:
    """GetTable's `Table` with a list of partitions (as GetPartitions has them) under `Partitions`; `None` if absent."""
    with LOCK:
        holder = glue_backends[ACCOUNT][region].databases.get(database)
        table = None if holder is None else holder.tables.get(name)
        if table is None:
            return None
        return {**table.as_dict(), "Partitions": [entry.as_dict() for entry in table.partitions.values()]}


def glue_has_database(region: str, database: str) -> bool:
    """Whether the catalog has this database."""
    with LOCK:
        return database in glue_backends[ACCOUNT][region].databases


def reset() -> None:
    """Empties every moto backend of this process."""
    with LOCK:
        moto_api_backend.reset()


def dump_bucket(name: str) -> bytes | None:
    """A bucket's settings and tags without its objects and unfinished uploads; `None` if there is no such bucket."""
    with LOCK:
        bucket = _bucket(name)
        if bucket is None:
            return None
        settings = copy(bucket)
        settings.keys, settings.multiparts = type(bucket.keys)(), type(bucket.multiparts)()
        return pickle.dumps((settings, _tags(bucket.arn)))


def load_bucket(name: str, dump: bytes) -> None:
    """Inverse of `dump_bucket`; the bucket is empty."""
    bucket, tags = pickle.loads(dump)
    with LOCK:
        backend = s3_backends[ACCOUNT]["aws"]
        backend.buckets[name] = bucket
        s3_backends.bucket_accounts[name] = (bucket.partition, bucket.account_id)
        backend.tagger.tag_resource(bucket.arn, tags)


def dump_key(bucket: str, key: str) -> bytes | None:
    """All versions of an object with their tags; `None` if there is none."""
    with LOCK:
        holder = _bucket(bucket)
        versions = None if holder is None else holder.keys.getlist(key)
        if not versions:
            return None
        return pickle.dumps([(each, _tags(each.arn) if isinstance(each, FakeKey) else []) for each in versions])


def load_key(bucket: str, key: str, dump: bytes) -> None:
    """Inverse of `dump_key`, for a bucket that is there."""
    versions = pickle.loads(dump)
    with LOCK:
        backend = s3_backends[ACCOUNT]["aws"]
        backend.buckets[bucket].keys.setlist(key, [version for version, _ in versions])
        for version, tags in versions:
            if tags:
                backend.tagger.tag_resource(version.arn, tags)


def _tags(arn: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = s3_backends[ACCOUNT]["aws"].tagger.list_tags_for_resource(arn)["Tags"]
    return found


def dump_catalog(region: str) -> bytes:
    """The region's databases, tables and partitions."""
    with LOCK:
        return pickle.dumps(glue_backends[ACCOUNT][region].databases)


def load_catalog(region: str, dump: bytes) -> None:
    """Inverse of `dump_catalog`."""
    with LOCK:
        glue_backends[ACCOUNT][region].databases = pickle.loads(dump)
