"""Avro container files, written and read with fastavro.

Faithful: types as Hive maps them (small integers are `int`, dates and timestamps are logical types, decimals are
bytes), every column may be null. Not faithful: blocks are not compressed. Refused: names that are no Avro names, maps,
timestamps inside of arrays and rows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa

from athena_assets.local.athena_errors import QueryFailed, not_supported

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def render(table: pa.Table) -> bytes:
    """The rows as one file."""
    fields = [_field(field.name, field.type, field.name) for field in table.schema]
    # As numbers, for fastavro would take times without a zone for local ones.
    numbers = [
        pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type) for each in table.schema
    ]
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    sink = io.BytesIO()
    fastavro.writer(sink, schema, table.cast(pa.schema(numbers)).to_pylist())
    return sink.getvalue()


def _field(name: str, kind: pa.DataType, path: str) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        raise not_supported(f"the column name '{name}' in AVRO")
    if path == name and pa.types.is_timestamp(kind):
        return {"name": name, "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None}
    return {"name": name, "type": ["null", _type(kind, path)], "default": None}


def _type(kind: pa.DataType, path: str) -> Any:
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, path)]}
    if pa.types.is_struct(kind):
        record = path.replace(".", "_")
        return {
            "type": "record",
            "name": f"{record}_record",
            "fields": [_field(child.name, child.type, f"{path}.{child.name}") for child in kind],
        }
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    names: dict[pa.DataType, Any] = {
        **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), "int"),
        pa.int64(): "long",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.bool_(): "boolean",
        pa.string(): "string",
        pa.binary(): "bytes",
        pa.date32(): {"type": "int", "logicalType": "date"},
    }
    if kind not in names:
        raise not_supported(f"a column of type {kind} in AVRO ('{path}')")
    return names[kind]


def read(body: bytes, wanted: Mapping[str, pa.DataType], where: str) -> pa.Table:
    """The columns that are wanted, found by name; absent ones are left out."""
    try:
        records = list(fastavro.reader(io.BytesIO(body)))
    except (ValueError, EOFError, IndexError) as error:
        raise QueryFailed(f"HIVE_BAD_DATA: Not a valid Avro data file: {where} ({error})") from error
    rows = [{str(name).lower(): value for name, value in _as_mapping(record).items()} for record in records]
    columns: dict[str, pa.Array] = {}
    for name, kind in wanted.items():
        values = [_naive(row.get(name)) for row in rows]
        try:
            columns[name] = pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise QueryFailed(f"HIVE_BAD_DATA: Field {name} in {where} is incompatible with its column: {error}") from (
                error
            )
    return pa.table(columns)


def _as_mapping(record: Any) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise QueryFailed("HIVE_BAD_DATA: An Avro file of a table holds records")
    return record


def _naive(value: Any) -> Any:
    """Timestamps of Avro are moments in UTC; Athena's have no zone."""
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) is not None else value
