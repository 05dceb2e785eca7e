"""Partitions of every kind: which go together with a target's grain, and what their runs publish."""

from typing import Any

import dagster as dg
import pytest

from athena_assets import Target
from athena_assets.core.partition import placeholder_values
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration import build_unload_asset, unload_assets
from athena_assets.orchestration.partitions import check_key
from athena_assets_tests.e2e.lake import Lake
from athena_assets_tests.orchestration.runs import at, failure_of, partitions, recorded, run

BERLIN = "Europe/Berlin"
HOURLY = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
DAILY = dg.DailyPartitionsDefinition("2026-01-01")
WEEKLY = dg.WeeklyPartitionsDefinition("2026-01-01")  # a Thursday: the first week begins on the Sunday after
MONTHLY = dg.MonthlyPartitionsDefinition("2026-01-05")
STATIC = dg.StaticPartitionsDefinition(["de", "fr"])
OF_GRAIN: dict[str, dg.TimeWindowPartitionsDefinition] = {
    "hour": HOURLY,
    "day": DAILY,
    "week": WEEKLY,
    "month": MONTHLY,
}


def target(grain: str | None, **changes: Any) -> Target:
    arguments: dict[str, Any] = {
        "name": "mart/orders",
        "query": "SELECT ${partition} AS part",
        "location": "s3://lake/mart/orders/${partition}/",
        "grain": grain,
    }
    return Target(**(arguments | changes))


def refused(grain: str | None, partitions_def: dg.PartitionsDefinition) -> str:
    with pytest.raises(InvalidTarget) as found:
        build_unload_asset(target(grain), partitions_def=partitions_def)
    return str(found.value)


@pytest.mark.parametrize("grain", OF_GRAIN)
@pytest.mark.parametrize("zone", ["UTC", BERLIN])
def test_a_grain_goes_with_dagsters_partitions_of_that_length(grain: str, zone: str) -> None:
    kind, start = type(OF_GRAIN[grain]), "2026-01-01-00:00" if grain == "hour" else "2026-01-01"
    partitions_def = kind(start, timezone=zone)  # type: ignore[call-arg]
    assert build_unload_asset(target(grain), partitions_def=partitions_def).partitions_def == partitions_def


@pytest.mark.parametrize(
    ("grain", "key", "window"),
    [
        ("hour", "2026-01-31-23:00", ("2026-01-31 23:00:00", "2026-02-01 00:00:00")),
        ("day", "2026-02-28", ("2026-02-28 00:00:00", "2026-03-01 00:00:00")),
        ("week", "2026-01-04", ("2026-01-04 00:00:00", "2026-01-11 00:00:00")),
        ("month", "2026-12-01", ("2026-12-01 00:00:00", "2027-01-01 00:00:00")),
    ],
)
def test_a_keys_window_is_the_one_that_dagster_shows(grain: Any, key: str, window: tuple[str, str]) -> None:
    check_key(target(grain), OF_GRAIN[grain], key)
    found = target(grain, query="SELECT ${partition_start} AS a, ${partition_end} AS b").values(key)
    assert (found["partition_start"], found["partition_end"]) == window
    assert found == placeholder_values(target(grain).grain, key)  # type: ignore[arg-type]


@pytest.mark.parametrize("grain", OF_GRAIN)
@pytest.mark.parametrize("other", [*OF_GRAIN, "static"])
def test_partitions_of_another_length_are_refused_at_load(grain: str, other: str) -> None:
    if grain != other:
        message = refused(grain, OF_GRAIN.get(other, STATIC))
        assert "'mart/orders', grain" in message
        assert "PartitionsDefinition, or leave grain out" in message


@pytest.mark.parametrize("partitions_def", [HOURLY, DAILY, WEEKLY, MONTHLY, STATIC], ids=str)
def test_without_a_grain_keys_are_any_text(partitions_def: dg.PartitionsDefinition) -> None:
    assert build_unload_asset(target(None), partitions_def=partitions_def).partitions_def == partitions_def


@pytest.mark.parametrize(
    ("grain", "partitions_def"),
    [
        ("day", dg.DailyPartitionsDefinition("2026-01-01", hour_offset=6)),
        ("week", dg.WeeklyPartitionsDefinition("2026-01-01", hour_offset=6)),
        ("month", dg.MonthlyPartitionsDefinition("2026-01-01", hour_offset=6)),
    ],
    ids=["day", "week", "month"],
)
def test_windows_with_an_offset_that_keys_do_not_show_are_refused_at_load(
    grain: str, partitions_def: dg.PartitionsDefinition
) -> None:
    assert "by the asset's partitions" in refused(grain, partitions_def)


@pytest.mark.parametrize(
    ("grain", "partitions_def", "first"),
    [
        ("hour", dg.HourlyPartitionsDefinition("2026-01-01-00:00", minute_offset=30), "2026-01-01-00:30"),
        ("week", dg.WeeklyPartitionsDefinition("2026-01-01", day_offset=1), "2026-01-05"),
        ("month", dg.MonthlyPartitionsDefinition("2026-01-01", day_offset=15), "2026-01-15"),
    ],
    ids=["hour", "week", "month"],
)
def test_windows_with_an_offset_that_keys_show_are_taken(
    grain: str, partitions_def: dg.TimeWindowPartitionsDefinition, first: str
) -> None:
    assert partitions_def.get_first_partition_key() == first
    check_key(target(grain), partitions_def, first)
    build_unload_asset(target(grain), partitions_def=partitions_def)


def test_keys_in_another_format_are_refused_at_load() -> None:
    message = refused("day", dg.DailyPartitionsDefinition("01.02.2026", fmt="%d.%m.%Y"))
    assert "Write it as %Y-%m-%d" in message


def test_days_that_are_left_out_are_refused_at_load() -> None:
    workdays = dg.TimeWindowPartitionsDefinition(start="2026-01-01", fmt="%Y-%m-%d", cron_schedule="0 0 * * 1-5")
    assert "'mart/orders', grain" in refused("day", workdays)


def test_partitions_that_begin_in_the_future_are_checked_too() -> None:
    build_unload_asset(target("day"), partitions_def=dg.DailyPartitionsDefinition("2999-01-01"))
    assert "06:00:00" in refused("day", dg.DailyPartitionsDefinition("2999-01-01", hour_offset=6))


def test_static_keys_that_fit_in_no_path_are_refused_at_load() -> None:
    assert "'a/b'" in refused(None, dg.StaticPartitionsDefinition(["fine", "a/b"]))


@pytest.mark.parametrize("key", ["2026-03-29", "2026-10-25"], ids=["23 hours", "25 hours"])
def test_a_day_on_which_the_clock_is_changed_is_a_day(key: str) -> None:
    check_key(target("day"), dg.DailyPartitionsDefinition("2026-01-01", timezone=BERLIN), key)


def test_an_hour_that_the_clock_shows_twice_is_refused_and_one_before_a_gap_is_not() -> None:
    hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone=BERLIN, end_date="2026-12-01-00:00")
    check_key(target("hour"), hours, "2026-03-29-01:00")  # ends at 02:00, which is 03:00 on that day
    check_key(target("hour"), hours, "2026-03-29-03:00")
    twice = [key for key in hours.get_partition_keys() if key.startswith("2026-10-25-02:00")]
    assert len(twice) == 2
    for key in twice:
        with pytest.raises(InvalidTarget, match="grain"):
            check_key(target("hour"), hours, key)


def test_a_backfill_of_time_partitions_is_one_run_by_default() -> None:
    for partitions_def in OF_GRAIN.values():
        asset = build_unload_asset(target(None), partitions_def=partitions_def)
        assert asset.backfill_policy == dg.BackfillPolicy.single_run()
    assert build_unload_asset(target(None), partitions_def=STATIC).backfill_policy is None


def test_a_given_backfill_policy_is_kept() -> None:
    policy = dg.BackfillPolicy.multi_run(7)
    assert build_unload_asset(target(None), partitions_def=DAILY, backfill_policy=policy).backfill_policy == policy
    whole = target(None, name="whole", query="SELECT 1 AS one", location="s3://lake/whole/")
    parted, plain = unload_assets([target(None), whole], partitions_def=DAILY, backfill_policy=policy)
    assert (parted.backfill_policy, plain.backfill_policy) == (policy, None)


# --- end to end: number n is the hour that begins n hours after the beginning of 28 March 2026 -----------------------

HOURS = (
    "SELECT n FROM numbers WHERE date_add('hour', n, TIMESTAMP '2026-03-28 00:00:00')"
    " >= CAST(${partition_start} AS timestamp) AND date_add('hour', n, TIMESTAMP '2026-03-28 00:00:00')"
    " < CAST(${partition_end} AS timestamp)"
)


def in_time(lake: Lake, grain: str) -> Target:
    return lake.target("in_time", grain=grain, query=HOURS, location=f"s3://{lake.bucket}/in_time/${{partition}}/")


def a_range(start: str, end: str) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}


def test_days_publish_their_days_also_where_the_clock_is_changed(lake: Lake, instance: dg.DagsterInstance) -> None:
    days = in_time(lake, "day")
    asset = build_unload_asset(days, partitions_def=dg.DailyPartitionsDefinition("2026-03-01", timezone=BERLIN))
    result = run(lake, asset, instance, tags=a_range("2026-03-28", "2026-03-30"))
    assert result.success
    assert set(partitions(result)) == {"2026-03-28", "2026-03-29", "2026-03-30"}
    for number, key in enumerate(("2026-03-28", "2026-03-29", "2026-03-30")):
        lake.assert_published_once(at(days, key), range(24 * number, 24 * number + 24))


def test_months_publish_their_months(lake: Lake, instance: dg.DagsterInstance) -> None:
    months = in_time(lake, "month")
    asset = build_unload_asset(months, partitions_def=dg.MonthlyPartitionsDefinition("2026-01-01"))
    result = run(lake, asset, instance, tags=a_range("2026-03-01", "2026-04-01"))
    assert result.success
    april = (31 - 27) * 24
    lake.assert_published_once(at(months, "2026-03-01"), range(april))
    lake.assert_published_once(at(months, "2026-04-01"), range(april, april + 30 * 24))


def test_a_static_partition_publishes_its_own_rows(lake: Lake, instance: dg.DagsterInstance) -> None:
    parities = lake.target(
        "parities",
        query="SELECT n FROM numbers WHERE n % 2 = CAST(${partition} AS bigint)",
        location=f"s3://{lake.bucket}/parities/parity=${{partition}}/",
    )
    asset = build_unload_asset(parities, partitions_def=dg.StaticPartitionsDefinition(["0", "1"]))
    [metadata] = recorded(run(lake, asset, instance, partition="1"))
    assert metadata["dagster/partition_row_count"] == 500
    lake.assert_published_once(at(parities, "1"), range(1, 1_000, 2))
    assert lake.listing(at(parities, "0")) == {}


def test_a_key_whose_time_is_another_for_dagster_fails_its_run_before_any_query(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone=BERLIN, end_date="2026-12-01-00:00")
    asset = build_unload_asset(in_time(lake, "hour"), partitions_def=hours)
    result = run(lake, asset, instance, tags=a_range("2026-10-25-01:00", "2026-10-25-02:00"))
    description, _ = failure_of(result)
    assert "2026-10-25-02:00" in description
    assert lake.aws.queries() == []
