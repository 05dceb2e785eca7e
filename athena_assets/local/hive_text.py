"""Hive's text conventions, as LazySimpleSerDe has them: values to fields of TEXTFILE and back.

Faithful: `\\N` for NULL, `true`/`false`, ISO dates, timestamps without trailing zeros, plain decimals, Java's spelling
of doubles. Refused: nested values, and texts that hold the delimiter, a line break or `\\N`, which no reader would get
back; a field that does not fit its column's type, which is NULL or an error depending on the engine's version.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from athena_assets.local.athena_errors import QueryFailed, not_supported

NULL = "\\N"


def render_lines(table: pa.Table, delimiter: str) -> str:
    """One line a row."""
    columns = [pc.fill_null(_texts(field.name, table.column(field.name), delimiter), NULL) for field in table.schema]
    return "".join(f"{line}\n" for line in pc.binary_join_element_wise(*columns, delimiter).to_pylist())


def _texts(name: str, column: pa.ChunkedArray, delimiter: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise not_supported(f"a column of type {kind} in TEXTFILE ('{name}')")
    if pa.types.is_string(kind):
        unfit = rf"[{re.escape(delimiter)}\n\r]|^\\N$"
        if pc.any(pc.match_substring_regex(column, unfit)).as_py():
            raise not_supported(f"a text with the delimiter, a line break or \\N in TEXTFILE ('{name}')")
        return column
    write: Callable[[Any], str]
    if pa.types.is_decimal(kind):
        write = "{:f}".format
    elif kind == pa.float64():
        write = java_double
    elif kind == pa.float32():
        write = java_float
    elif pa.types.is_timestamp(kind):
        write = timestamp_text
    else:  # integers, booleans and dates: Arrow spells them alike
        return column.cast(pa.string())
    spelled = [None if value is None else write(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(spelled, pa.string())])


def timestamp_text(value: datetime) -> str:
    """`2013-01-01 05:00:00`, with as many digits of the second as it needs."""
    return f"{value:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + f".{value.microsecond:06d}".rstrip("0").rstrip(".")


def java_double(value: float) -> str:
    """Java's `Double.toString`: the shortest digits that read back, `1.0E10` from ten million on."""
    return _java(value, repr(value))


def java_float(value: float) -> str:
    """Java's `Float.toString` for a single-precision value."""
    if math.isfinite(value):
        for digits in range(1, 10):
            text = f"{value:.{digits - 1}e}"
            if struct.pack("f", float(text)) == struct.pack("f", value):
                return _java(value, text)
    return _java(value, repr(value))


def _java(value: float, text: str) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    number = Decimal(text)
    if 1e-3 <= abs(value) < 1e7:
        plain = f"{number:f}"
        plain = plain.rstrip("0") if "." in plain else plain + "."
        return plain + "0" if plain.endswith(".") else plain
    sign, digits, _ = number.as_tuple()
    shown = "".join(str(digit) for digit in digits).rstrip("0") or "0"
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{number.adjusted()}"


_PATTERNS = {
    "boolean": re.compile("true|false"),
    "integer": re.compile(r"[+-]?[0-9]+"),
    "float": re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|[+-]?Infinity"),
    "decimal": re.compile(r"[+-]?[0-9]+(\.[0-9]*)?"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "timestamp": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"),
}


def parse_column(name: str, texts: Sequence[str | None], kind: pa.DataType, where: str) -> pa.Array:
    """Fields of one column as values of its type. An empty field is NULL but for texts."""
    if pa.types.is_string(kind):
        return pa.array(texts, kind)
    read = _reader(kind)
    values: list[Any] = []
    for text in texts:
        if text is None or text == "":
            values.append(None)
            continue
        try:
            values.append(read(text))
        except (ValueError, ArithmeticError) as error:
            raise _bad_data(name, text, where) from error
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise QueryFailed(f"HIVE_BAD_DATA: Error parsing column '{name}' in {where}: {error}") from error


def _bad_data(name: str, text: str, where: str) -> QueryFailed:
    return QueryFailed(f"HIVE_BAD_DATA: Error parsing field value '{text[:80]}' for field '{name}' in {where}")


def _reader(kind: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_integer(kind):
        return lambda text: int(_checked("integer", text))
    if pa.types.is_floating(kind):
        return lambda text: float(_checked("float", text))
    if pa.types.is_decimal(kind):
        return lambda text: Decimal(_checked("decimal", text))
    if pa.types.is_boolean(kind):
        return lambda text: _checked("boolean", text.lower()) == "true"
    if pa.types.is_date32(kind):
        return lambda text: date.fromisoformat(_checked("date", text))
    if pa.types.is_timestamp(kind):
        return lambda text: datetime.fromisoformat(_checked("timestamp", text)[:23])
    raise not_supported(f"a column of type {kind} in a text format")


def _checked(pattern: str, text: str) -> str:
    if not _PATTERNS[pattern].fullmatch(text):
        raise ValueError(text)
    return text
