"""Partition keys: the window that each one stands for, and what a target makes of them."""

from datetime import datetime
from typing import Any

import pytest

from athena_assets.core.partition import Grain, window
from athena_assets.errors import InvalidTarget
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
