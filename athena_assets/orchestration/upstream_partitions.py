"""Which partitions of a target a partition of an upstream table belongs to."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from athena_assets.aws.glue_versions import Values
from athena_assets.core.partition import Grain, window

KeysOf = Callable[[Values], Iterable[str]]
"""From the values of an upstream partition to the keys of the target's partitions that read it."""

_TIME = re.compile(
    r"(?P<year>[12]\d{3})(?:[-/_.]?(?P<month>\d{2})(?:[-/_.]?(?P<day>\d{2})"
    r"(?:[-T /_]?(?P<hour>\d{2})(?::?\d{2}(?::?\d{2}(?:\.\d+)?)?)?)?)?)?"
)
_PART = re.compile(r"[\d\-/_.:T ]+")


@dataclass(frozen=True, slots=True)
class Affected:
    """Keys that exist, and one that would be meant but does not exist (None: the first are all).

    `later`: a key that does not exist yet, and comes with time.
    """

    keys: Sequence[str]
    outside: str | None = None
    later: bool = False


class TargetPartitions:
    """The partitions of one target, as one tick sees them.

    Args:
        keys: all keys in Dagster's order; asked for only if something changed.
        materialized: those that were materialized before.
        grain: the target's; None: keys are any text.
        keys_of: by table, instead of what is done by default.
        comes: whether a key that does not exist will, with time.
    """

    def __init__(
        self,
        keys: Callable[[], Sequence[str]],
        materialized: Callable[[], Collection[str]],
        grain: Grain | None = None,
        keys_of: Mapping[str, KeysOf] | None = None,
        comes: Callable[[str, Sequence[str]], bool] = lambda key, keys: False,
    ) -> None:
        self._keys = keys
        self._materialized = materialized
        self._grain = grain
        self._keys_of = keys_of or {}
        self._comes = comes

    @cached_property
    def keys(self) -> Sequence[str]:
        return self._keys()

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {key: index for index, key in enumerate(self.keys)}

    @cached_property
    def materialized(self) -> Sequence[str]:
        """In Dagster's order."""
        return sorted((key for key in self._materialized() if key in self.position), key=self.position.__getitem__)

    def alike(self, table: str, partitions: Iterable[Values]) -> bool:
        """Whether the table is partitioned like the target: a partition of it, at least, has a key here."""
        return any(self.affected(table, values).keys for values in partitions)

    def affected(self, table: str, values: Values) -> Affected:
        """By default: the key that is a value of the partition; with a grain, each key whose time overlaps its time."""
        if table in self._keys_of:
            wanted = list(self._keys_of[table](values))
            missing = [key for key in wanted if key not in self.position]
            return self._found([key for key in wanted if key in self.position], missing)
        same = [value for value in dict.fromkeys(values) if value in self.position]
        if same:
            return Affected(same)
        span = None if self._grain is None else time_of(values)
        if self._grain is None or span is None:
            return self._found([], ["/".join(values)])
        overlapping = self._overlapping(self._grain, *span)
        if not overlapping:
            return self._found([], [span[0].strftime(self._grain.key_format)])
        end = window(self._grain, self.keys[-1])[1]
        later = end < span[1] and self._comes(end.strftime(self._grain.key_format), self.keys)
        return Affected(overlapping, later=later)

    def _found(self, keys: Sequence[str], missing: Sequence[str]) -> Affected:
        outside = [key for key in missing if not self._comes(key, self.keys)]
        return Affected(keys, outside[0] if outside else None, len(outside) < len(missing))

    def _overlapping(self, grain: Grain, start: datetime, end: datetime) -> Sequence[str]:
        first = bisect_right(self.keys, start.strftime(grain.key_format)) - 1
        if first < 0 or window(grain, self.keys[first])[1] <= start:
            first += 1
        last = end.strftime(grain.key_format)
        # A key is cut to its grain: where the end is not, the partition of that key has begun before it.
        bisect = bisect_left if window(grain, last)[0] == end else bisect_right
        return self.keys[first : bisect(self.keys, last, first)]


def time_of(values: Values) -> tuple[datetime, datetime] | None:
    """The time that a partition stands for, its end exclusive; None if its values are no time.

    A year, month, day or hour, in one value (`2024-01-31`, `20240131`, `2024-01-31 05:00:00`) or one in each
    (`2024`, `1`, `31`); values that are something else are passed over.
    """
    parts = [value.zfill(2) if value.isdigit() else value for value in values if _PART.fullmatch(value)]
    for text in ("-".join(parts), *values):
        found = _TIME.fullmatch(text)
        if found is not None:
            year, month, day, hour = (None if each is None else int(each) for each in found.groups())
            try:
                start = datetime(int(year or 0), month or 1, day or 1, hour or 0)  # noqa: DTZ001 - wall-clock time
            except ValueError:
                continue
            return start, _end(start, month, day, hour)
    return None


def _end(start: datetime, month: int | None, day: int | None, hour: int | None) -> datetime:
    if hour is not None:
        return start + timedelta(hours=1)
    if day is not None:
        return start + timedelta(days=1)
    if month is not None:
        return window(Grain.MONTH, start.strftime(Grain.MONTH.key_format))[1]
    return start.replace(year=start.year + 1)
