"""Partition projection: the partitions that a table's properties describe instead of the catalog.

Faithful: enum, integer (interval, digits) and date (fixed bounds or NOW with an offset; interval in units) columns, the
location's template. Refused: injected columns, date patterns other than years, months, days, hours, minutes and seconds
in digits, and more than ten thousand partitions, which a query here could not narrow down.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from athena_assets.local import hive_partitions
from athena_assets.local.athena_errors import QueryFailed, not_supported

LIMIT = 10_000
_PATTERN_PARTS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_UNITS = {"WEEKS": timedelta(7), "DAYS": timedelta(1), "HOURS": timedelta(hours=1), "MINUTES": timedelta(minutes=1)}
_MONTHS = {"YEARS": 12, "MONTHS": 1}
_NOW = re.compile(r"NOW\s*(?:([+-])\s*([0-9]+)\s*([A-Z]+?)S?)?", re.IGNORECASE)

Properties = Mapping[str, str]


def is_projected(properties: Properties) -> bool:
    """Athena ignores the catalog's partitions only if this is switched on."""
    return properties.get("projection.enabled", "").lower() == "true"


def partitions(
    properties: Properties, columns: Sequence[str], location: str, now: datetime | None = None
) -> list[tuple[str, tuple[str, ...]]]:
    """Location and values of every partition. `QueryFailed` if the properties say too little."""
    template = properties.get("storage.location.template")
    domains = [list(itertools.islice(_domain(properties, name, now), LIMIT + 1)) for name in columns]
    found: list[tuple[str, tuple[str, ...]]] = []
    for values in itertools.product(*domains):
        if len(found) == LIMIT:
            raise not_supported(f"a projection of more than {LIMIT} partitions")
        if template is None:
            folder = location.rstrip("/") + "/" + hive_partitions.folder(columns, values)
        else:
            folder = template
            for name, value in zip(columns, values, strict=True):
                folder = folder.replace(f"${{{name}}}", value)
        found.append((folder, values))
    return found


def _domain(properties: Properties, name: str, now: datetime | None) -> Iterator[str]:
    kind = _property(properties, name, "type").lower()
    if kind == "enum":
        return iter([value.strip() for value in _property(properties, name, "values").split(",")])
    if kind == "integer":
        return _integers(properties, name)
    if kind == "date":
        return _dates(properties, name, now or datetime.now(UTC).replace(tzinfo=None))
    raise not_supported(f"partition projection of type {kind} ('{name}')")


def _property(properties: Properties, name: str, part: str) -> str:
    found = properties.get(f"projection.{name}.{part}")
    if found is None:
        raise QueryFailed(f"INVALID_TABLE_PROPERTY: projection.{name}.{part} is missing from the table's properties")
    return found


def _bounds(properties: Properties, name: str) -> tuple[str, str]:
    low, comma, high = _property(properties, name, "range").partition(",")
    if not comma:
        raise QueryFailed(f"INVALID_TABLE_PROPERTY: projection.{name}.range has two bounds")
    return low.strip(), high.strip()


def _interval(properties: Properties, name: str) -> int:
    text = properties.get(f"projection.{name}.interval", "1")
    if not text.isdigit() or int(text) < 1:
        raise QueryFailed(f"INVALID_TABLE_PROPERTY: projection.{name}.interval is a positive number, not {text}")
    return int(text)


def _integers(properties: Properties, name: str) -> Iterator[str]:
    low, high = _bounds(properties, name)
    digits = int(properties.get(f"projection.{name}.digits", "0"))
    for value in range(int(low), int(high) + 1, _interval(properties, name)):
        yield f"{value:0{digits}d}"


def _dates(properties: Properties, name: str, now: datetime) -> Iterator[str]:
    pattern = _strftime(_property(properties, name, "format"))
    low, high = (_moment(text, pattern, now) for text in _bounds(properties, name))
    unit = properties.get(f"projection.{name}.interval.unit", "").upper().rstrip("S") + "S"
    if unit == "S":
        unit = "DAYS" if pattern.endswith("%d") else "MONTHS" if pattern.endswith("%m") else ""
    size = _interval(properties, name)
    for number in itertools.count():
        if unit in _MONTHS:
            months = low.year * 12 + low.month - 1 + number * size * _MONTHS[unit]
            value = low.replace(year=months // 12, month=months % 12 + 1, day=1)
        elif unit in _UNITS:
            value = low + _UNITS[unit] * number * size
        else:
            raise not_supported(f"partition projection with projection.{name}.interval.unit = {unit or 'nothing'}")
        if value > high:
            return
        yield value.strftime(pattern)


def _strftime(pattern: str) -> str:
    translated = re.sub("yyyy|MM|dd|HH|mm|ss", lambda found: _PATTERN_PARTS[found.group()], pattern).replace("'", "")
    if re.search("[A-Za-z]", re.sub("%[YmdHMS]", "", translated)):
        raise not_supported(f"the date pattern {pattern} of a partition projection")
    return translated


def _moment(text: str, pattern: str, now: datetime) -> datetime:
    relative = _NOW.fullmatch(text)
    if relative is None:
        try:
            return datetime.strptime(text, pattern)  # noqa: DTZ007 - partitions have no zone
        except ValueError as error:
            raise QueryFailed(f"INVALID_TABLE_PROPERTY: '{text}' is no date of the projection's format") from error
    sign, count, unit = relative.groups()
    if unit is not None:
        if f"{unit.upper()}S" not in _UNITS:
            raise not_supported(f"the bound {text} of a partition projection")
        now += _UNITS[f"{unit.upper()}S"] * int(count) * (1 if sign == "+" else -1)
    # Cut to what the pattern shows, so that the last bound is met exactly.
    return datetime.strptime(now.strftime(pattern), pattern)  # noqa: DTZ007 - as above
