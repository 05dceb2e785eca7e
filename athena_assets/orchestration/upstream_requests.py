"""From pending changes to the runs that they need. No clock, no AWS, no Dagster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from athena_assets.aws.glue_versions import TableVersion, Values
from athena_assets.orchestration.upstream_cursor import Cursor, Entry, Pending, Table, digest
from athena_assets.orchestration.upstream_partitions import TargetPartitions


@dataclass(frozen=True, slots=True)
class Reader:
    """A target that reads tables.

    Args:
        code: changes with what is published from the same data.
        tables: by `catalog.database.table`.
        partitions: None if the target has none.
        single_run: several partitions in a row may be one run.
    """

    target: str
    code: str
    tables: frozenset[str]
    partitions: TargetPartitions | None = None
    single_run: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run. `keys`: of partitions that follow each other; none for a target without partitions."""

    target: str
    keys: tuple[str, ...]
    run_key: str
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The cursor without what is requested now; the runs; tables and keys of targets that do not exist."""

    cursor: Cursor
    runs: Sequence[Wanted]
    outside: Mapping[str, frozenset[str]]
    waiting: int


@dataclass(slots=True)
class _Work:
    """What is collected of one tick: for each target and key (None: it has no partitions) the changes that ask."""

    limit: int
    asked: dict[str, dict[str | None, set[tuple[str, str, int]]]] = field(default_factory=dict)
    outside: dict[str, set[str]] = field(default_factory=dict)
    size: int = 0

    @property
    def full(self) -> bool:
        return self.size >= self.limit

    def ask(self, reader: Reader, keys: Sequence[str | None], why: tuple[str, str, int]) -> None:
        known = self.asked.setdefault(reader.target, {})
        new = [key for key in keys if key not in known]
        self.size += min(len(new), 1) if reader.single_run else len(new)
        for key in keys:
            known.setdefault(key, set()).add(why)


def decide(
    cursor: Cursor,
    seen: Mapping[str, TableVersion],
    readers: Sequence[Reader],
    *,
    now: float,
    quiet_seconds: float,
    most_runs: int,
) -> Decision:
    """Requests runs for the changes that are old enough, oldest first, about `most_runs` of them.

    Of what it requests it forgets that it is pending, so that one cursor gives the same runs with the same run keys
    each time, and the cursor that it returns gives others. Only tables that were seen in this tick are looked at.
    """
    work = _Work(most_runs)
    tables = dict(cursor.tables)
    due = [
        (pending.change, name)
        for name, table in tables.items()
        if name in seen
        for _, pending in _pending(table)
        if _is_due(pending, seen[name], now, quiet_seconds)
    ]
    # Each table at the place of its oldest change.
    for name in dict.fromkeys(name for _, name in sorted(due)):
        readers_of = sorted((reader for reader in readers if name in reader.tables), key=lambda each: each.target)
        tables[name] = _ask(work, name, tables[name], seen[name], readers_of, now, quiet_seconds)
    left = sum(1 for table in tables.values() for _ in _pending(table))
    by_name = {reader.target: reader for reader in readers}
    runs = [run for target in work.asked for run in _runs(by_name[target], work.asked[target], cursor.epoch)]
    outside = {target: frozenset(keys) for target, keys in work.outside.items()}
    return Decision(replace(cursor, tables=tables), runs, outside, left)


def _pending(table: Table) -> Iterator[tuple[str | None, Pending]]:
    if table.whole.pending is not None:
        yield None, table.whole.pending
    for group, entry in (table.groups or {}).items():
        if entry.pending is not None:
            yield group, entry.pending


def _is_due(pending: Pending, version: TableVersion, now: float, quiet_seconds: float) -> bool:
    return version.whole or now - pending.since >= quiet_seconds


def _ask(
    work: _Work,
    name: str,
    table: Table,
    version: TableVersion,
    readers: Sequence[Reader],
    now: float,
    quiet_seconds: float,
) -> Table:
    """The table without the changes whose runs fit into this tick's work."""
    partitions = version.partitions or {}
    alike = [each for each in readers if each.partitions is not None and each.partitions.alike(name, partitions)]
    whole, groups = table.whole, dict(table.groups or {})
    if whole.pending is not None and _is_due(whole.pending, version, now, quiet_seconds):
        whole = _ask_whole(work, name, whole, whole.pending, [each for each in readers if each not in alike])
    members = table.grouping.members(partitions)
    for group, pending in sorted(_pending(replace(table, whole=whole)), key=lambda each: each[1].change):
        if group is None or not _is_due(pending, version, now, quiet_seconds):
            continue
        if work.full:
            break
        groups[group] = _ask_group(work, name, groups[group].version, pending, alike, members[group])
    return replace(table, whole=whole, groups=None if table.groups is None else groups)


def _ask_group(
    work: _Work, name: str, version: str, pending: Pending, readers: Sequence[Reader], members: Sequence[Values]
) -> Entry:
    """The readers that are partitioned like the table. What has no key yet stays until it has one."""
    asked, later = dict(pending.asked), False
    for reader in readers:
        assert reader.partitions is not None
        position = reader.partitions.position
        found = [reader.partitions.affected(name, values) for values in members]
        later = later or any(each.later for each in found)
        outside = {each.outside for each in found if each.outside is not None}
        if outside:
            work.outside.setdefault(reader.target, set()).update(outside)
        last = position.get(asked.get(reader.target, ""), -1)
        keys = sorted({key for each in found for key in each.keys if position[key] > last}, key=position.__getitem__)
        if keys:
            work.ask(reader, keys, (name, version, pending.change))
            asked[reader.target] = keys[-1]
    return Entry(version, replace(pending, asked=asked) if later else None)


def _ask_whole(work: _Work, name: str, entry: Entry, pending: Pending, readers: Sequence[Reader]) -> Entry:
    """The readers that need all of the table, in their order. What does not fit stays, with the place to go on from."""
    why = (name, entry.version, pending.change)
    after = pending.after
    for reader in readers:
        keys = _keys_after(reader, after)
        if not keys:
            continue
        if work.full:
            return Entry(entry.version, replace(pending, after=after))
        room = len(keys) if reader.single_run else work.limit - work.size
        work.ask(reader, keys[:room], why)
        after = (reader.target, keys[:room][-1] or "")
        if room < len(keys):
            return Entry(entry.version, replace(pending, after=after))
    return Entry(entry.version)


def _keys_after(reader: Reader, after: tuple[str, str] | None) -> Sequence[str | None]:
    if after is not None and reader.target < after[0]:
        return []
    begun = after is not None and reader.target == after[0]
    if reader.partitions is None:
        return [] if begun else [None]
    keys = reader.partitions.materialized
    if after is None or not begun:
        return keys
    position = reader.partitions.position
    return [key for key in keys if position[key] > position.get(after[1], -1)]


def _runs(reader: Reader, asked: Mapping[str | None, set[tuple[str, str, int]]], epoch: int) -> Iterator[Wanted]:
    partitions = reader.partitions
    if partitions is None:
        yield _run(reader, (), asked[None], epoch)
        return
    position = partitions.position
    row: list[str] = []
    for key in sorted((key for key in asked if key is not None), key=position.__getitem__):
        if row and not (reader.single_run and position[key] == position[row[-1]] + 1):
            yield _run(reader, tuple(row), set().union(*(asked[each] for each in row)), epoch)
            row = []
        row.append(key)
    if row:
        yield _run(reader, tuple(row), set().union(*(asked[each] for each in row)), epoch)


def _run(reader: Reader, keys: tuple[str, ...], why: set[tuple[str, str, int]], epoch: int) -> Wanted:
    """The run key names the versions that ask and the number of each change: a version that comes back has another."""
    name = reader.target
    if keys:
        name += f"[{keys[0]}]" if len(keys) == 1 else f"[{keys[0]}..{keys[-1]}]"
    mark = digest([epoch, reader.target, list(keys), reader.code, sorted(map(list, why))])
    return Wanted(reader.target, keys, f"{name}:{mark}", tuple(sorted({table for table, _, _ in why})))
