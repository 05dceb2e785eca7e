"""Partition keys: the window that each one stands for, and what a target makes of them."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena_assets import Target
from athena_assets.core.disjoint import check_disjoint
from athena_assets.core.generation import definition_fingerprint
from athena_assets.core.partition import Grain, join_key, window
from athena_assets.errors import InvalidTarget
from athena_assets.sql import inspect_query
from athena_assets_tests.core.examples import target


@pytest.mark.parametrize(
    ("grain", "key", "start", "end"),
    [
        ("hour", "2024-02-29-23:00", "2024-02-29 23:00:00", "2024-03-01 00:00:00"),
        ("day", "2024-02-28", "2024-02-28 00:00:00", "2024-02-29 00:00:00"),
        ("day", "2024-12-31", "2024-12-31 00:00:00", "2025-01-01 00:00:00"),
        ("week", "2024-12-29", "2024-12-29 00:00:00", "2025-01-05 00:00:00"),
        ("month", "2024-01-01", "2024-01-01 00:00:00", "2024-02-01 00:00:00"),
        ("month", "2024-11-01", "2024-11-01 00:00:00", "2024-12-01 00:00:00"),
        ("month", "2024-12-01", "2024-12-01 00:00:00", "2025-01-01 00:00:00"),
    ],
)
def test_a_key_stands_for_its_window(grain: str, key: str, start: str, end: str) -> None:
    found = target(
        query="SELECT * FROM t WHERE at >= ${partition_start} AND at < ${partition_end}",
        location="s3://lake/daily/${partition}/",
        grain=grain,
    )
    assert found.query_for(key) == f"SELECT * FROM t WHERE at >= '{start}' AND at < '{end}'"
    assert window(Grain(grain), key) == (datetime.fromisoformat(start), datetime.fromisoformat(end))


@pytest.mark.parametrize(
    ("grain", "key"),
    [("day", "2024-1-1"), ("day", "2023-02-29"), ("hour", "2024-01-01"), ("month", "2024-01"), ("week", "x")],
)
def test_a_key_of_another_form_is_refused(grain: str, key: str) -> None:
    with pytest.raises(InvalidTarget, match="grain"):
        target(location="s3://lake/daily/${partition}/", grain=grain).location_for(key)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"query": "SELECT ${partition_start}", "location": "s3://lake/${partition}/"}, "needs a grain"),
        ({"query": "SELECT ${partition_end}", "grain": "day"}, r"no \$\{partition\}"),
        ({"grain": "day"}, r"no \$\{partition\}"),
        ({"grain": "year", "location": "s3://lake/${partition}/"}, "hour, day, week, month"),
        ({"parameters": {"partition_start": "x"}}, "set by the partition key"),
    ],
)
def test_a_grain_and_its_placeholders_go_together(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidTarget, match=match):
        target(**changes)


def test_keys_without_a_grain_are_any_text() -> None:
    found = target(query="SELECT ${partition}", location="s3://lake/${partition}/")
    assert found.query_for("EU west") == "SELECT 'EU west'"


# --- several dimensions ----------------------------------------------------------------------------------------------

TWO: dict[str, Any] = {
    "query": "SELECT * FROM t WHERE day = ${day} AND origin = ${origin}",
    "location": "s3://lake/flights/day=${day}/origin=${origin}/",
    "dimensions": ("origin", "day"),
}


def two(**changes: Any) -> Target:
    return target(**(TWO | changes))


def test_each_part_of_a_key_is_a_placeholder_in_the_order_of_the_sorted_names() -> None:
    found = two()
    assert found.partitioned
    assert found.query_for("2024-01-31|JFK") == "SELECT * FROM t WHERE day = '2024-01-31' AND origin = 'JFK'"
    assert str(found.location_for("2024-01-31|JFK")) == "s3://lake/flights/day=2024-01-31/origin=JFK/"


def test_a_grain_is_that_of_the_first_dimension() -> None:
    found = two(query="SELECT ${partition_start}, ${partition_end}", dimensions=("day", "origin"), grain="day")
    assert found.query_for("2024-01-31|JFK") == "SELECT '2024-01-31 00:00:00', '2024-02-01 00:00:00'"
    with pytest.raises(InvalidTarget, match=r"'JFK\|2024-01-31'.*day\|origin, with day as %Y-%m-%d"):
        found.location_for("JFK|2024-01-31")


@pytest.mark.parametrize("key", ["2024-01-31", "2024-01-31|J|FK", "|JFK", "2024-01-31|", "", "|"])
def test_a_key_of_more_or_fewer_parts_is_refused(key: str) -> None:
    with pytest.raises(InvalidTarget, match=r"dimensions.*Write it as day\|origin\."):
        two().location_for(key)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"dimensions": ("day",)}, "one only"),
        ({"dimensions": "day"}, "no tuple of names"),
        ({"dimensions": ("day", 1)}, "no tuple of names"),
        ({"dimensions": ("day", "or igin")}, "'or igin' can't be a placeholder"),
        ({"dimensions": ("day", "partition")}, "'partition' can't be a placeholder"),
        ({"dimensions": ("day", "partition_end")}, "'partition_end' can't be a placeholder"),
        ({"dimensions": ("day", "origin"), "parameters": {"origin": "JFK"}}, "'origin' is named twice"),
        ({"dimensions": ("day", "day")}, "'day' is named twice"),
        ({"location": "s3://lake/day=${day}/"}, r"no \$\{origin\}: each origin would replace the one before"),
        ({"location": "s3://lake/${day}-${origin}/"}, "different keys could share a slot"),
        (
            {"location": "s3://lake/${day}/${origin}/${partition}/"},
            r"no \$\{partition\}.*Use \$\{origin\} and \$\{day\}",
        ),
        ({"query": "SELECT ${partition}"}, r"query.*no \$\{partition\}"),
        ({"query": "SELECT ${partition_start}"}, "needs a grain"),
        ({"query": "SELECT ${airline}"}, "has no value"),
        ({"glue_table": "lake.flights"}, "glue_table.*its partition is one column"),
    ],
    ids=str,
)
def test_what_does_not_go_with_dimensions_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidTarget, match=match):
        two(**changes)


@given(st.lists(st.tuples(st.text("ab-=.1", min_size=1), st.text("ab-=.1", min_size=1)), unique=True, max_size=6))
def test_no_two_keys_share_a_slot(parts: list[tuple[str, str]]) -> None:
    keys = [join_key({"day": day, "origin": origin}) for day, origin in parts if {day, origin}.isdisjoint({".", ".."})]
    assert len({str(two(location="s3://lake/${day}/x${origin}x/").location_for(key)) for key in keys}) == len(keys)


def test_a_part_that_holds_the_delimiter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'a\|b' of origin"):
        join_key({"day": "2024-01-31", "origin": "a|b"})


@pytest.mark.parametrize(
    "other",
    [
        {"location": "s3://lake/flights/"},
        {"location": "s3://lake/flights/day=1/origin=2/"},
        TWO | {"location": "s3://lake/flights/day=${day}/${origin}/"},
    ],
    ids=str,
)
def test_a_target_with_dimensions_keeps_away_from_others(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidTarget, match="overlaps"):
        check_disjoint([two(), target(name="other", **other)])


def test_a_location_with_a_window_is_compared_with_others() -> None:
    windows = target(location="s3://lake/a/${partition}/${partition_start}/", grain="day")
    check_disjoint([windows, target(name="other", location="s3://lake/b/")])


def test_tables_of_a_query_with_dimensions_are_known() -> None:
    [table] = inspect_query(two()).tables or ()
    assert table.name == "t"


def test_the_definition_of_a_target_without_dimensions_is_what_it_was() -> None:
    """A fingerprint of a version that had none: a request id finds its publication after the upgrade."""
    found = target(query="SELECT ${partition}", location="s3://lake/${partition}/")
    assert (
        definition_fingerprint(
            query=found.query_for("k"),
            output=found.format,
            location=found.location_for("k"),
            partition="k",
            catalog=found.catalog,
            database=found.database,
        )
        == "9e132d0c7a96e5c9aae0e91496e4fc9f20b55ec07111073c3d8bd93f0a8e290b"
    )
