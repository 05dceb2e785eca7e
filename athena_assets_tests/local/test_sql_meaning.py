"""What SQL means here: what Athena means, or a refusal that names the construct."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from athena_assets_tests.local.conftest import Lake

ROWS = pa.table(
    {
        "a": pa.array([7, -7, 7, None], pa.int64()),
        "b": pa.array([2, 2, -2, 2], pa.int64()),
        "i": pa.array([1, 2, 3, 4], pa.int32()),
        "x": pa.array([2.5, -2.5, None, 0.0], pa.float64()),
        "s": pa.array(["12", "abc", None, "1.5"], pa.string()),
        "dec": pa.array([1, 2, 3, 4], pa.decimal128(10, 2)),
        "d": pa.array([18_292, 18_293, 0, None], pa.date32()),  # 2020-01-31, 2020-02-01, 1970-01-01
    }
)


@pytest.fixture
def rows(lake: Lake) -> Lake:
    lake.table("t", ROWS)
    return lake


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a / b", ["3", "-3", "-3", None]),
        ("-a / 2", ["-3", "3", "-3", None]),
        ("(a + 1) / b", ["4", "-3", "-4", None]),
        ("2 * a / 3", ["4", "-4", "4", None]),
        ("a / (b * 2)", ["1", "-1", "-1", None]),
        ("a % b", ["1", "-1", "1", None]),
        ("x / i", ["2.5", "-1.25", None, "0.0"]),
        ("9007199254740993 / 1", ["9007199254740993"] * 4),
        ("i / 2", ["0", "1", "1", "2"]),
        ("greatest(a, b)", ["7", "2", "7", None]),
        ("concat(s, '!')", ["12!", "abc!", None, "1.5!"]),
        ("try_cast(s AS integer)", ["12", None, None, None]),
        ("date_add('month', 1, d)", ["2020-02-29", "2020-03-01", "1970-02-01", None]),
        ("date_trunc('month', d)", ["2020-01-01", "2020-02-01", "1970-01-01", None]),
        ("d + INTERVAL '1' DAY", ["2020-02-01", "2020-02-02", "1970-01-02", None]),
        ("day_of_week(d)", ["5", "6", "4", None]),
        ("extract(year FROM d)", ["2020", "2020", "1970", None]),
        ("date_diff('day', d, DATE '2020-02-02')", ["2", "1", "18294", None]),
        ("date_format(d, '%Y/%m/%d')", ["2020/01/31", "2020/02/01", "1970/01/01", None]),
        ("cast(round(x) AS bigint)", ["3", "-3", None, "0"]),
        ("substr(s, 2)", ["2", "bc", None, ".5"]),
        ("regexp_replace(s, '[a-c]', 'X')", ["12", "XXX", None, "1.5"]),
        ("if(a > 0, 'up', 'down')", ["up", "down", "up", "down"]),
        ("floor(x)", ["2.0", "-3.0", None, "0.0"]),
        ("sum(i) OVER (ORDER BY i)", ["1", "3", "6", "10"]),
        ("lag(i) OVER (ORDER BY i)", [None, "1", "2", "3"]),
    ],
)
def test_expressions_give_athenas_values(rows: Lake, expression: str, expected: list[str | None]) -> None:
    assert [row[1] for row in rows.rows(f"SELECT i, {expression} FROM t ORDER BY i")] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*), sum(a), sum(b) / count(*), avg(i) FROM t", [("4", "7", "1", "2.5")]),
        ("SELECT max_by(s, i), max_by(x, b) IS NULL, count_if(a > 0) FROM t WHERE i = 3", [(None, "true", "1")]),
        ("SELECT b, count(DISTINCT a) AS n FROM t GROUP BY 1 ORDER BY 1 DESC", [("2", "2"), ("-2", "1")]),
        ("SELECT a FROM t UNION SELECT b FROM t ORDER BY 1", [("-7",), ("-2",), ("2",), ("7",), (None,)]),
        ("SELECT count(*) FROM t p JOIN t q ON p.a = q.a", [("5",)]),
        ("WITH u AS (SELECT a / 2 AS h FROM t) SELECT sum(h) FROM u", [("3",)]),
        ("SELECT n FROM unnest(sequence(1, 3)) AS u(n)", [("1",), ("2",), ("3",)]),
        ("SELECT i FROM t WHERE d = (SELECT max(d) FROM t)", [("2",)]),
        ('SELECT "I" FROM awsdatacatalog.DB.T LIMIT 1', [("1",)]),
        ("SELECT sum(CASE WHEN a > 0 THEN a ELSE 0 END) / 3 FROM t", [("4",)]),
    ],
)
def test_queries_give_athenas_rows(rows: Lake, query: str, expected: list[tuple[str | None, ...]]) -> None:
    assert rows.rows(query) == expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT slice(ARRAY[1, 2], 1, 1) FROM t", "the function slice"),
        ("SELECT format('%d', a) FROM t", "the function format"),
        ("SELECT regexp_replace(s, '(a)', '$1$1') FROM t", "regexp_replace with $"),
        ("SELECT json_value(s, 'lax $.a') FROM t", "the function json_value"),
        ("SELECT typeof(a) FROM t", "the function typeof"),
        ("SELECT len(s) FROM t", "the function len"),
        ("SELECT approx_distinct(a) FROM t", "the function approx_distinct"),
        ("SELECT read_text('/etc/hostname')", "the function read_text"),
        ("SELECT * FROM read_csv('/etc/hostname')", "the function read_csv"),
        ("SELECT ARRAY[1][1] FROM t", "bracket"),
        ("SELECT substr(s, i) FROM t", "substr with a start"),
        ("SELECT dec / 2 FROM t", "a division of decimals"),
        ("SELECT a / 1.5 FROM t", "a division of decimals"),
        ("SELECT cast(x AS varchar) FROM t", "a cast of DOUBLE to VARCHAR"),
        ("SELECT cast(s AS varchar(1)) FROM t", "VARCHAR(1)"),
        ("SELECT d - d FROM t", "arithmetic on dates"),
        ("SELECT * FROM t TABLESAMPLE BERNOULLI (10)", "bernoulli"),
        ("SELECT now()", "a result column"),
        ("SELECT NULL AS nothing", "a result column"),
    ],
)
def test_constructs_without_a_known_equal_are_refused_by_name(rows: Lake, query: str, reason: str) -> None:
    status = rows.run(query)["Status"]
    assert status["State"] == "FAILED"
    assert status["StateChangeReason"].startswith("NOT_SUPPORTED: embedded Athena does not run ")
    assert reason in status["StateChangeReason"]
    assert status["AthenaError"]["ErrorCategory"] == 2


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT 1 FROM nosuch", "TABLE_NOT_FOUND: Table 'awsdatacatalog.db.nosuch' does not exist"),
        ("SELECT 1 FROM nodb.t", "SCHEMA_NOT_FOUND"),
        ("SELECT 1 FROM nocatalog.db.t", "CATALOG_NOT_FOUND"),
        ("SELECT nosuch FROM t", "COLUMN_NOT_FOUND: Column 'nosuch'"),
        ("SELECT i FROM t WHERE d = '2020-01-31'", "TYPE_MISMATCH"),
        ("SELECT i FROM t WHERE s = 12", "TYPE_MISMATCH"),
        ("SELECT a / 0 FROM t", "DIVISION_BY_ZERO"),
        ("SELECT a / (b - b) FROM t", "DIVISION_BY_ZERO"),
        ("SELECT cast(s AS bigint) FROM t", "INVALID_CAST_ARGUMENT"),
        ("SELECT 2147483647 + i FROM t", "Overflow"),
    ],
)
def test_errors_of_athena_are_errors_here(rows: Lake, query: str, reason: str) -> None:
    status = rows.run(query)["Status"]
    assert status["State"] == "FAILED"
    assert status["StateChangeReason"].startswith(reason)


def test_results_agree_with_an_independent_calculation(lake: Lake) -> None:
    size = 5_000
    carriers = pa.array([f"c{number % 7}" for number in range(size)])
    delays = pa.array([None if number % 11 == 0 else number * 37 % 101 - 50 for number in range(size)], pa.int64())
    data = pa.table({"carrier": carriers, "delay": delays})
    lake.table("flights", [data.slice(0, 2_000), data.slice(2_000)])
    lake.run(
        "UNLOAD (SELECT carrier, count(delay) AS n, sum(delay) AS total, max(delay) AS worst FROM flights"
        " WHERE delay > 0 GROUP BY carrier) TO 's3://out/p/' WITH (format = 'PARQUET')"
    )
    late = data.filter(pc.greater(data["delay"], 0))
    expected = late.group_by("carrier").aggregate([("delay", "count"), ("delay", "sum"), ("delay", "max")])
    expected = expected.rename_columns(["carrier", "n", "total", "worst"]).sort_by("carrier")
    assert lake.unloaded("p/").sort_by("carrier").equals(expected)


def test_select_writes_a_csv_and_pages_its_results(numbers: Lake) -> None:
    execution = numbers.run("SELECT n, 'a,\"b' AS t, CAST(NULL AS bigint) AS z FROM numbers ORDER BY n")
    query_id = execution["QueryExecutionId"]
    assert execution["ResultConfiguration"]["OutputLocation"] == f"s3://results/q/{query_id}.csv"
    lines = numbers.read(f"q/{query_id}.csv", "results").decode().splitlines()
    assert lines[:2] == ['"n","t","z"', '"0","a,""b",']
    pages = numbers.athena.get_paginator("get_query_results").paginate(
        QueryExecutionId=query_id, PaginationConfig={"PageSize": 40}
    )
    values = [row["Data"][0]["VarCharValue"] for page in pages for row in page["ResultSet"]["Rows"]]
    assert values == ["n", *(str(number) for number in range(100))]


def test_hidden_and_empty_objects_are_no_data(numbers: Lake) -> None:
    for key in ("numbers/_SUCCESS", "numbers/.crc", "numbers/_temporary/part-9.parquet", "numbers/folder/"):
        numbers.put(key, b"" if key.endswith("/") else b"junk", "data")
    assert numbers.rows("SELECT count(*) FROM numbers") == [("100",)]


def test_columns_are_found_by_name_and_missing_ones_are_null(lake: Lake) -> None:
    lake.table("t", pa.table({"n": pa.array([1], pa.int64()), "more": pa.array(["x"])}))
    sink = io.BytesIO()
    pq.write_table(pa.table({"other": pa.array([5]), "N": pa.array([2], pa.int64())}), sink)
    lake.put("t/old.parquet", sink.getvalue(), "data")
    assert lake.rows("SELECT n, more FROM t ORDER BY n") == [("1", "x"), ("2", None)]


def test_a_file_of_another_type_is_bad_data(lake: Lake) -> None:
    lake.table("t", pa.table({"n": pa.array([1], pa.int64())}))
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array([1.5])}), sink)
    lake.put("t/odd.parquet", sink.getvalue(), "data")
    assert lake.run("SELECT n FROM t")["Status"]["StateChangeReason"].startswith("HIVE_BAD_DATA: Field n's type double")


def test_partition_columns_come_from_the_catalog(lake: Lake) -> None:
    lake.create_table("t", [{"Name": "n", "Type": "bigint"}], PartitionKeys=[{"Name": "day", "Type": "date"}])
    for number, day in enumerate(("2020-01-01", "2020-01-02")):
        sink = io.BytesIO()
        pq.write_table(pa.table({"n": pa.array([number], pa.int64())}), sink)
        lake.put(f"t/day={day}/x.parquet", sink.getvalue(), "data")
    columns = [{"Name": "n", "Type": "bigint"}]
    storage = {"Columns": columns, "Location": "s3://data/t/day=2020-01-02/"}
    lake.glue.create_partition(
        DatabaseName="db", TableName="t", PartitionInput={"Values": ["2020-01-02"], "StorageDescriptor": storage}
    )
    assert lake.rows("SELECT n, day FROM t WHERE day > DATE '2020-01-01'") == [("1", "2020-01-02")]
    assert lake.rows("SELECT count(*) FROM t") == [("1",)]


def test_a_table_without_files_has_no_rows(lake: Lake) -> None:
    lake.create_table("t", [{"Name": "n", "Type": "bigint"}])
    assert lake.rows("SELECT count(*), sum(n) FROM t") == [("0", None)]


def test_a_changed_object_is_read_anew(numbers: Lake) -> None:
    assert numbers.rows("SELECT count(*) FROM numbers") == [("100",)]
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array([1], pa.int64())}), sink)
    numbers.put("numbers/part-0.parquet", sink.getvalue(), "data")
    assert numbers.rows("SELECT count(*) FROM numbers") == [("1",)]
