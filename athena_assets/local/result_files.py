"""Renders query results as files: the five formats of UNLOAD, CSV for SELECT.

Faithful: formats, compressions, names, one JSON document a line. Not faithful: Parquet timestamps are INT64
milliseconds (Athena writes INT96), and row groups, stripes and statistics are pyarrow's.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from athena_assets.local import avro_files, hive_partitions, hive_text
from athena_assets.local.athena_errors import QueryFailed, not_supported
from athena_assets.local.unload_format import FileFormat


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


def render_files(table: pa.Table, form: FileFormat, rows_per_file: int) -> Iterator[tuple[str, bytes]]:
    """Folder and content of each file, rendered one at a time; none for an empty table."""
    render = _RENDERERS[form.name]
    for folder, rows in hive_partitions.split(table, form.partitioned_by):
        for offset in range(0, rows.num_rows, rows_per_file):
            yield folder, render(rows.slice(offset, rows_per_file), form)


def _parquet(table: pa.Table, form: FileFormat) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=form.compression.lower(), compression_level=form.level)
    return sink.getvalue()


def _orc(table: pa.Table, form: FileFormat) -> bytes:
    sink = io.BytesIO()
    codec = "uncompressed" if form.compression == "NONE" else form.compression.lower()
    orc.write_table(table, sink, compression=codec)
    return sink.getvalue()


def _avro(table: pa.Table, form: FileFormat) -> bytes:
    return avro_files.render(table)


def _text(table: pa.Table, form: FileFormat) -> bytes:
    return gzip.compress(hive_text.render_lines(table, form.delimiter).encode(), compresslevel=4, mtime=0)


def _json(table: pa.Table, form: FileFormat) -> bytes:
    return gzip.compress(_json_lines(table).encode(), compresslevel=4, mtime=0)


def _json_lines(table: pa.Table) -> str:
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
    return "".join(f"{line}\n" for line in lines.to_pylist())


_RENDERERS: dict[str, Callable[[pa.Table, FileFormat], bytes]] = {
    "PARQUET": _parquet,
    "ORC": _orc,
    "AVRO": _avro,
    "JSON": _json,
    "TEXTFILE": _text,
}


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


def render_metadata(table: pa.Table) -> bytes:
    """Athena's own is binary and not documented; this one is for looking at."""
    return "".join(f"{field.name}\t{trino_type(field.type)}\n" for field in table.schema).encode()


def trino_type(kind: pa.DataType) -> str:
    """The name that GetQueryResults has for a column's type."""
    names = {
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.bool_(): "boolean",
        pa.string(): "varchar",
        pa.date32(): "date",
        pa.timestamp("ms"): "timestamp",
        pa.binary(): "varbinary",
    }
    if pa.types.is_decimal(kind):
        return "decimal"
    return names.get(kind, "row" if pa.types.is_struct(kind) else "array")
