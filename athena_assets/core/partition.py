"""Partition keys and the time that each one stands for."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

PARTITION = "partition"
START = "partition_start"
END = "partition_end"

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


def placeholder_values(grain: Grain | None, key: str | None) -> dict[str, str]:
    """The values of `${partition}`, `${partition_start}` and `${partition_end}` for a key. Raises ValueError."""
    if key is None:
        return {}
    if grain is None:
        return {PARTITION: key}
    start, end = window(grain, key)
    return {PARTITION: key, START: start.strftime(_WINDOW_FORMAT), END: end.strftime(_WINDOW_FORMAT)}
