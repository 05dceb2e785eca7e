"""Which format the files of a Glue table have, and their conversion to Parquet, which DuckDB reads.

Faithful: ORC columns are found by position unless the table says by name, all others by name or as the SerDe does;
gzip and bzip2 by the ending of the key, for text formats. Refused rather than guessed: SerDe properties that are not
listed here, and values that the engine would turn into NULL or into an error depending on its version.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from athena_assets.local import avro_files, line_formats
from athena_assets.local.athena_errors import QueryFailed, not_supported
from athena_assets.local.object_cache import CachedObject

PARQUET, ORC, AVRO, TEXT, CSV, JSON = "parquet", "orc", "avro", "text", "csv", "json"
# Class name (lower case, without its package) of each SerDe, and the properties that may be set.
_SERDES: dict[str, tuple[str, frozenset[str]]] = {
    "parquethiveserde": (PARQUET, frozenset({"serialization.format"})),
    "orcserde": (ORC, frozenset({"serialization.format", "orc.column.index.access"})),
    "avroserde": (AVRO, frozenset({"serialization.format", "avro.schema.literal"})),
    "lazysimpleserde": (TEXT, frozenset({"serialization.format", "field.delim", "line.delim",
                                         "serialization.null.format", "skip.header.line.count",
                                         "serialization.encoding", "colelction.delim", "collection.delim",
                                         "mapkey.delim"})),
    "opencsvserde": (CSV, frozenset({"serialization.format", "separatorchar", "quotechar", "escapechar",
                                     "skip.header.line.count"})),
    "jsonserde": (JSON, frozenset({"serialization.format", "paths", "case.insensitive", "ignore.malformed.json"})),
}  # fmt: skip
_UNREADABLE = (".snappy", ".lz4", ".zst", ".deflate", ".lzo", ".zip", ".xz")


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A format with the properties of its SerDe, names in lower case."""

    name: str
    properties: tuple[tuple[str, str], ...] = ()

    def get(self, name: str, default: str) -> str:
        """A property's value."""
        return dict(self.properties).get(name, default)


def read_format(full_name: str, storage: Mapping[str, Any], parameters: Mapping[str, str]) -> TableFormat:
    """`QueryFailed` for a SerDe or a property of it that is not read here."""
    serde = storage.get("SerdeInfo") or {}
    library = str(serde.get("SerializationLibrary", ""))
    name = library.rpartition(".")[2].lower()
    if not library and "parquet" in str(storage.get("InputFormat", "")).lower():
        name = "parquethiveserde"
    if name not in _SERDES:
        raise not_supported(f"tables with the SerDe {library or '(none)'} ('{full_name}')")
    found, known = _SERDES[name]
    properties = {str(key).lower(): str(value) for key, value in (serde.get("Parameters") or {}).items()}
    if "skip.header.line.count" in parameters:
        properties["skip.header.line.count"] = parameters["skip.header.line.count"]
    unknown = sorted(set(properties) - known)
    if found in (TEXT, CSV, JSON) and unknown:
        raise not_supported(f"the SerDe property {unknown[0]} ('{full_name}')")
    if properties.get("parquet.column.index.access", "false").lower() != "false":
        raise not_supported(f"parquet.column.index.access ('{full_name}')")
    if "sequencefile" in str(storage.get("InputFormat", "")).lower():
        raise not_supported(f"sequence files ('{full_name}')")
    line_formats.check_properties(found, properties, full_name)
    return TableFormat(found, tuple(sorted(properties.items())))


def as_parquet(form: TableFormat, columns: Mapping[str, pa.DataType], copy: CachedObject, folder: Path) -> Path:
    """A Parquet file with what the file holds of the table's own columns; converted once for each version of it."""
    if form.name == PARQUET:
        return copy.path
    digest = hashlib.sha256(repr((copy.path.name, form, dict(columns))).encode()).hexdigest()
    path = folder / f"{digest}.converted"
    if not path.exists():
        table = _read(form, columns, copy)
        partial = path.with_suffix(f".{threading.get_ident()}.partial")
        pq.write_table(table, partial)
        partial.replace(path)
    return path


def _read(form: TableFormat, columns: Mapping[str, pa.DataType], copy: CachedObject) -> pa.Table:
    if form.name == ORC:
        return _read_orc(form, columns, copy)
    if form.name == AVRO:
        return avro_files.read(copy.path.read_bytes(), columns, copy.key)
    try:
        text = _decompressed(copy).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise QueryFailed(f"HIVE_BAD_DATA: {copy.key} cannot be read as text: {error}") from error
    readers = {TEXT: line_formats.read_text, CSV: line_formats.read_csv, JSON: line_formats.read_json}
    return readers[form.name](text, columns, dict(form.properties), copy.key)


def _read_orc(form: TableFormat, columns: Mapping[str, pa.DataType], copy: CachedObject) -> pa.Table:
    try:
        table = orc.ORCFile(str(copy.path)).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise QueryFailed(f"HIVE_BAD_DATA: Not a valid ORC file: {copy.key} ({error})") from error
    if form.get("orc.column.index.access", "true").lower() == "false":
        return table
    names = list(columns)[: table.num_columns]
    return table.select(range(len(names))).rename_columns(names)


def _decompressed(copy: CachedObject) -> bytes:
    body = copy.path.read_bytes()
    if copy.key.endswith(".gz"):
        return gzip.decompress(body)
    if copy.key.endswith(".bz2"):
        return bz2.decompress(body)
    if copy.key.endswith(_UNREADABLE):
        raise not_supported(f"the compression of {copy.key}")
    return body
