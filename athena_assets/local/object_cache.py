"""Objects as files, because DuckDB reads files. One file per bucket, key and ETag; the folder dies with the server."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path

from athena_assets.local import moto_seams


@dataclass(frozen=True, slots=True)
class CachedObject:
    """A local copy of one version of an object."""

    key: str
    path: Path
    size: int


class ObjectCache:
    """Copies objects out of the store on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fetch(self, bucket: str, key: str) -> CachedObject | None:
        """The object's present version; `None` if it is gone."""
        etag = moto_seams.current_etag(bucket, key)
        if etag is None:
            return None
        path = self._path(bucket, key, etag)
        if path.exists():
            return CachedObject(key, path, path.stat().st_size)
        found = moto_seams.read_object(bucket, key)
        if found is None:
            return None
        etag, body = found
        path = self._path(bucket, key, etag)
        partial = path.with_suffix(f".{threading.get_ident()}.partial")
        partial.write_bytes(body)
        partial.replace(path)
        return CachedObject(key, path, len(body))

    def _path(self, bucket: str, key: str, etag: str) -> Path:
        return self.folder / hashlib.sha256(f"{bucket}/{key}/{etag}".encode()).hexdigest()
