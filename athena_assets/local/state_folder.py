"""State that outlives the server: S3's objects, Glue's catalog, Athena's history, tokens and workgroups, in SQLite.

One row for each bucket, object (all its versions), region's catalog, query, and for the workgroups; the last one
written counts. A row is committed before the reply is sent, under the same lock as the change: what a client has been
told survives a SIGKILL of the server. Not a crash of the machine, for commits are not forced to the disk.

Not kept: unfinished multipart uploads, other services (Lambda and Step Functions among them), faults, the request log.
The rows hold pickled objects of moto's, so a file of another moto or of another format is refused. Only open files that
this package wrote.
"""

from __future__ import annotations

import pickle
import sqlite3
import threading
from pathlib import Path
from typing import Any

import moto

from athena_assets.local import moto_seams
from athena_assets.local.identify import Identity, delete_entries

FORMAT = "1"
FILE = "embedded-aws.sqlite"
LOCK_SECONDS = 5.0
_PARTS_OF_UPLOADS = frozenset({"CreateMultipartUpload", "UploadPart", "UploadPartCopy", "AbortMultipartUpload"})
_READS = ("Get", "List", "Search", "BatchGet", "Head")


class StateRefused(Exception):
    """The state in the folder cannot be used: another server has it open, or another version wrote it."""


class StateFolder:
    """Thread-safe. Lock order: moto's lock, an execution's lock, then this one's."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        path = folder / FILE
        # Autocommit: each statement is a transaction. One connection, used under the lock.
        self._rows = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._rows.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._rows.execute("PRAGMA journal_mode = WAL")
            self._rows.execute("PRAGMA synchronous = NORMAL")
            self._rows.execute(
                "CREATE TABLE IF NOT EXISTS state (kind TEXT, name TEXT, value BLOB, PRIMARY KEY (kind, name))"
            )
            self._rows.execute("INSERT OR IGNORE INTO state VALUES ('version', '', ?)", (_version(),))
            (found,) = self._rows.execute("SELECT value FROM state WHERE kind = 'version'").fetchone()
        except sqlite3.OperationalError as error:
            raise StateRefused(f"{path} cannot be opened; is another embedded AWS using it? ({error})") from error
        except sqlite3.DatabaseError as error:
            raise StateRefused(f"{path} is not a state of the embedded AWS: {error}") from error
        if found != _version():
            raise StateRefused(f"{path} was written by {found}, this is {_version()}: use another folder")

    def put(self, kind: str, name: str, value: Any) -> None:
        """Committed when this returns."""
        with self._lock:
            self._rows.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", (kind, name, pickle.dumps(value)))

    def remove(self, kind: str, name: str) -> None:
        """As if it had never been put."""
        with self._lock:
            self._rows.execute("DELETE FROM state WHERE kind = ? AND name = ?", (kind, name))

    def read(self, kind: str) -> dict[str, Any]:
        """Values by name, in the order of names."""
        with self._lock:
            found = self._rows.execute("SELECT name, value FROM state WHERE kind = ? ORDER BY name", (kind,)).fetchall()
        return {name: pickle.loads(value) for name, value in found}

    def clear(self) -> None:
        """Only the version is left."""
        with self._lock:
            self._rows.execute("DELETE FROM state WHERE kind <> 'version'")

    def keep_s3(self, identity: Identity, body: bytes) -> None:
        """After a successful write request; the caller holds moto's lock."""
        if identity.bucket is None or identity.operation in _PARTS_OF_UPLOADS:
            return
        if identity.operation == "DeleteObjects":
            for key, _ in delete_entries(body):
                self.keep_object(identity.bucket, key)
        elif identity.key is not None:
            self.keep_object(identity.bucket, identity.key)
        else:
            self._keep("bucket", identity.bucket, moto_seams.dump_bucket(identity.bucket))

    def keep_object(self, bucket: str, key: str) -> None:
        """After a change of this object; the caller holds moto's lock."""
        self._keep("object", f"{bucket}/{key}", moto_seams.dump_key(bucket, key))

    def keep_glue(self, identity: Identity) -> None:
        """After a successful request; the caller holds moto's lock."""
        if not identity.operation.startswith(_READS):
            self._keep("catalog", identity.region, moto_seams.dump_catalog(identity.region))

    def _keep(self, kind: str, name: str, dump: bytes | None) -> None:
        if dump is None:
            self.remove(kind, name)
        else:
            self.put(kind, name, dump)

    def restore_stores(self) -> None:
        """Puts buckets, objects and catalogs into moto's stores, which are empty."""
        with moto_seams.LOCK:
            for name, dump in self.read("bucket").items():
                moto_seams.load_bucket(name, dump)
            for name, dump in self.read("object").items():
                bucket, _, key = name.partition("/")
                moto_seams.load_key(bucket, key, dump)
            for region, dump in self.read("catalog").items():
                moto_seams.load_catalog(region, dump)


def _version() -> str:
    return f"embedded AWS, format {FORMAT}, moto {moto.__version__}"
