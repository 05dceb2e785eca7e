"""Partition keys, the parts of those with several dimensions, and the time that each one stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

PARTITION = "partition"
START = "partition_start"
END = "partition_end"
DELIMITER = "|"
"""Between the parts of a key with several dimensions, as Dagster writes it (MultiPartitionKey)."""

_WINDOW_FORMAT = "%Y-%m-%d %H:%M:%S"


class Grain(StrEnum):
    """The length of a time partition; keys are written as Dagster writes them by default."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def sample(self) -> str:
        """Some key of this grain."""
        return "2000-01-02-00:00" if self is Grain.HOUR else "2000-01-02"

    @property
    def key_format(self) -> str:
        """For strptime: Dagster API reference, HourlyPartitionsDefinition and its siblings."""
        return "%Y-%m-%d-%H:%M" if self is Grain.HOUR else "%Y-%m-%d"


def window(grain: Grain, key: str) -> tuple[datetime, datetime]:
    """The first moment of a partition and the first one after it, as wall-clock time of the partitions' own zone.

    Raises:
        ValueError: if the key is not written in the grain's format.
    """
    start = datetime.strptime(key, grain.key_format)  # noqa: DTZ007 - wall-clock time, of whatever zone
    if start.strftime(grain.key_format) != key:
        raise ValueError(f"{key!r} is not written as {start.strftime(grain.key_format)!r}")
    match grain:
        case Grain.HOUR:
            return start, start + timedelta(hours=1)
        case Grain.DAY:
            return start, start + timedelta(days=1)
        case Grain.WEEK:
            return start, start + timedelta(weeks=1)
        case Grain.MONTH:
            months = start.year * 12 + start.month  # of the month after, counted from year 0
            return start, start.replace(year=months // 12, month=months % 12 + 1)


def split_key(dimensions: Sequence[str], key: str) -> dict[str, str]:
    """The part of each dimension. A key has them in the order of the dimensions' sorted names, as Dagster writes it.

    Raises:
        ValueError: if the key has more or fewer parts, or an empty one.
    """
    names, parts = sorted(dimensions), key.split(DELIMITER)
    if len(parts) != len(names) or not all(parts):
        raise ValueError(f"{key!r} is not of the form {DELIMITER.join(names)}")
    return dict(zip(names, parts, strict=True))


def join_key(parts: Mapping[str, str]) -> str:
    """The key that has these parts, one for each dimension. Raises ValueError for a part that holds a `|`."""
    for name, part in parts.items():
        if DELIMITER in part:
            raise ValueError(f"the part {part!r} of {name} holds a {DELIMITER}, which stands between parts")
    return DELIMITER.join(parts[name] for name in sorted(parts))


def placeholder_values(grain: Grain | None, key: str | None, dimensions: Sequence[str] = ()) -> dict[str, str]:
    """The values of the placeholders that a key has: `${partition}`, or each dimension's name; with a grain also
    `${partition_start}` and `${partition_end}`, of the key or of its part in the first dimension. Raises ValueError.
    """
    if key is None:
        return {}
    values = split_key(dimensions, key) if dimensions else {PARTITION: key}
    if grain is None:
        return values
    start, end = window(grain, values[dimensions[0]] if dimensions else key)
    return {**values, START: start.strftime(_WINDOW_FORMAT), END: end.strftime(_WINDOW_FORMAT)}
