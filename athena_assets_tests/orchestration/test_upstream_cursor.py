"""How the sensor's cursor is written, and that it is never guessed at."""

import json

import pytest

from athena_assets.orchestration.upstream_cursor import (
    Cursor,
    CursorUnreadable,
    Entry,
    Grouping,
    Pending,
    Table,
    decode,
    encode,
)

CURSOR = Cursor(
    epoch=1_700_000_000,
    changes=7,
    tables={
        "awsdatacatalog.sales.orders": Table(Entry("0a1b2c3d4e5f")),
        "awsdatacatalog.sales.late": Table(Entry("f00000000001", Pending(1_700_000_060, 6, ("daily", "2024-01-31")))),
        "awsdatacatalog.sales.events": Table(
            Entry("f00000000002", Pending(1_700_000_120, 7)),
            {
                "00ff00ff": Entry("aa0000000001"),
                "3": Entry("aa0000000002", Pending(1_700_000_120, 7)),
                "4": Entry("aa0000000003", Pending(1_700_000_120, 7, asked={"daily": "2024-01-31"})),
            },
            Grouping(("2024-01-31", "05"), 4),
        ),
        "awsdatacatalog.sales.empty": Table(Entry("f00000000003"), {}),
    },
    unreached=("awsdatacatalog.sales.orders",),
)
# As releases wrote it: to be read for ever, or refused by a new schema version.
GOLDEN = (
    '{"schema":1,"epoch":1700000000,"changes":7,"unreached":["awsdatacatalog.sales.orders"],"tables":{'
    '"awsdatacatalog.sales.empty":["f00000000003",null,{}],'
    '"awsdatacatalog.sales.events":[["f00000000002",1700000120,7],[["2024-01-31","05"],4],'
    '{"00ff00ff":"aa0000000001","3":["aa0000000002",1700000120,7],'
    '"4":["aa0000000003",1700000120,7,null,{"daily":"2024-01-31"}]}],'
    '"awsdatacatalog.sales.late":[["f00000000001",1700000060,6,["daily","2024-01-31"],{}]],'
    '"awsdatacatalog.sales.orders":["0a1b2c3d4e5f"]}}'
)


def read(text: str | None) -> Cursor:
    return decode(text, sensor="upstream_tables", now=5.5)


def test_the_cursor_is_written_and_read_as_ever() -> None:
    assert encode(CURSOR) == GOLDEN
    assert read(GOLDEN) == CURSOR


@pytest.mark.parametrize("text", [None, ""])
def test_no_cursor_begins_anew(text: str | None) -> None:
    assert read(text) == Cursor(epoch=5)


def test_a_newer_cursor_is_refused() -> None:
    with pytest.raises(CursorUnreadable, match="schema version 2, and this release knows 1") as caught:
        read(json.dumps(json.loads(GOLDEN) | {"schema": 2}))
    assert "reset the sensor's cursor" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "17",
        "[]",
        "{}",
        "last_run",
        GOLDEN[:-40],
        GOLDEN.replace('"changes":7', '"changes":null'),
        GOLDEN.replace('[["2024-01-31","05"],4]', "[4]"),
        GOLDEN.replace('["0a1b2c3d4e5f"]', "[]"),
    ],
)
def test_a_damaged_cursor_is_refused(text: str) -> None:
    with pytest.raises(CursorUnreadable, match="upstream_tables: its cursor can't be read"):
        read(text)
