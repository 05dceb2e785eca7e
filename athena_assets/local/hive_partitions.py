"""Hive's partition folders: values as text, escaping, and a result split by them.

Faithful: the order of columns, the folders' names, `__HIVE_DEFAULT_PARTITION__` for NULL and for the empty string,
values in printable ASCII only, at most 100 partitions. Not faithful: partitions by a timestamp, a floating-point number
or a nested value are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from athena_assets.local.athena_errors import QueryFailed, not_supported

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
OPEN_PARTITIONS = 100
_ESCAPED = re.compile("[\x01-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
_PRINTABLE = re.compile("[\x20-\x7e]*")


def escape(text: str) -> str:
    """A column's name or a value in a folder's name."""
    return _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", text)


def folder(names: Sequence[str], values: Sequence[str]) -> str:
    """`a=1/b=x/` for values that are texts of partitions."""
    return "".join(f"{escape(name)}={escape(value)}/" for name, value in zip(names, values, strict=True))


def check_columns(names: Sequence[str], partitioned_by: Sequence[str]) -> None:
    """Partition columns exist, come last, in their order, and are not all there is."""
    absent = [name for name in partitioned_by if name not in names]
    if absent:
        raise QueryFailed(f"INVALID_TABLE_PROPERTY: Partition columns [{', '.join(absent)}] not present in schema")
    if partitioned_by and len(names) == len(partitioned_by):
        raise QueryFailed("INVALID_TABLE_PROPERTY: Table contains only partition columns")
    if partitioned_by and list(names[-len(partitioned_by) :]) != list(partitioned_by):
        raise QueryFailed(
            "HIVE_COLUMN_ORDER_MISMATCH: Partition keys must be the last columns in the table and in the same order as"
            f" the table properties: [{', '.join(partitioned_by)}]"
        )


def split(table: pa.Table, partitioned_by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Folder and rows of each partition, without its columns, in order of first appearance.

    After the hundredth, `QueryFailed`: what was written by then stays, as in Athena.
    """
    if not partitioned_by:
        yield "", table
        return
    for name in partitioned_by:
        _check_type(name, table.schema.field(name).type)
    rows = pa.array(range(table.num_rows), pa.int64())
    keys = table.select(list(partitioned_by)).append_column("\x00row", rows)
    groups = keys.group_by(list(partitioned_by), use_threads=False).aggregate([("\x00row", "list")])
    data = table.drop_columns(list(partitioned_by))
    by_folder: dict[str, list[pa.Array]] = {}
    for group in groups.to_pylist():
        values = [partition_text(group[name]) for name in partitioned_by]
        # NULL and the empty string share a folder.
        by_folder.setdefault(folder(partitioned_by, values), []).append(pa.array(group["\x00row_list"], pa.int64()))
    for number, (name, parts) in enumerate(by_folder.items()):
        if number == OPEN_PARTITIONS:
            raise QueryFailed(
                f"HIVE_TOO_MANY_OPEN_PARTITIONS: Exceeded limit of {OPEN_PARTITIONS} open writers for"
                " partitions/buckets"
            )
        positions = pa.concat_arrays(parts)
        yield name, data.take(positions.take(pc.sort_indices(positions)))


def partition_text(value: Any) -> str:
    """A value as Hive names it; before escaping."""
    if value is None or value == "":
        return DEFAULT_PARTITION
    if isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    if not _PRINTABLE.fullmatch(text):
        raise QueryFailed(
            "HIVE_INVALID_PARTITION_VALUE: Hive partition keys can only contain printable ASCII characters"
            f" (0x20 - 0x7E). Invalid value: {text.encode().hex(' ').upper()}"
        )
    return text


def _check_type(name: str, kind: pa.DataType) -> None:
    allowed = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date32, pa.types.is_decimal)
    if not any(test(kind) for test in allowed):
        raise not_supported(f"partitioned_by a column of type {kind} ('{name}'); cast it in the SELECT")
