"""Which keys of a target a partition of an upstream table means."""

from collections.abc import Sequence
from functools import partial

import dagster as dg
import pytest

from athena_assets.core.partition import Grain
from athena_assets.orchestration.upstream_partitions import Affected, TargetPartitions
from athena_assets.orchestration.upstream_readers import key_comes

DAYS = ["2024-01-30", "2024-01-31", "2024-02-01"]
HOURS = ["2024-01-31-05:00", "2024-01-31-06:00", "2024-02-01-00:00"]
WEEKS = ["2024-01-21", "2024-01-28", "2024-02-04"]
MONTHS = ["2023-12-01", "2024-01-01", "2024-02-01"]


def affected(keys: Sequence[str], grain: Grain | None, *values: str) -> Affected:
    return TargetPartitions(lambda: keys, lambda: (), grain).affected("t", values)


@pytest.mark.parametrize(
    ("grain", "keys", "values", "expected"),
    [
        (Grain.DAY, DAYS, ["2024-01-31"], ["2024-01-31"]),
        (Grain.DAY, DAYS, ["20240131"], ["2024-01-31"]),
        (Grain.DAY, DAYS, ["2024/01/31"], ["2024-01-31"]),
        (Grain.DAY, DAYS, ["2024-01-31 00:00:00"], ["2024-01-31"]),
        (Grain.DAY, DAYS, ["2024", "1", "31"], ["2024-01-31"]),
        (Grain.DAY, DAYS, ["AT", "2024-01-31"], ["2024-01-31"]),
        (Grain.DAY, DAYS, ["7", "20240131"], ["2024-01-31"]),
        (Grain.DAY, DAYS, ["2024-01-31", "05"], ["2024-01-31"]),
        (Grain.DAY, DAYS, ["2024-01"], ["2024-01-30", "2024-01-31"]),
        (Grain.DAY, DAYS, ["2024"], DAYS),
        (Grain.HOUR, HOURS, ["2024-01-31", "5"], ["2024-01-31-05:00"]),
        (Grain.HOUR, HOURS, ["2024013106"], ["2024-01-31-06:00"]),
        (Grain.HOUR, HOURS, ["2024-01-31"], ["2024-01-31-05:00", "2024-01-31-06:00"]),
        (Grain.WEEK, WEEKS, ["2024-01-31"], ["2024-01-28"]),
        (Grain.WEEK, WEEKS, ["2024-01"], ["2024-01-21", "2024-01-28"]),
        (Grain.MONTH, MONTHS, ["2024-01-31"], ["2024-01-01"]),
        (Grain.MONTH, MONTHS, ["2024", "02"], ["2024-02-01"]),
        (None, ["red", "blue"], ["AT", "blue"], ["blue"]),
    ],
)
def test_a_partition_means_the_keys_of_its_time_or_its_value(
    grain: Grain | None, keys: list[str], values: list[str], expected: list[str]
) -> None:
    assert affected(keys, grain, *values) == Affected(expected)


@pytest.mark.parametrize(
    ("grain", "keys", "values", "outside"),
    [
        (Grain.DAY, DAYS, ["2024-02-02"], "2024-02-02"),
        (Grain.DAY, DAYS, ["2024-01-29"], "2024-01-29"),
        (Grain.DAY, [], ["2024-01-29"], "2024-01-29"),
        (Grain.DAY, DAYS, ["2024-13-29"], "2024-13-29"),
        (Grain.DAY, DAYS, ["__HIVE_DEFAULT_PARTITION__"], "__HIVE_DEFAULT_PARTITION__"),
        (Grain.MONTH, MONTHS, ["2024-03-01"], "2024-03-01"),
        (None, ["red"], ["AT", "blue"], "AT/blue"),
    ],
)
def test_a_partition_without_a_key_is_named(
    grain: Grain | None, keys: list[str], values: list[str], outside: str
) -> None:
    assert affected(keys, grain, *values) == Affected([], outside)


@pytest.mark.parametrize(
    ("grain", "keys", "values", "expected"),
    [
        (Grain.MONTH, MONTHS, ["2024-02-29"], Affected(["2024-02-01"])),
        (Grain.MONTH, MONTHS, ["2024-03-01"], Affected([], later=True)),
        (Grain.MONTH, MONTHS, ["2023-11-30"], Affected([], "2023-11-30")),
        (Grain.DAY, DAYS, ["2024-02"], Affected(["2024-02-01"], later=True)),
        (Grain.WEEK, WEEKS, ["2024-02-10"], Affected(["2024-02-04"])),
        (Grain.WEEK, WEEKS, ["2024-02-11"], Affected([], later=True)),
        (None, DAYS, ["2024-02-02"], Affected([], later=True)),
        (None, DAYS, ["red"], Affected([], "red")),
    ],
)
def test_a_key_that_comes_with_time_is_waited_for(
    grain: Grain | None, keys: list[str], values: list[str], expected: Affected
) -> None:
    open_ended = dg.DailyPartitionsDefinition(start_date="2024-01-30")
    partitions = TargetPartitions(lambda: keys, lambda: (), grain, comes=partial(key_comes, open_ended))
    assert partitions.affected("t", tuple(values)) == expected


@pytest.mark.parametrize(
    "ended",
    [
        dg.DailyPartitionsDefinition(start_date="2024-01-30", end_date="2024-02-02"),
        dg.StaticPartitionsDefinition(DAYS),
    ],
)
def test_no_key_comes_where_the_partitions_have_an_end(ended: dg.PartitionsDefinition) -> None:
    assert not key_comes(ended, "2024-02-02", DAYS)


def test_a_function_of_ones_own_decides_for_its_table_alone() -> None:
    partitions = TargetPartitions(
        lambda: DAYS, lambda: (), Grain.DAY, {"own": lambda values: [*DAYS[:2], f"no-{values[0]}"]}
    )
    assert partitions.affected("own", ("x",)) == Affected(DAYS[:2], "no-x")
    assert partitions.affected("other", ("2024-02-01",)) == Affected(["2024-02-01"])
