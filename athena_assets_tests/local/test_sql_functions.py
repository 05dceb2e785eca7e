"""Functions that DuckDB has in another form: the values that Trino documents, or a refusal.

Text and numbers are compared as Athena shows them.
"""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from athena_assets.local import sql_patterns
from athena_assets.local.athena_errors import QueryFailed
from athena_assets.local.sql_functions import WHITESPACE
from athena_assets_tests.local.conftest import Lake

ROWS = pa.table(
    {
        "i": pa.array([1, 2, 3, 4], pa.int32()),
        "g": pa.array(["a", "a", "b", None], pa.string()),
        "x": pa.array([2.5, -2.5, None, 0.49999999999999994], pa.float64()),
        "dec": pa.array([Decimal("0.05"), Decimal("0.10"), None, Decimal("-0.26")], pa.decimal128(10, 2)),
        "d": pa.array([date(2020, 1, 31), date(2020, 2, 29), date(2021, 3, 1), None]),
        "s": pa.array(["1a 2b 14m", "", None, "x=7"], pa.string()),
        "tags": pa.array([["p", "q"], [], None, [None]], pa.list_(pa.string())),
    }
)


@pytest.fixture
def rows(lake: Lake) -> Lake:
    lake.put("t/x", b"", "data")
    columns = {"i": "int", "g": "string", "x": "double", "dec": "decimal(10,2)", "d": "date", "s": "string"}
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(ROWS, sink)
    lake.put("t/part.parquet", sink.getvalue().to_pybytes(), "data")
    described = [{"Name": name, "Type": kind} for name, kind in {**columns, "tags": "array<string>"}.items()]
    lake.create_table("t", described)
    return lake


def one(lake: Lake, expression: str) -> str | None:
    ((value,),) = lake.rows(f"SELECT {expression} AS v")
    return value


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'[' || trim(' \t x y \n') || ']'", "[x y]"),
        ("'[' || ltrim(chr_text) || ']' FROM (VALUES '\u3000x\u00a0') AS u(chr_text)", "[x\u00a0]"),
        ("'[' || rtrim('  x  ') || ']'", "[  x]"),
        ("trim(BOTH FROM ' x ')", "x"),
        ("date_trunc('week', DATE '2001-08-22')", "2001-08-20"),
        ("date_trunc('quarter', DATE '2001-08-22')", "2001-07-01"),
        ("date_trunc('hour', TIMESTAMP '2001-08-22 03:04:05.321')", "2001-08-22 03:00:00.000"),
        ("date_diff('second', TIMESTAMP '2020-03-01 00:00:00', TIMESTAMP '2020-03-02 00:00:00')", "86400"),
        ("date_diff('hour', TIMESTAMP '2020-03-01 00:59:00', TIMESTAMP '2020-03-01 01:01:00')", "0"),
        ("date_diff('day', TIMESTAMP '2020-03-02 00:00:00', TIMESTAMP '2020-03-01 00:00:01')", "0"),
        ("date_diff('week', DATE '2020-01-01', DATE '2020-01-14')", "1"),
        ("date_diff('month', DATE '2020-01-31', DATE '2020-02-29')", "1"),
        ("date_diff('month', DATE '2020-02-29', DATE '2020-01-31')", "-1"),
        ("date_diff('month', DATE '2020-01-15', DATE '2020-03-14')", "1"),
        (r"regexp_extract('1a 2b 14m', '\d+')", "1"),
        (r"regexp_extract('1a 2b 14m', '(\d+)([a-z]+)', 2)", "a"),
        ("regexp_extract('abc', 'x')", None),
        ("regexp_extract('key=7;', '^key=([0-9]+|none)', 1)", "7"),
        ("regexp_extract('AbC', '(?i)b.')", "bC"),
        (r"regexp_like('1a 2b 14m', '\d+b')", "true"),
        ("regexp_like('abc', '^a.*c$')", "true"),
        (r"regexp_replace('1a 2b 14m', '\d+[ab] ')", "14m"),
        ("cast(2.5e0 AS integer)", "3"),
        ("cast(-2.5e0 AS bigint)", "-3"),
        ("cast(0.49999999999999994e0 AS bigint)", "0"),
        ("cast(4503599627370497.5e0 AS bigint)", "4503599627370498"),
        ("try_cast(1e20 AS bigint)", None),
        ("cast(cast(1.5e0 AS real) AS smallint)", "2"),
    ],
)
def test_functions_give_the_values_that_trino_documents(lake: Lake, expression: str, expected: str | None) -> None:
    if " FROM " in expression and "BOTH" not in expression:
        expression, _, source = expression.rpartition(" FROM ")
        assert lake.rows(f"SELECT {expression} AS v FROM {source}") == [(expected,)]
    else:
        assert one(lake, expression) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT avg(dec) FROM t", [("-0.04",)]),  # -0.11 / 3 = -0.0366...
        ("SELECT avg(dec) FROM t WHERE i < 3", [("0.08",)]),  # 0.075, half up
        ("SELECT avg(dec) FROM t WHERE i = 3", [(None,)]),
        ("SELECT avg(-dec) FROM t WHERE i < 3", [("-0.08",)]),
        ("SELECT g, avg(dec) FROM t GROUP BY g ORDER BY g", [("a", "0.08"), ("b", None), (None, "-0.26")]),
        ("SELECT cast(x AS integer) FROM t ORDER BY i", [("3",), ("-3",), (None,), ("0",)]),
        (
            "SELECT i, row_number() OVER (ORDER BY i DESC) FROM t ORDER BY i",
            [(str(n), str(5 - n)) for n in range(1, 5)],
        ),
        (
            "SELECT rank() OVER (ORDER BY g), dense_rank() OVER (ORDER BY g) FROM t ORDER BY i",
            [("1", "1"), ("1", "1"), ("3", "2"), ("4", "3")],
        ),
        (
            "SELECT lag(g, 1, 'none') OVER (ORDER BY i), lead(i, 2) OVER (ORDER BY i) FROM t ORDER BY i",
            [("none", "3"), ("a", "4"), ("a", None), ("b", None)],
        ),
        ("SELECT sum(i) OVER (PARTITION BY g ORDER BY i) FROM t ORDER BY i", [("1",), ("3",), ("3",), ("4",)]),
        (
            "SELECT sum(i) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t ORDER BY i",
            [("1",), ("3",), ("5",), ("7",)],
        ),
        ("SELECT count(DISTINCT g), count(g), count(*) FROM t", [("2", "3", "4")]),
        (
            "SELECT g, count(*), grouping(g) FROM t GROUP BY GROUPING SETS ((g), ()) ORDER BY 3, 1",
            [("a", "2", "0"), ("b", "1", "0"), (None, "1", "0"), (None, "4", "1")],
        ),
        (
            "SELECT grouping(g, i), count(*) FROM t WHERE i = 1 GROUP BY GROUPING SETS ((g), (i)) ORDER BY 1",
            [("1", "1"), ("2", "1")],
        ),
        ("SELECT g, sum(i) FROM t WHERE i < 4 GROUP BY ROLLUP (g) ORDER BY g", [("a", "3"), ("b", "3"), (None, "6")]),
        ("SELECT i, tag FROM t CROSS JOIN UNNEST(tags) AS u(tag) ORDER BY 1, 2", [("1", "p"), ("1", "q"), ("4", None)]),
        ("SELECT v FROM UNNEST(ARRAY[3, 1, 2]) AS u(v) ORDER BY v", [("1",), ("2",), ("3",)]),
        ("SELECT regexp_extract(s, '[0-9]+') FROM t ORDER BY i", [("1",), (None,), (None,), ("7",)]),
        (
            r"SELECT regexp_extract(s, '\d+') AS n, count(*) FROM t GROUP BY regexp_extract(s, '\d+') ORDER BY 1",
            [("1", "1"), ("7", "1"), (None, "2")],
        ),
        ("SELECT trim(g), avg(dec) FROM t GROUP BY 1 HAVING avg(dec) > 0 ORDER BY avg(dec)", [("a", "0.08")]),
        ("SELECT date_diff('month', d, DATE '2021-03-01') FROM t ORDER BY i", [("13",), ("12",), ("0",), (None,)]),
    ],
)
def test_queries_give_the_rows_that_trino_gives(rows: Lake, query: str, expected: list[tuple[str | None, ...]]) -> None:
    assert rows.rows(query) == expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT trim(s, 'x') FROM t", "trim of other characters"),
        ("SELECT date_diff('year', d, d) FROM t", "date_diff of YEAR"),
        ("SELECT date_diff('hour', d, d) FROM t", "date_diff of HOUR"),
        ("SELECT date_diff('day', d, TIMESTAMP '2020-01-01 00:00:00') FROM t", "date_diff of DAY between"),
        ("SELECT regexp_extract(s, g) FROM t", "a regular expression that is not a literal"),
        (r"SELECT regexp_extract(s, '(a)\1') FROM t", "the regular expression"),
        ("SELECT regexp_extract(s, '(a)?b', 1) FROM t", "a group that a match need not have"),
        ("SELECT regexp_extract(s, 'a', 1) FROM t", "a group that a match need not have"),
        ("SELECT regexp_replace(s, 'b*', '-') FROM t", "which matches the empty text"),
        (r"SELECT regexp_like(g, '\w') FROM (VALUES 'é') AS u(g)", "on this text"),
        ("SELECT regexp_like(g, 'a$') FROM (VALUES 'a\n') AS u(g)", "on this text"),
        (r"SELECT regexp_extract(cast(uuid() AS varchar), '\d')", "a regular expression on a random text"),
        ("SELECT avg(dec) OVER () FROM t", "avg of DECIMAL(10, 2) with DISTINCT, FILTER or OVER"),
        ("SELECT avg(1.5) FROM t", "a decimal in Athena"),
        ("SELECT cast(x AS varchar) FROM t", "a cast of DOUBLE to VARCHAR"),
        ("SELECT approx_distinct(i) FROM t", "the function approx_distinct"),
        ("SELECT a, b FROM UNNEST(ARRAY[1], ARRAY[2]) AS u(a, b)", "UNNEST of several arrays"),
        ("SELECT v FROM UNNEST(ARRAY[ROW(1, 2)]) AS u(v)", "not run "),
        ("SELECT v FROM UNNEST(ARRAY[1]) WITH ORDINALITY AS u(v, n)", "UNNEST WITH ORDINALITY"),
    ],
)
def test_what_is_not_certain_is_refused(rows: Lake, query: str, reason: str) -> None:
    status = rows.run(query)["Status"]
    assert status["State"] == "FAILED", status
    assert status["StateChangeReason"].startswith("NOT_SUPPORTED: embedded Athena does not run ")
    assert reason in status["StateChangeReason"]


@pytest.mark.parametrize("value", ["1e20", "nan()", "9223372036854775808e0"])
def test_a_double_out_of_range_is_no_integer(lake: Lake, value: str) -> None:
    status = lake.run(f"SELECT cast({value.replace('nan()', 'sqrt(-1e0)')} AS bigint) AS v")["Status"]
    assert status["State"] == "FAILED"
    assert status["StateChangeReason"].startswith("INVALID_CAST_ARGUMENT")


def test_months_are_counted_as_joda_counts_them() -> None:
    """Every pair of days of three years, against Joda's rule, which Trino uses."""
    days = [date(2019, 1, 1) + timedelta(number) for number in range(0, 1100, 3)]
    last = {day: (day.replace(day=28) + timedelta(4)).replace(day=1) - timedelta(1) == day for day in days}

    def joda(start: date, end: date) -> int:
        if end < start:
            return -joda(end, start)
        months = (end.year - start.year) * 12 + end.month - start.month
        reached = end.day >= start.day or last[end]
        return months if reached else months - 1

    table = pa.table({"day": pa.array(days)})
    with duckdb.connect() as connection:
        connection.register("days", table)
        found = connection.sql("SELECT a.day, b.day, date_sub('month', a.day, b.day) FROM days a, days b").fetchall()
    assert len(found) == len(days) ** 2
    assert [(a, b) for a, b, months in found if months != joda(a, b)] == []


def test_white_space_is_javas() -> None:
    assert len(WHITESPACE) == len(set(WHITESPACE)) == 25
    assert not set(WHITESPACE) & set("\u00a0\u2007\u202f\u0085\u200b")
    assert all(sign.isspace() for sign in WHITESPACE)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)b",
        "a++",
        "[a-c&&[b]]",
        r"\p{L}",
        r"(a)\1",
        "a**",
        "(a",
        "a)",
        "*a",
        "^*",
        "(?<n>a)",
        r"\Qa",
        "a{,3}",
        "[]a]",
    ],
)
def test_patterns_of_one_engine_only_do_not_pass(pattern: str) -> None:
    with pytest.raises(QueryFailed):
        sql_patterns.read(pattern)


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        ("(a)(b)", (True, True)),
        ("(a)|(b)", (False, False)),
        ("(a|b)c", (True,)),
        ("((a)|b)", (True, False)),
        ("(?:(a))?", (False,)),
        ("(a){1,2}?x", (False,)),
        ("[(](a)", (True,)),
    ],
)
def test_groups_that_every_match_has_are_told_from_others(pattern: str, groups: tuple[bool, ...]) -> None:
    assert sql_patterns.read(pattern).groups == groups
