"""Formats of one row a line, as their SerDes read them: LazySimpleSerDe, OpenCSVSerde, the JSON SerDes.

Faithful: missing fields are NULL, surplus ones are dropped; NULL is `\\N` in text (or what the table says) and `null`
in JSON; JSON names are compared without case. A field that does not fit its column is HIVE_BAD_DATA; a JSON value of
another kind than its column is refused, for the SerDes convert some of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from athena_assets.local import hive_text
from athena_assets.local.athena_errors import QueryFailed, not_supported

Columns = Mapping[str, pa.DataType]
Properties = Mapping[str, str]


def check_properties(form: str, properties: Properties, full_name: str) -> None:
    """Refuses values of the SerDe's properties that change what a line means in a way that is not built."""
    expected = {
        "line.delim": ("\n",),
        "serialization.encoding": ("UTF-8", "utf-8"),
        "case.insensitive": ("true", "TRUE"),
        "ignore.malformed.json": ("false", "FALSE"),
    }
    for name, allowed in expected.items():
        if name in properties and properties[name] not in allowed:
            raise not_supported(f"the SerDe property {name} = {properties[name]!r} ('{full_name}')")
    if not properties.get("skip.header.line.count", "0").isdigit():
        raise not_supported(f"skip.header.line.count = {properties['skip.header.line.count']!r} ('{full_name}')")
    for name in ("separatorchar", "quotechar", "escapechar"):
        if len(properties.get(name, "x")) != 1:
            raise not_supported(f"the SerDe property {name} = {properties[name]!r} ('{full_name}')")
    if form == "text" and len(_delimiter(properties)) != 1:
        raise not_supported(f"a delimiter of several characters ('{full_name}')")


def _lines(text: str, properties: Properties) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines[int(properties.get("skip.header.line.count", "0")) :]


def _delimiter(properties: Properties) -> str:
    asked = properties.get("field.delim", properties.get("serialization.format", "1"))
    # Hive also takes the number of the character.
    return chr(int(asked)) if asked.isdigit() and len(asked) < 4 else {"\\t": "\t", "\\001": "\x01"}.get(asked, asked)


def _by_column(rows: list[list[str | None]], columns: Columns, where: str) -> pa.Table:
    width = len(columns)
    filled = [[*row[:width], *[None] * (width - len(row))] for row in rows]
    arrays = {
        name: hive_text.parse_column(name, [row[position] for row in filled], kind, where)
        for position, (name, kind) in enumerate(columns.items())
    }
    return pa.table(arrays)


def read_text(text: str, columns: Columns, properties: Properties, where: str) -> pa.Table:
    """LazySimpleSerDe: fields between delimiters, without quotes or escapes."""
    null, delimiter = properties.get("serialization.null.format", hive_text.NULL), _delimiter(properties)
    rows = [
        [None if field == null else field for field in line.removesuffix("\r").split(delimiter)]
        for line in _lines(text, properties)
    ]
    return _by_column(rows, columns, where)


def read_csv(text: str, columns: Columns, properties: Properties, where: str) -> pa.Table:
    """OpenCSVSerde over columns that are strings; lines that other CSV readers would read differently are refused."""
    for name, kind in columns.items():
        if not pa.types.is_string(kind):
            raise not_supported(f"OpenCSVSerde with columns other than strings ('{name}')")
    separator, quote = properties.get("separatorchar", ","), properties.get("quotechar", '"')
    escape = properties.get("escapechar", "\\")
    s, q, e = (re.escape(each) for each in (separator, quote, escape))
    field = re.compile(f"{q}((?:[^{q}{e}]|{q}{q})*){q}(?={s}|$)|((?![ \t])[^{s}{q}{e}]*)(?={s}|$)")
    rows: list[list[str | None]] = []
    for line in _lines(text, properties):
        rest, row = line.removesuffix("\r"), list[str | None]()
        while True:
            found = field.match(rest)
            if found is None:
                raise not_supported(f"this line of CSV: {line[:80]!r} ({where})")
            quoted, plain = found.groups()
            row.append(plain if quoted is None else quoted.replace(quote * 2, quote))
            if found.end() == len(rest):
                break
            rest = rest[found.end() + len(separator) :]
        rows.append(row)
    return _by_column(rows, columns, where)


def read_json(text: str, columns: Columns, properties: Properties, where: str) -> pa.Table:
    """The JSON SerDes: one object a line."""
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for line in _lines(text, properties):
        try:
            document = json.loads(line, parse_float=Decimal, object_pairs_hook=_object)
        except ValueError as error:
            raise QueryFailed(f"HIVE_CURSOR_ERROR: Row is not a valid JSON Object in {where}: {error}") from error
        if not isinstance(document, dict):
            raise QueryFailed(f"HIVE_CURSOR_ERROR: Row is not a valid JSON Object in {where}")
        for name, kind in columns.items():
            values[name].append(_from_json(name, document.get(name), kind, where))
    arrays = {}
    for name, kind in columns.items():
        try:
            arrays[name] = pa.array(values[name], kind)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise QueryFailed(f"HIVE_BAD_DATA: Error parsing column '{name}' in {where}: {error}") from error
    return pa.table(arrays)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = {name.lower(): value for name, value in pairs}
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _from_json(name: str, value: Any, kind: pa.DataType, where: str) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_from_json(name, each, kind.value_type, where) for each in value]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _from_json(name, value.get(field.name), field.type, where) for field in kind}
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or isinstance(value, Decimal)
    if pa.types.is_floating(kind) and number:
        return float(value)
    if pa.types.is_decimal(kind) and number:
        return Decimal(value)
    fits = (
        (pa.types.is_integer(kind) and whole)
        or (pa.types.is_boolean(kind) and isinstance(value, bool))
        or (pa.types.is_string(kind) and isinstance(value, str))
    )
    if fits:
        return value
    if isinstance(value, str) and (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return hive_text.parse_column(name, [value], kind, where)[0].as_py()
    raise not_supported(f"the JSON value {str(value)[:80]!r} in a column of type {kind} ('{name}' in {where})")
