"""The sensor's decisions, without AWS and Dagster: what changed, and which runs that needs."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena_assets.aws.glue_versions import TableVersion
from athena_assets.core.partition import Grain
from athena_assets.orchestration.upstream_cursor import Cursor, Entry, encode
from athena_assets.orchestration.upstream_requests import Reader
from athena_assets_tests.orchestration.upstream_world import QUIET, World, flat, parts, reader

DAYS = [f"2024-01-{day:02}" for day in range(1, 32)]


def test_the_first_look_records_and_requests_nothing() -> None:
    world = World([reader("a", "t")])
    assert world.runs(t=flat("1")) == []
    assert world.changed == {"t": None}
    assert world.runs(t=flat("1")) == []
    assert world.changed == {}


def test_with_run_at_start_the_first_look_is_a_change() -> None:
    world = World([reader("a", "t")], run_at_start=True)
    assert world.runs(t=flat("1")) == []
    assert world.runs(t=flat("1")) == [("a", ())]
    assert world.runs(t=flat("1")) == []


def test_a_change_requests_just_its_readers_once() -> None:
    world = World([reader("a", "t"), reader("b", "t", "u"), reader("c", "u")], quiet=0)
    world.tick(t=flat("1"), u=flat("1"))
    assert world.runs(t=flat("2"), u=flat("1")) == [("a", ()), ("b", ())]
    assert world.runs(t=flat("2"), u=flat("1")) == []


def test_two_changes_of_one_targets_tables_are_one_run() -> None:
    world = World([reader("a", "t", "u")], quiet=0)
    world.tick(t=flat("1"), u=flat("1"))
    [run] = world.tick(t=flat("2"), u=flat("2")).runs
    assert run.tables == ("t", "u")


def test_a_version_that_comes_back_requests_another_run_with_another_key() -> None:
    world = World([reader("a", "t")], quiet=0)
    keys = [run.run_key for version in "ABABA" for run in world.tick(t=flat(version)).runs]
    assert len(keys) == len(set(keys)) == 4


def test_a_table_that_is_still_written_waits_until_it_is_quiet() -> None:
    world = World([reader("a", "t")])
    world.tick(t=flat("1"))
    for version in "234":
        assert world.runs(QUIET - 1, t=flat(version)) == []
    assert world.runs(QUIET - 1, t=flat("4")) == []
    assert world.runs(1, t=flat("4")) == [("a", ())]


def test_a_commit_does_not_wait() -> None:
    world = World([reader("a", "t")])
    world.tick(t=flat("1", whole=True))
    assert world.runs(1, t=flat("2", whole=True)) == [("a", ())]


def test_a_table_that_was_not_seen_keeps_its_version_and_its_change() -> None:
    world = World([reader("a", "t"), reader("b", "u")])
    world.tick(t=flat("1"), u=flat("1"))
    world.tick(t=flat("2"), u=flat("1"))
    assert world.runs(u=flat("2")) == []
    assert world.runs(u=flat("2")) == [("b", ())]
    assert world.runs(t=flat("2"), u=flat("2")) == [("a", ())]


def test_a_table_that_nobody_reads_any_longer_is_forgotten() -> None:
    world = World([reader("a", "t"), reader("b", "u")])
    world.tick(t=flat("1"), u=flat("1"))
    world.readers = [reader("b", "u")]
    world.tick(u=flat("1"))
    assert set(world.cursor.tables) == {"u"}


def test_a_table_that_is_watched_again_brings_no_old_run_key() -> None:
    readers = [reader("a", "t"), reader("b", "u")]
    world = World(readers, quiet=0)
    keys: list[str] = []
    for _ in range(2):
        world.readers = readers
        for version in "12":
            keys += [run.run_key for run in world.tick(t=flat(version), u=flat("1")).runs]
        world.readers = readers[1:]
        world.tick(u=flat("1"))
    assert len(keys) == len(set(keys)) == 2


def test_a_cursor_that_was_reset_brings_no_old_run_key() -> None:
    world = World([reader("a", "t")], quiet=0)
    keys: list[str] = []
    for _ in range(2):
        world.cursor = Cursor(int(world.now))
        keys += [run.run_key for version in "12" for run in world.tick(t=flat(version)).runs]
    assert len(keys) == len(set(keys)) == 2


def test_a_tick_that_was_lost_has_the_same_run_keys_when_it_is_repeated() -> None:
    world = World([reader("a", "t")], quiet=0)
    world.tick(t=flat("1"))
    before = world.cursor
    first = world.tick(t=flat("2"))
    world.cursor = before
    assert world.tick(500, t=flat("2")).runs == first.runs != []


# --- partitions ------------------------------------------------------------------------------------------------------


def test_a_changed_and_a_new_partition_request_just_their_keys() -> None:
    world = World([reader("a", "t", keys=["1", "2", "3"])], quiet=0)
    world.tick(t=parts(**{"1": "x", "2": "x"}))
    assert world.runs(t=parts(**{"1": "x", "2": "y", "3": "x"})) == [("a", ("2",)), ("a", ("3",))]


def test_keys_that_follow_each_other_are_one_run_where_the_policy_is_a_single_run() -> None:
    world = World([reader("a", "t", keys=["1", "2", "3", "4"], single_run=True)], quiet=0)
    world.tick(t=parts(**{"1": "x", "2": "x", "4": "x"}))
    runs = world.runs(t=parts(**{"1": "y", "2": "y", "4": "y"}))
    assert runs == [("a", ("1", "2")), ("a", ("4",))]


def test_a_partition_without_a_key_is_told_and_requests_nothing() -> None:
    world = World([reader("a", "t", keys=["1", "2"])], quiet=0)
    world.tick(t=parts(**{"1": "x"}))
    decision = world.tick(t=parts(**{"1": "x", "9": "x"}))
    assert not decision.runs
    assert decision.outside == {"a": frozenset({"9"})}


def test_a_partition_whose_key_comes_with_time_is_requested_then() -> None:
    """Today's data are there today, and today's key tomorrow."""
    early = reader("early", "t", keys=DAYS[:3], grain=Grain.DAY)
    world = World([reader("a", "t", keys=DAYS[:2], grain=Grain.DAY, open_ended=True), early], quiet=0)
    world.tick(t=parts(**{DAYS[0]: "x"}))
    today = parts(**{DAYS[0]: "x", DAYS[2]: "x"})
    first = world.tick(t=today)
    assert [(run.target, run.keys) for run in first.runs] == [("early", (DAYS[2],))]
    assert (first.outside, first.waiting) == ({}, 1)
    assert world.runs(t=today) == []
    world.readers = [reader("a", "t", keys=DAYS[:3], grain=Grain.DAY, open_ended=True), early]
    assert world.runs(t=today) == [("a", (DAYS[2],))]
    assert world.tick(t=today).waiting == 0


def test_the_hours_of_a_day_are_requested_as_they_come() -> None:
    def hourly(hours: int) -> list[Reader]:
        keys = [f"2024-01-01-{hour:02}:00" for hour in range(hours)]
        return [reader("a", "t", keys=keys, grain=Grain.HOUR, open_ended=True)]

    world = World(hourly(20), quiet=0)
    world.tick(t=parts(**{DAYS[0]: "x"}))
    assert len(world.runs(t=parts(**{DAYS[0]: "y"}))) == 20
    world.readers = hourly(22)
    assert world.runs(t=parts(**{DAYS[0]: "y"})) == [("a", (f"2024-01-01-{hour}:00",)) for hour in (20, 21)]
    world.readers = hourly(24)
    assert len(world.runs(t=parts(**{DAYS[0]: "y"}))) == 2
    assert world.runs(t=parts(**{DAYS[0]: "y"})) == []
    assert world.cursor.tables["t"].groups == {
        name: Entry(entry.version) for name, entry in (world.cursor.tables["t"].groups or {}).items()
    }


def test_a_dropped_partition_requests_nothing_of_a_target_that_is_partitioned_like_it() -> None:
    world = World([reader("a", "t", keys=["1", "2"]), reader("b", "t")], quiet=0)
    world.tick(t=parts(**{"1": "x", "2": "x"}))
    assert world.runs(t=parts(**{"1": "x"})) == [("b", ())]


def test_one_partition_that_is_still_written_holds_up_no_other() -> None:
    world = World([reader("a", "t", keys=["1", "2"])])
    world.tick(t=parts(**{"1": "x", "2": "x"}))
    world.tick(t=parts(**{"1": "y", "2": "1"}))
    assert world.runs(t=parts(**{"1": "y", "2": "2"})) == [("a", ("1",))]
    assert world.runs(t=parts(**{"1": "y", "2": "2"})) == [("a", ("2",))]


@pytest.mark.parametrize("table", [flat("2"), parts(red="y")], ids=["no partitions", "other partitions"])
def test_a_table_that_is_not_partitioned_like_the_target_requests_what_was_materialized(table: TableVersion) -> None:
    world = World([reader("a", "t", keys=["1", "2", "3"], materialized=["3", "1", "gone"])], quiet=0)
    world.tick(t=flat("1") if table.partitions is None else parts(red="x"))
    assert world.runs(t=table) == [("a", ("1",)), ("a", ("3",))]


def test_a_tick_requests_no_more_than_its_share_and_the_next_ones_the_rest() -> None:
    keys = [str(number) for number in range(10, 30)]
    world = World([reader("a", "t", keys=keys), reader("b", "t"), reader("c", "t", keys=keys)], quiet=0, most_runs=7)
    world.tick(t=flat("1"))
    ticks = [world.runs(t=flat("2")) for _ in range(7)]
    assert [len(each) for each in ticks] == [7, 7, 7, 7, 7, 6, 0]
    wanted = [*(("a", (key,)) for key in keys), ("b", ()), *(("c", (key,)) for key in keys)]
    assert [run for tick in ticks for run in tick] == wanted


def test_a_change_in_the_middle_of_the_rest_begins_it_anew() -> None:
    world = World([reader("a", "t", keys=["1", "2", "3"])], quiet=0, most_runs=2)
    world.tick(t=flat("1"))
    assert world.runs(t=flat("2")) == [("a", ("1",)), ("a", ("2",))]
    assert world.runs(t=flat("3")) == [("a", ("1",)), ("a", ("2",))]
    assert world.runs(t=flat("3")) == [("a", ("3",))]
    assert world.runs(t=flat("3")) == []


# --- many partitions -------------------------------------------------------------------------------------------------


def many(count: int, **changes: str) -> TableVersion:
    versions = {f"p{number:05}": "x" for number in range(count)} | changes
    return parts(**versions)


def test_a_new_partition_of_a_large_table_requests_just_itself() -> None:
    keys = [f"p{number:05}" for number in range(3_000)]
    world = World([reader("a", "t", keys=keys)], quiet=0, most_groups=100)
    world.tick(t=many(2_000))
    size = len(encode(world.cursor))
    for count in range(2_001, 2_060):
        assert world.runs(t=many(count)) == [("a", (f"p{count - 1:05}",))]
    assert len(encode(world.cursor)) < size + 2_000


def test_an_old_partition_of_a_large_table_requests_its_bucket_and_is_not_missed() -> None:
    keys = [f"p{number:05}" for number in range(3_000)]
    world = World([reader("a", "t", keys=keys)], quiet=0, most_groups=100, most_runs=10_000)
    world.tick(t=many(2_000))
    runs = world.runs(t=many(2_000, p00003="y"))
    assert ("a", ("p00003",)) in runs
    assert len(runs) < 100
    assert world.runs(t=many(2_000, p00003="y")) == []


def test_the_cursor_is_bounded_however_many_partitions_there_are() -> None:
    tables = [f"t{number}" for number in range(5)]
    world = World([reader("a", *tables)], quiet=0, most_groups=200)
    world.tick(0, **{name: many(1_000) for name in tables})
    few = len(encode(world.cursor))
    world.tick(0, **{name: many(3_000) for name in tables})
    world.tick(0, **{name: many(3_000) for name in tables})
    assert sum(len(table.groups or ()) for table in world.cursor.tables.values()) <= 200
    assert len(encode(world.cursor)) < few + 100


# --- any history -----------------------------------------------------------------------------------------------------

TABLES = ("flat", "daily")
VERSIONS = st.sampled_from("ABC")
FLAT = VERSIONS.map(lambda version: flat(version))
DAILY = st.dictionaries(st.sampled_from(DAYS[:4]), VERSIONS, min_size=1).map(lambda found: parts(**found))
LOOK = st.fixed_dictionaries({}, optional={"flat": FLAT, "daily": DAILY})
TICK = st.tuples(st.sampled_from([1, 20, QUIET, 600]), LOOK)


@dataclass
class Model:
    """Which target and key has to run for which table, by the versions that ticks saw."""

    last: dict[str, TableVersion] = field(default_factory=dict)
    dirty: set[tuple[str, str | None, str]] = field(default_factory=set)

    def see(self, name: str, version: TableVersion) -> None:
        before = self.last.get(name)
        self.last[name] = version
        if before is None or before.version == version.version:
            return
        self.dirty.add(("all", None, name))
        if version.partitions is None:
            self.dirty |= {("days", day, name) for day in DAYS[:3]}
            return
        assert before.partitions is not None
        for day in DAYS[:3]:
            if (day,) not in version.partitions:
                self.dirty.discard(("days", day, name))
            elif before.partitions.get((day,)) != version.partitions[day,]:
                self.dirty.add(("days", day, name))


@given(st.lists(TICK, min_size=2, max_size=25), st.integers(1, 5))
def test_nothing_is_swallowed_and_nothing_is_requested_twice(
    ticks: list[tuple[int, dict[str, TableVersion]]], most: int
) -> None:
    # The fourth day has no key. A table none of whose days has one would count as not partitioned: one always has.
    ticks = [(seconds, {name: _with_a_day(each) for name, each in seen.items()}) for seconds, seen in ticks]
    readers = [reader("all", *TABLES), reader("days", *TABLES, keys=DAYS[:3], grain=Grain.DAY)]
    world, model = World(readers, most_runs=most), Model()
    keys: list[str] = []
    for seconds, seen in [*ticks, *[(QUIET, {})] * 40]:
        now = seen or dict(model.last)
        for name, version in now.items():
            model.see(name, version)
        for run in world.tick(seconds, **now).runs:
            keys.append(run.run_key)
            for key in run.keys or (None,):
                for table in run.tables:
                    assert (run.target, key, table) in model.dirty
                    model.dirty.discard((run.target, key, table))
    assert model.dirty == set()
    assert len(keys) == len(set(keys))


def _with_a_day(version: TableVersion) -> TableVersion:
    if version.partitions is None or any((day,) in version.partitions for day in DAYS[:3]):
        return version
    return parts(**{DAYS[0]: "A"} | {values[0]: each for values, each in version.partitions.items()})


LARGE = st.dictionaries(st.sampled_from(DAYS), VERSIONS, min_size=1).map(lambda found: parts(**found))


@given(st.lists(LARGE, min_size=2, max_size=12))
def test_nothing_is_swallowed_where_old_partitions_share_buckets(looks: list[TableVersion]) -> None:
    world = World([reader("a", "t", keys=DAYS, grain=Grain.DAY)], most_groups=8, most_runs=3)
    before: dict[tuple[str, ...], str] = {}
    dirty: set[str] = set()
    for look in [*looks, *[looks[-1]] * 40]:
        assert look.partitions is not None
        changed = {values[0] for values, version in look.partitions.items() if before.get(values) != version}
        dirty = {key for key in dirty | (changed if before else set()) if (key,) in look.partitions}
        before = dict(look.partitions)
        dirty -= {key for _, keys in world.runs(t=look) for key in keys}
        groups = world.cursor.tables["t"].groups
        assert groups is not None
        assert len(groups) <= 8
    assert dirty == set()
