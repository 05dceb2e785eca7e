"""Tables of the Glue catalog as relations for DuckDB.

Faithful: column names and types are Glue's; columns are found in Parquet files by name, missing ones are NULL, a
type that does not fit is HIVE_BAD_DATA; hidden files (`_x`, `.x`) and empty files are skipped; partitions come from
the catalog, or from the table's projection.

Not faithful: every file of a table is read and counted as scanned, whatever columns or partitions the query needs.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp
from sqlglot.errors import SqlglotError

from athena_assets.local import moto_seams, projection, table_formats
from athena_assets.local.athena_errors import QueryFailed, not_supported
from athena_assets.local.moto_seams import StoredObject
from athena_assets.local.object_cache import CachedObject, ObjectCache
from athena_assets.local.sql_rules import INTEGERS, TEXTS, TIMESTAMPS
from athena_assets.local.sql_translation import CATALOG, TableName
from athena_assets.local.table_formats import TableFormat

TABLE_NOT_FOUND = 1006


@dataclass(frozen=True, slots=True)
class Part:
    """A folder of files, and the values of the partition columns there."""

    location: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GlueTable:
    """What a query needs to know of a table. Columns are name to Hive type, partition columns last, all lower case."""

    name: TableName
    columns: Mapping[str, str]
    partition_columns: tuple[str, ...]
    parts: tuple[Part, ...]
    form: TableFormat

    def schema(self) -> dict[str, str]:
        """Column types in Trino's spelling."""
        return {name: _type(self.name, name, kind).sql(dialect="trino") for name, kind in self.columns.items()}


def load_table(region: str, name: TableName) -> GlueTable:
    """`QueryFailed` if the table is unknown, or of a kind that is not read here."""
    document = moto_seams.glue_table(region, name.database, name.table)
    full_name = f"{CATALOG}.{name.database}.{name.table}"
    if document is None:
        if not moto_seams.glue_has_database(region, name.database):
            raise QueryFailed(f"SCHEMA_NOT_FOUND: Schema '{name.database}' does not exist", error_type=TABLE_NOT_FOUND)
        raise QueryFailed(f"TABLE_NOT_FOUND: Table '{full_name}' does not exist", error_type=TABLE_NOT_FOUND)
    parameters = {key.lower(): str(value) for key, value in (document.get("Parameters") or {}).items()}
    if document.get("TableType") == "VIRTUAL_VIEW" or parameters.get("table_type", "").upper() == "ICEBERG":
        raise not_supported(f"views and Iceberg tables ('{full_name}')")
    storage = document.get("StorageDescriptor") or {}
    form = table_formats.read_format(full_name, storage, parameters)
    keys = document.get("PartitionKeys") or []
    columns = {str(column["Name"]).lower(): str(column["Type"]) for column in [*storage.get("Columns", []), *keys]}
    partition_columns = tuple(str(key["Name"]).lower() for key in keys)
    parts = _parts(document, parameters, partition_columns)
    return GlueTable(name, columns, partition_columns, parts, form)


def _parts(
    document: Mapping[str, Any], parameters: Mapping[str, str], partition_columns: tuple[str, ...]
) -> tuple[Part, ...]:
    storage = document.get("StorageDescriptor") or {}
    location = str(storage.get("Location", ""))
    if not partition_columns:
        return (Part(location, ()),)
    if projection.is_projected(parameters):
        found = projection.partitions(parameters, partition_columns, location)
        return tuple(Part(folder, values) for folder, values in found)
    library = (storage.get("SerdeInfo") or {}).get("SerializationLibrary")
    parts = []
    for entry in document["Partitions"]:
        own = (entry["StorageDescriptor"].get("SerdeInfo") or {}).get("SerializationLibrary")
        if own not in (None, "", library):
            raise not_supported(f"a partition of another format than its table's ({own})")
        parts.append(Part(str(entry["StorageDescriptor"]["Location"]), tuple(str(each) for each in entry["Values"])))
    return tuple(parts)


def _type(table: TableName, column: str, kind: str) -> exp.DataType:
    try:
        return exp.DataType.build(kind, dialect="hive")
    except (SqlglotError, ValueError) as error:
        raise not_supported(f"the type {kind} of column '{column}' of '{table.database}.{table.table}'") from error


def scan(table: GlueTable, cache: ObjectCache) -> tuple[str, int]:
    """DuckDB SQL that reads the table as it is now, and the bytes of the objects that it reads."""
    selects: list[str] = []
    scanned = 0
    own_columns = {name: kind for name, kind in table.columns.items() if name not in table.partition_columns}
    converted = table.form.name != table_formats.PARQUET
    types = (
        {name: _arrow_type(_type(table.name, name, kind)) for name, kind in own_columns.items()} if converted else {}
    )
    listing = _Listing()
    for part in table.parts:
        for copy in listing.files(part.location, cache):
            path = table_formats.as_parquet(table.form, types, copy, cache.folder)
            selects.append(_select(table, part, path, copy.key))
            scanned += copy.size
    if not selects:
        empty = ", ".join(f"CAST(NULL AS {_duckdb_type(table, name)}) AS {_quoted(name)}" for name in table.columns)
        return f"SELECT {empty} WHERE false", 0
    return " UNION ALL ".join(selects), scanned


class _Listing:
    """Buckets as they are during one scan, listed once each: a projection may have thousands of folders."""

    def __init__(self) -> None:
        self._buckets: dict[str, list[StoredObject]] = {}

    def files(self, location: str, cache: ObjectCache) -> list[CachedObject]:
        """Copies of the files under a location that hold data."""
        scheme, _, rest = location.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme not in ("s3", "s3a", "s3n") or not bucket:
            raise QueryFailed(f"HIVE_METASTORE_ERROR: Table storage descriptor's location is not on S3: {location!r}")
        prefix = prefix.rstrip("/") + "/" if prefix.strip("/") else ""
        if bucket not in self._buckets:
            self._buckets[bucket] = moto_seams.list_objects(bucket, "")
        found = self._buckets[bucket]
        start = bisect_left(found, prefix, key=lambda entry: entry.key)
        copies = []
        for entry in itertools.takewhile(lambda entry: entry.key.startswith(prefix), found[start:]):
            segments = entry.key.removeprefix(prefix).split("/")
            if entry.size == 0 or any(segment.startswith(("_", ".")) for segment in segments):
                continue
            copy = cache.fetch(bucket, entry.key)
            if copy is not None:
                copies.append(copy)
        return copies


def _arrow_type(kind: exp.DataType) -> pa.DataType:
    """The type of a column in files that are converted."""
    plain: dict[exp.DType, pa.DataType] = {
        exp.DType.TINYINT: pa.int8(),
        exp.DType.SMALLINT: pa.int16(),
        exp.DType.INT: pa.int32(),
        exp.DType.BIGINT: pa.int64(),
        exp.DType.FLOAT: pa.float32(),
        exp.DType.DOUBLE: pa.float64(),
        exp.DType.BOOLEAN: pa.bool_(),
        exp.DType.DATE: pa.date32(),
        exp.DType.BINARY: pa.binary(),
        **dict.fromkeys(TEXTS, pa.string()),
        **dict.fromkeys(TIMESTAMPS, pa.timestamp("ms")),
    }
    if kind.this in plain:
        return plain[kind.this]
    if kind.this == exp.DType.DECIMAL:
        precision, scale, *_ = [
            *(int(str(each.this)) for each in kind.expressions),
            *((10, 0)[len(kind.expressions) :]),
        ]
        return pa.decimal128(precision, scale)
    if kind.this == exp.DType.ARRAY and len(kind.expressions) == 1:
        return pa.list_(_arrow_type(kind.expressions[0]))
    if kind.this == exp.DType.STRUCT and all(isinstance(each, exp.ColumnDef) for each in kind.expressions):
        return pa.struct([(each.name.lower(), _arrow_type(each.args["kind"])) for each in kind.expressions])
    raise not_supported(f"columns of type {kind.sql(dialect='trino')} in this format")


def _select(table: GlueTable, part: Part, path: Path, key: str) -> str:
    try:
        file_schema = pq.read_schema(path)
    except pa.ArrowInvalid as error:
        raise QueryFailed(f"HIVE_BAD_DATA: Not valid Parquet file: {key} ({error})") from error
    present = {
        name.lower(): (name, file_schema.field(position).type) for position, name in enumerate(file_schema.names)
    }
    values = dict(zip(table.partition_columns, part.values, strict=True))
    columns = []
    for name, kind in table.columns.items():
        target = _duckdb_type(table, name)
        if name in values:
            literal = "NULL" if values[name] == "__HIVE_DEFAULT_PARTITION__" else exp.Literal.string(values[name]).sql()
            columns.append(f"CAST({literal} AS {target}) AS {_quoted(name)}")
        elif name not in present:
            columns.append(f"CAST(NULL AS {target}) AS {_quoted(name)}")
        else:
            actual, arrow_type = present[name]
            wanted = _type(table.name, name, kind)
            if not _fits(arrow_type, wanted):
                raise QueryFailed(
                    f"HIVE_BAD_DATA: Field {name}'s type {arrow_type} in {key} is incompatible with {kind}"
                )
            source = _quoted(actual)
            if wanted.this in TIMESTAMPS:  # Athena's timestamps have milliseconds
                source = f"date_trunc('millisecond', CAST({source} AS TIMESTAMP))"
            nested = wanted.this in (exp.DType.ARRAY, exp.DType.STRUCT, exp.DType.MAP)
            columns.append(f"{source if nested else f'CAST({source} AS {target})'} AS {_quoted(name)}")
    return f"SELECT {', '.join(columns)} FROM read_parquet({exp.Literal.string(str(path)).sql()})"


def _duckdb_type(table: GlueTable, name: str) -> str:
    kind = _type(table.name, name, table.columns[name])
    if kind.this in TEXTS or kind.this == exp.DType.CHAR:
        if kind.this == exp.DType.CHAR:
            raise not_supported(f"char columns ('{name}'): their comparison pads with blanks")
        return "VARCHAR"
    return kind.sql(dialect="duckdb")


def _fits(found: pa.DataType, wanted: exp.DataType) -> bool:
    kind = wanted.this
    widths = {exp.DType.TINYINT: 8, exp.DType.SMALLINT: 16, exp.DType.INT: 32, exp.DType.BIGINT: 64}
    if kind in INTEGERS:
        return pa.types.is_signed_integer(found) and int(found.bit_width) <= widths[kind]
    if kind in TEXTS:
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if kind in TIMESTAMPS:
        return bool(pa.types.is_timestamp(found))
    tests: dict[exp.DType, bool] = {
        exp.DType.DOUBLE: found in (pa.float32(), pa.float64()),
        exp.DType.FLOAT: found == pa.float32(),
        exp.DType.BOOLEAN: bool(pa.types.is_boolean(found)),
        exp.DType.DATE: bool(pa.types.is_date32(found)),
        exp.DType.BINARY: bool(pa.types.is_binary(found) or pa.types.is_large_binary(found)),
        exp.DType.ARRAY: bool(pa.types.is_list(found)),
        exp.DType.STRUCT: bool(pa.types.is_struct(found)),
        exp.DType.MAP: bool(pa.types.is_map(found)),
    }
    if kind == exp.DType.DECIMAL and pa.types.is_decimal(found):
        numbers = [int(str(parameter.this)) for parameter in wanted.expressions] or [10, 0]
        return bool(found.scale == [*numbers, 0][1] and found.precision <= numbers[0])
    return tests.get(kind, False)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
