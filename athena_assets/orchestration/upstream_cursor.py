"""What the sensor remembers between its ticks, and how it is written. Dagster keeps it as text, with every tick.

A table takes about 50 bytes, and so does each partition that is told apart, of which there are `MOST_GROUPS` at most
over all tables. A table with more than its share of them keeps its newest partitions apart and the older ones in
buckets: then a change in one of those counts as a change of its whole bucket.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from athena_assets.aws.glue_versions import Values
from athena_assets.errors import AthenaAssetsError

SCHEMA = 1
MOST_GROUPS = 20_000  # about a megabyte of cursor
LEAST_SHARE = 8  # groups of one table, however many tables there are


class CursorUnreadable(AthenaAssetsError):
    """The sensor's cursor is damaged, or of a newer version. It is left as it is: a guess could lose a change."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A change for which not all runs are requested yet.

    Args:
        since: when the version was first seen, in seconds of the epoch.
        change: its number among all changes that this cursor has counted.
        after: the last target and key that were requested, where one tick could not request all.
        asked: of a group of partitions, the last key that was requested of each target, where others come with time.
    """

    since: int
    change: int
    after: tuple[str, str] | None = None
    asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """The version last seen, of a table or a group of its partitions."""

    version: str
    pending: Pending | None = None


@dataclass(frozen=True, slots=True)
class Grouping:
    """Partitions from `boundary` on are told apart; those before it share `buckets`. None: all are told apart."""

    boundary: Values | None = None
    buckets: int = 0

    def group(self, values: Values) -> str:
        mark = blake2b("\0".join(values).encode(), digest_size=4).hexdigest()
        if self.boundary is None or values >= self.boundary:
            return mark
        return str(int(mark, 16) % self.buckets)

    def members(self, partitions: Iterable[Values]) -> dict[str, list[Values]]:
        found: dict[str, list[Values]] = {}
        for values in sorted(partitions):
            found.setdefault(self.group(values), []).append(values)
        return found

    def fitted(self, partitions: Iterable[Values], share: int) -> "Grouping":
        """Itself where it fits the share, so that a new partition seldom moves the boundary."""
        ordered = sorted(partitions)
        if len(ordered) <= share:
            return Grouping()
        apart, buckets = share // 2, share // 2
        if self.boundary is not None and self.buckets == buckets and 0 < _from(ordered, self.boundary) <= apart:
            return self
        return Grouping(ordered[-(apart // 2)], buckets)


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `groups` is None where its partitions are not told apart."""

    whole: Entry
    groups: Mapping[str, Entry] | None = None
    grouping: Grouping = Grouping()


@dataclass(frozen=True, slots=True)
class Cursor:
    """All that is remembered.

    Args:
        epoch: when this cursor was begun, in seconds. With `changes`, which only grows, it makes run keys that never
            come again, also after somebody has reset the cursor.
        tables: by `catalog.database.table`.
        unreached: tables that come first in the next tick.
    """

    epoch: int
    changes: int = 0
    tables: Mapping[str, Table] = field(default_factory=dict)
    unreached: tuple[str, ...] = ()


def digest(content: object) -> str:
    """48 bits of anything that JSON can write."""
    return blake2b(json.dumps(content, separators=(",", ":")).encode(), digest_size=6).hexdigest()


def encode(cursor: Cursor) -> str:
    document = {
        "schema": SCHEMA,
        "epoch": cursor.epoch,
        "changes": cursor.changes,
        "unreached": list(cursor.unreached),
        "tables": {name: _table(table) for name, table in sorted(cursor.tables.items())},
    }
    return json.dumps(document, separators=(",", ":"))


def decode(text: str | None, *, sensor: str, now: float) -> Cursor:
    """None or an empty text begins anew.

    Raises:
        CursorUnreadable: as said.
    """
    if not text:
        return Cursor(int(now))
    try:
        document = json.loads(text)
        schema = document["schema"]
        if schema == SCHEMA:
            return Cursor(
                int(document["epoch"]),
                int(document["changes"]),
                {str(name): _read_table(each) for name, each in document["tables"].items()},
                tuple(str(each) for each in document["unreached"]),
            )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise _unreadable(sensor, f"its cursor can't be read ({type(error).__name__}: {error}).") from error
    raise _unreadable(sensor, f"its cursor has the schema version {schema!r}, and this release knows {SCHEMA}.")


def _unreadable(sensor: str, what: str) -> CursorUnreadable:
    return CursorUnreadable(
        f"sensor {sensor}",
        what,
        not_done="No table was looked at, no run was requested, and the cursor is kept.",
        next_step="If a newer release wrote it, use that one. Else reset the sensor's cursor in the UI: the next tick "
        "records all versions anew; materialize by hand what changed in the meantime.",
    )


def _table(table: Table) -> list[Any]:
    if table.groups is None:
        return [_entry(table.whole)]
    boundary = table.grouping.boundary
    return [
        _entry(table.whole),
        None if boundary is None else [list(boundary), table.grouping.buckets],
        {name: _entry(each) for name, each in sorted(table.groups.items())},
    ]


def _entry(entry: Entry) -> str | list[Any]:
    if entry.pending is None:
        return entry.version
    pending = entry.pending
    more = [None if pending.after is None else list(pending.after), dict(pending.asked)]
    return [entry.version, pending.since, pending.change, *(more if any(more) else [])]


def _read_table(written: Any) -> Table:
    if len(written) == 1:
        return Table(_read_entry(written[0]))
    whole, grouping, groups = written
    return Table(
        _read_entry(whole),
        {str(name): _read_entry(each) for name, each in groups.items()},
        Grouping() if grouping is None else Grouping(tuple(map(str, grouping[0])), int(grouping[1])),
    )


def _read_entry(written: Any) -> Entry:
    if isinstance(written, str):
        return Entry(written)
    version, since, change, after, asked = (*written, None, {})[:5] if len(written) == 3 else written
    return Entry(
        str(version),
        Pending(
            int(since),
            int(change),
            None if after is None else (str(after[0]), str(after[1])),
            {str(target): str(key) for target, key in asked.items()},
        ),
    )


def _from(ordered: list[Values], boundary: Values) -> int:
    return sum(values >= boundary for values in ordered)
