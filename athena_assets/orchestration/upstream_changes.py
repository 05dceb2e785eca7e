"""From what was remembered and what was seen to what has changed. No clock, no AWS, no Dagster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

from athena_assets.aws.glue_versions import TableVersion, Values
from athena_assets.orchestration.upstream_cursor import (
    LEAST_SHARE,
    MOST_GROUPS,
    Cursor,
    Entry,
    Grouping,
    Pending,
    Table,
    digest,
)


@dataclass(frozen=True, slots=True)
class Noted:
    """The cursor with all that was seen, and the tables whose version is another one than before.

    Args:
        changed: table to the digest of the version before, or None at the first look.
    """

    cursor: Cursor
    changed: Mapping[str, str | None]


def note(
    cursor: Cursor,
    seen: Mapping[str, TableVersion],
    *,
    watched: Iterable[str],
    unreached: Iterable[str] = (),
    now: float,
    run_at_start: bool = False,
    most_groups: int = MOST_GROUPS,
) -> Noted:
    """Remembers versions; each one that is new becomes a pending change.

    A table that is watched and was not seen keeps what is remembered of it; one that is not watched is forgotten. At
    the first look at a table there is nothing to compare with: it is a change only with `run_at_start`.
    """
    watched = set(watched)
    tables = {name: table for name, table in cursor.tables.items() if name in watched}
    partitioned = {name for name, table in tables.items() if table.groups is not None and name not in seen}
    partitioned |= {name for name, version in seen.items() if version.partitions is not None}
    share = max(LEAST_SHARE, most_groups // max(len(partitioned), 1))
    changes, changed = cursor.changes, {}
    for name, version in sorted(seen.items()):
        before = tables.get(name)
        numbered = Pending(int(now), changes + 1) if before is not None or run_at_start else None
        whole = _next(None if before is None else before.whole, digest(version.version), numbered)
        same = before is not None and before.whole.version == whole.version
        groups, grouping = _groups(before, version, share, numbered, same=same)
        tables[name] = Table(whole, groups, grouping)
        if before is None or before.whole.version != whole.version:
            changed[name] = None if before is None else before.whole.version
        changes += numbered is not None and tables[name] != before
    return Noted(replace(cursor, changes=changes, tables=tables, unreached=tuple(unreached)), changed)


def group_version(partitions: Mapping[Values, str], members: Iterable[Values]) -> str:
    """Of the members' values and versions, in their order."""
    lines = "\n".join(f"{values!r} {partitions[values]}" for values in members)
    return blake2b(lines.encode(), digest_size=6).hexdigest()


def _next(before: Entry | None, version: str, change: Pending | None) -> Entry:
    if before is not None and before.version == version:
        return before
    return Entry(version, change)


def _groups(
    before: Table | None, version: TableVersion, share: int, change: Pending | None, *, same: bool
) -> tuple[Mapping[str, Entry] | None, Grouping]:
    partitions = version.partitions
    if partitions is None:
        return None, Grouping()
    old = Grouping() if before is None else before.grouping
    known: Mapping[str, Entry] = (before.groups or {}) if before is not None else {}
    grouping = old.fitted(partitions, share)
    if same and grouping == old:
        return known, old
    compared = {
        name: _next(known.get(name), group_version(partitions, members), change)
        for name, members in old.members(partitions).items()
    }
    if grouping == old:
        return compared, old
    return {
        name: Entry(
            group_version(partitions, members),
            _latest(compared[old.group(values)].pending for values in members),
        )
        for name, members in grouping.members(partitions).items()
    }, grouping


def _latest(pending: Iterable[Pending | None]) -> Pending | None:
    return max((each for each in pending if each is not None), key=lambda each: (each.change, each.since), default=None)
