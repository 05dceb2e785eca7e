"""Renders query results as files: PARQUET and JSON for UNLOAD, CSV for SELECT.

Faithful: formats, compressions, names, one JSON document a line. Not faithful: Parquet timestamps are INT64
milliseconds (Athena writes INT96), and row groups and statistics are pyarrow's.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from athena_assets.local.athena_errors import QueryFailed, not_supported
from athena_assets.local.statements import Unload

_PARQUET_COMPRESSIONS = {"GZIP": "gzip", "SNAPPY": "snappy", "ZSTD": "zstd", "NONE": "none", "LZ4": "lz4"}
_PROPERTIES = frozenset({"format", "compression", "compression_level", "field_delimiter", "partitioned_by"})


@dataclass(frozen=True, slots=True)
class FileFormat:
    """What an UNLOAD's properties ask for."""

    name: str
    compression: str
    level: int | None

    @property
    def suffix(self) -> str:
        """Athena's text formats end in `.gz`; its Parquet files have no ending."""
        return ".gz" if self.name == "JSON" else ""


def read_format(unload: Unload) -> FileFormat:
    """`QueryFailed` for properties that Athena does not know, or that are not built here."""
    properties = unload.properties
    unknown = sorted(set(properties) - _PROPERTIES)
    if unknown:
        raise QueryFailed(
            f"SYNTAX_ERROR: line 1:1: Catalog 'awsdatacatalog' table property '{unknown[0]}' does not exist"
        )
    name = str(properties.get("format", "")).upper()
    if not name:
        raise QueryFailed("SYNTAX_ERROR: UNLOAD needs the property format: PARQUET, ORC, AVRO, JSON or TEXTFILE")
    for built_later in ("partitioned_by", "field_delimiter"):
        if built_later in properties:
            raise not_supported(f"UNLOAD with {built_later}")
    compression, level = str(properties.get("compression", "GZIP")).upper(), properties.get("compression_level")
    if level is not None and (compression != "ZSTD" or not isinstance(level, int) or not 1 <= level <= 22):
        raise QueryFailed("INVALID_TABLE_PROPERTY: compression_level is a number from 1 to 22, with ZSTD only")
    if name == "JSON":
        if compression != "GZIP":
            raise QueryFailed(f"INVALID_TABLE_PROPERTY: JSON is always compressed with GZIP, not {compression}")
        return FileFormat(name, compression, None)
    if name != "PARQUET":
        raise not_supported(f"UNLOAD with format = '{name}'")
    if compression not in _PARQUET_COMPRESSIONS:
        raise not_supported(f"UNLOAD to PARQUET with compression = '{compression}'")
    return FileFormat(name, compression, 3 if compression == "ZSTD" and level is None else level)


def check_names(names: Sequence[str]) -> None:
    """A file format cannot hold one name twice."""
    for name in names:
        if names.count(name) > 1:
            raise QueryFailed(f"DUPLICATE_COLUMN_NAME: Column name '{name}' specified more than once")


def storable(table: pa.Table) -> pa.Table:
    """The table in the types that Athena stores: timestamps in milliseconds; types without a counterpart are
    refused."""
    fields = [pa.field(field.name, _storable_type(field.name, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields), safe=False)


def _storable_type(name: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return pa.timestamp("ms")
    if pa.types.is_large_string(kind) or pa.types.is_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_storable_type(name, kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _storable_type(name, child.type)) for child in kind])
    plain = (pa.types.is_signed_integer, pa.types.is_boolean, pa.types.is_date32, pa.types.is_binary)
    if any(test(kind) for test in plain) or kind in (pa.float32(), pa.float64()) or pa.types.is_decimal128(kind):
        return kind
    raise not_supported(f"a result column of type {kind} ('{name}'); cast it in the SELECT")


def render_files(table: pa.Table, form: FileFormat, rows_per_file: int) -> Iterator[bytes]:
    """The contents of each file, rendered one at a time; none for an empty table."""
    for offset in range(0, table.num_rows, rows_per_file):
        part = table.slice(offset, rows_per_file)
        yield _json_lines(part) if form.name == "JSON" else _parquet(part, form)


def _parquet(table: pa.Table, form: FileFormat) -> bytes:
    sink = io.BytesIO()
    codec = _PARQUET_COMPRESSIONS[form.compression]
    pq.write_table(table, sink, compression=codec, compression_level=form.level)
    return sink.getvalue()


def _json_lines(table: pa.Table) -> bytes:
    """Nulls are written as `null`; timestamps as `2013-01-01 05:00:00.000`."""
    columns = []
    for field in table.schema:
        column = table.column(field.name)
        if pa.types.is_floating(field.type) and pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise not_supported(f"NaN or Infinity in JSON ('{field.name}')")
        if pa.types.is_binary(field.type):
            raise not_supported(f"varbinary in JSON ('{field.name}')")
        quoted = '"' + field.name.replace('"', '""') + '"'
        stamp = pa.types.is_timestamp(field.type)
        columns.append(f"strftime({quoted}, '%Y-%m-%d %H:%M:%S.%g') AS {quoted}" if stamp else quoted)
    with duckdb.connect() as connection:
        connection.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
        connection.register("rows_to_write", table)
        inner = f"SELECT {', '.join(columns)} FROM rows_to_write"
        lines = connection.sql(f"SELECT to_json(r)::VARCHAR FROM ({inner}) AS r").to_arrow_table().column(0)
    text = "".join(f"{line}\n" for line in lines.to_pylist())
    return gzip.compress(text.encode(), compresslevel=4, mtime=0)


def csv_text(value: Any) -> str | None:
    """A value as Athena's CSV results and GetQueryResults show it; `None` for NULL."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "isoformat"):
        text = str(value)
        return text if len(text) == 10 else f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}"
    return str(value)


def render_csv(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bytes:
    """Every value quoted, NULL an empty unquoted field, as Athena does."""
    lines = [names, *rows]
    quote = '"'
    return "".join(
        ",".join("" if value is None else f"{quote}{value.replace(quote, quote * 2)}{quote}" for value in line) + "\n"
        for line in lines
    ).encode()
