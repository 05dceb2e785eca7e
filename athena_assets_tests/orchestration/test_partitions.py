"""Partitions of every kind: which go together with a target's grain, and what their runs publish."""

from typing import Any, cast

import dagster as dg
import pytest

from athena_assets import Target
from athena_assets.core.partition import placeholder_values
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration import AthenaUnloadResource, build_unload_asset, unload_assets
from athena_assets.orchestration.lineage import code_version
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


@pytest.mark.parametrize("end", ["2025-12-31", "2026-01-01"])
def test_partitions_that_end_before_they_begin_are_refused_at_load(end: str) -> None:
    none = dg.DailyPartitionsDefinition("2026-01-01", end_date=end)
    assert "there is none" in refused("day", none)
    several = target("day", query="TABLE t", location="s3://lake/${day}/${part}/", dimensions=("day", "part"))
    with pytest.raises(InvalidTarget, match="there is none"):
        build_unload_asset(several, partitions_def=dg.MultiPartitionsDefinition({"day": none, "part": STATIC}))


def test_partitions_of_the_future_or_of_one_window_are_accepted() -> None:
    for some in (
        dg.DailyPartitionsDefinition("2999-01-01"),
        dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-02"),
    ):
        assert build_unload_asset(target("day"), partitions_def=some).partitions_def == some


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


# --- several dimensions ----------------------------------------------------------------------------------------------

PARITY = dg.StaticPartitionsDefinition(["0", "1"])
DAY_AND_PARITY = dg.MultiPartitionsDefinition({"parity": PARITY, "day": dg.DailyPartitionsDefinition("2026-03-01")})


def two(**changes: Any) -> Target:
    arguments: dict[str, Any] = {
        "name": "mart/orders",
        "query": "SELECT ${day} AS d, ${parity} AS p",
        "location": "s3://lake/mart/orders/${day}/${parity}/",
        "dimensions": ("day", "parity"),
    }
    return Target(**(arguments | changes))


@pytest.mark.parametrize("grain", [None, "day"])
def test_dimensions_go_with_multi_partitions_of_the_same_names(grain: str | None) -> None:
    asset = build_unload_asset(two(grain=grain), partitions_def=DAY_AND_PARITY)
    assert asset.partitions_def == DAY_AND_PARITY


@pytest.mark.parametrize(
    ("changes", "partitions_def", "match"),
    [
        ({}, None, "'mart/orders', dimensions: they are given"),
        ({}, DAILY, "day, parity, and the partitions of the asset have no dimensions"),
        (
            {},
            dg.MultiPartitionsDefinition({"day": DAILY, "origin": STATIC}),
            "day, parity, and those of the asset's partitions are day, origin",
        ),
        (
            {"grain": "day", "dimensions": ("parity", "day")},
            DAY_AND_PARITY,
            "'mart/orders', grain: it is day, and the partitions of the asset are others: '0', '1'",
        ),
        ({"grain": "hour"}, DAY_AND_PARITY, "'mart/orders', grain: it is hour"),
        (
            {"grain": "day"},
            dg.MultiPartitionsDefinition(
                {"day": dg.DailyPartitionsDefinition("2026-03-01", hour_offset=6), "parity": PARITY}
            ),
            "the partition '2026-03-01' is .*06:00:00",
        ),
        (
            {},
            dg.MultiPartitionsDefinition({"day": DAILY, "parity": dg.StaticPartitionsDefinition(["fine", "a/b"])}),
            "'a/b'",
        ),
        (
            {},
            dg.MultiPartitionsDefinition(
                {"day": dg.DailyPartitionsDefinition("2026|01|01", fmt="%Y|%m|%d"), "parity": PARITY}
            ),
            r"'2026\|01\|01' of day holds a \|",
        ),
    ],
    ids=str,
)
def test_dimensions_that_are_not_those_of_the_asset_are_refused_at_load(
    changes: dict[str, Any], partitions_def: dg.PartitionsDefinition | None, match: str
) -> None:
    with pytest.raises(InvalidTarget, match=match):
        build_unload_asset(two(**changes), partitions_def=partitions_def)


def test_without_dimensions_the_key_of_multi_partitions_is_one_text() -> None:
    asset = build_unload_asset(target(None), partitions_def=DAY_AND_PARITY)
    assert asset.partitions_def == DAY_AND_PARITY
    assert "name its dimensions" in refused("day", DAY_AND_PARITY)


def test_partitions_of_two_dimensions_share_a_pool() -> None:
    asset = build_unload_asset(two(), partitions_def=DAY_AND_PARITY)
    assert asset.op.pool == "s3://lake/mart/orders/${day}/${parity}/"
    assert asset.backfill_policy is None


def test_thecode_version_follows_which_dimension_is_the_time() -> None:
    same: dict[str, Any] = {"query": "SELECT ${partition_start} AS s", "grain": "day"}
    one, other = (code_version(two(**same, dimensions=names)) for names in (("day", "parity"), ("parity", "day")))
    assert one != other


def test_each_key_of_two_dimensions_is_a_slot(lake: Lake, instance: dg.DagsterInstance) -> None:
    """28 March has the numbers 0 to 23, as above."""
    matrix = lake.target(
        "matrix",
        query=f"{HOURS} AND n % 2 = CAST(${{parity}} AS bigint)",
        location=f"s3://{lake.bucket}/matrix/day=${{day}}/parity=${{parity}}/",
        grain="day",
        dimensions=("day", "parity"),
    )
    asset = build_unload_asset(matrix, partitions_def=DAY_AND_PARITY, backfill_policy=dg.BackfillPolicy.single_run())
    [metadata] = recorded(run(lake, asset, instance, partition="2026-03-28|1"))
    assert metadata["dagster/partition_row_count"] == 12
    lake.assert_published_once(at(matrix, "2026-03-28|1"), range(1, 24, 2))
    assert lake.listing(at(matrix, "2026-03-28|0")) == {}

    result = run(lake, asset, instance, tags=a_range("2026-03-28|0", "2026-03-29|1"))
    keys = [f"2026-03-{day}|{parity}" for day in (28, 29) for parity in (0, 1)]
    assert set(partitions(result)) == set(keys)
    for number, key in enumerate(keys):
        start, parity = 24 * (number // 2), number % 2
        lake.assert_published_once(at(matrix, key), range(start + parity, start + 24, 2))
        assert len(lake.queries(at(matrix, key))) == 1


# --- upstream --------------------------------------------------------------------------------------------------------


def requested(asset: dg.AssetsDefinition, upstream: dg.PartitionsDefinition, *keys: str) -> set[str | None]:
    """The asset's partitions that Dagster asks for when these ones of its upstream table are new."""
    table = dg.AssetSpec(["lake", "orders"], partitions_def=upstream)
    definitions = dg.Definitions([table, asset], resources={"athena": AthenaUnloadResource()})
    with dg.DagsterInstance.ephemeral() as instance:
        first = dg.evaluate_automation_conditions(definitions, instance)
        assert first.total_requested == 0
        for key in keys:
            instance.report_runless_asset_event(dg.AssetMaterialization(table.key, partition=key))
        second = dg.evaluate_automation_conditions(definitions, instance, cursor=first.cursor)
        return set(second.get_requested_partitions(asset.key))


UPDATED = cast("dg.AutomationCondition[dg.AssetKey]", dg.AutomationCondition.any_deps_updated())
OF_ORDERS: dict[str, Any] = {"query": "SELECT * FROM orders WHERE day = ${partition}", "database": "lake"}


def test_a_day_of_the_upstream_table_is_the_same_day_of_the_target() -> None:
    asset = build_unload_asset(target("day", **OF_ORDERS), partitions_def=DAILY, automation_condition=UPDATED)
    assert requested(asset, DAILY, "2026-01-03") == {"2026-01-03"}


def test_an_hour_of_the_upstream_table_is_a_part_of_the_targets_day() -> None:
    asset = build_unload_asset(target("day", **OF_ORDERS), partitions_def=DAILY, automation_condition=UPDATED)
    assert requested(asset, HOURLY, "2026-01-03-05:00", "2026-01-04-00:00") == {"2026-01-03", "2026-01-04"}


def test_a_static_key_of_the_upstream_table_is_the_same_key_of_the_target() -> None:
    asset = build_unload_asset(target(None, **OF_ORDERS), partitions_def=STATIC, automation_condition=UPDATED)
    assert requested(asset, STATIC, "fr") == {"fr"}


def test_a_day_of_the_upstream_table_is_all_keys_of_that_day_in_two_dimensions() -> None:
    matrix = two(query="SELECT * FROM orders WHERE day = ${day}", database="lake")
    asset = build_unload_asset(matrix, partitions_def=DAY_AND_PARITY, automation_condition=UPDATED)
    assert requested(asset, dg.DailyPartitionsDefinition("2026-03-01"), "2026-03-03") == {
        "2026-03-03|0",
        "2026-03-03|1",
    }


def test_another_mapping_can_be_given() -> None:
    yesterday = dg.AssetDep(
        ["lake", "orders"], partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    )
    asset = build_unload_asset(
        target("day", **OF_ORDERS), partitions_def=DAILY, deps=[yesterday], automation_condition=UPDATED
    )
    assert requested(asset, DAILY, "2026-01-03") == {"2026-01-04"}
