"""Versions and readers for tests of the sensor's pure part."""

from collections.abc import Collection, Mapping, Sequence

from athena_assets.aws.glue_versions import TableVersion
from athena_assets.core.partition import Grain
from athena_assets.orchestration.upstream_changes import note
from athena_assets.orchestration.upstream_cursor import MOST_GROUPS, Cursor, decode, encode
from athena_assets.orchestration.upstream_partitions import TargetPartitions
from athena_assets.orchestration.upstream_requests import Decision, Reader, decide

QUIET = 60


def flat(version: str, *, whole: bool = False) -> TableVersion:
    return TableVersion(version, whole=whole)


def parts(**versions: str) -> TableVersion:
    """A table with one partition column; an argument for each of its values."""
    return TableVersion(repr(sorted(versions.items())), {(value,): version for value, version in versions.items()})


def reader(
    target: str,
    *tables: str,
    keys: Sequence[str] | None = None,
    materialized: Collection[str] | None = None,
    grain: Grain | None = None,
    open_ended: bool = False,
    single_run: bool = False,
) -> Reader:
    partitions = None
    if keys is not None:
        partitions = TargetPartitions(
            lambda: keys,
            lambda: keys if materialized is None else materialized,
            grain,
            comes=lambda key, known: open_ended and key > known[-1],
        )
    return Reader(target, "code", frozenset(tables), partitions, single_run=single_run)


class World:
    """Ticks over one cursor, which is written and read again between any two of them."""

    def __init__(self, readers: Sequence[Reader], **settings: int | bool) -> None:
        self.readers = readers
        self.quiet = int(settings.pop("quiet", QUIET))
        self.most_runs = int(settings.pop("most_runs", 100))
        self.most_groups = int(settings.pop("most_groups", MOST_GROUPS))
        self.run_at_start = bool(settings.pop("run_at_start", False))
        self.now = 1_000_000.0
        self.cursor = Cursor(int(self.now))
        self.changed: Mapping[str, str | None] = {}

    def tick(self, seconds: float = QUIET, **seen: TableVersion) -> Decision:
        self.now += seconds
        noted = note(
            self.cursor,
            seen,
            watched={table for each in self.readers for table in each.tables},
            now=self.now,
            run_at_start=self.run_at_start,
            most_groups=self.most_groups,
        )
        self.changed = noted.changed
        decision = decide(
            noted.cursor, seen, self.readers, now=self.now, quiet_seconds=self.quiet, most_runs=self.most_runs
        )
        self.cursor = decode(encode(decision.cursor), sensor="test", now=self.now)
        assert self.cursor == decision.cursor
        return decision

    def runs(self, seconds: float = QUIET, **seen: TableVersion) -> list[tuple[str, tuple[str, ...]]]:
        """Target and keys of the runs that a tick requests."""
        return [(each.target, each.keys) for each in self.tick(seconds, **seen).runs]
