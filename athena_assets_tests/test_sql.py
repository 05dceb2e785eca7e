"""What is read from a SELECT: its upstream tables, and its functions of time or chance."""

import subprocess
import sys
from typing import Any

import pytest

from athena_assets.core.target import UpstreamTable
from athena_assets.errors import InvalidTarget
from athena_assets.sql import QueryFacts, inspect_query
from athena_assets_tests.core.examples import target


def facts(query: str, **changes: Any) -> QueryFacts:
    return inspect_query(target(query=query, database="sales", **changes))


def tables(query: str, **changes: Any) -> list[str] | None:
    found = facts(query, **changes).tables
    return None if found is None else [str(each).removeprefix("awsdatacatalog.") for each in found]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT 1", []),
        ("VALUES 1, 2", []),
        ("SELECT * FROM orders", ["sales.orders"]),
        ("SELECT * FROM Orders", ["sales.orders"]),
        ("SELECT * FROM crm.customers", ["crm.customers"]),
        ("SELECT * FROM orders AS o JOIN crm.customers c ON o.c = c.id", ["crm.customers", "sales.orders"]),
        ("SELECT * FROM a, b CROSS JOIN c LEFT JOIN d USING (x)", ["sales.a", "sales.b", "sales.c", "sales.d"]),
        ("SELECT * FROM orders a, orders b", ["sales.orders"]),
        ("SELECT * FROM (a JOIN b ON true)", ["sales.a", "sales.b"]),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b)", ["sales.a", "sales.b"]),
        ("SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x)", ["sales.a", "sales.b"]),
        ("SELECT * FROM a WHERE x > ALL (SELECT y FROM b)", ["sales.a", "sales.b"]),
        ("SELECT (SELECT max(x) FROM b) FROM a", ["sales.a", "sales.b"]),
        ("SELECT * FROM a ORDER BY (SELECT 1 FROM b)", ["sales.a", "sales.b"]),
        ("SELECT x FROM a GROUP BY x HAVING x > (SELECT 1 FROM b)", ["sales.a", "sales.b"]),
        ("SELECT sum(x) FILTER (WHERE x > (SELECT 1 FROM b)) FROM a", ["sales.a", "sales.b"]),
        ("SELECT transform(xs, x -> x + (SELECT 1 FROM b)) FROM a", ["sales.a", "sales.b"]),
        ("SELECT * FROM (SELECT * FROM (SELECT * FROM a))", ["sales.a"]),
        ("SELECT * FROM (VALUES ((SELECT x FROM a))) AS v", ["sales.a"]),
        ("SELECT * FROM a CROSS JOIN LATERAL (SELECT * FROM b WHERE b.x = a.x)", ["sales.a", "sales.b"]),
        ("SELECT * FROM a CROSS JOIN UNNEST(a.xs) AS u (x)", ["sales.a"]),
        ("(SELECT * FROM a)", ["sales.a"]),
        ("((SELECT * FROM a) UNION (SELECT * FROM b))", ["sales.a", "sales.b"]),
        ("SELECT 1 FROM a UNION ALL SELECT 1 FROM b EXCEPT SELECT 1 FROM c", ["sales.a", "sales.b", "sales.c"]),
        ("SELECT 1 FROM a INTERSECT SELECT 1 FROM b", ["sales.a", "sales.b"]),
        ("TABLE orders", ["sales.orders"]),
        ("SELECT * FROM a FOR VERSION AS OF 5", ["sales.a"]),
        ("SELECT * FROM a FOR TIMESTAMP AS OF TIMESTAMP '2024-01-31 00:00:00 UTC'", ["sales.a"]),
        ('SELECT * FROM "a$snapshots"', ["sales.a$snapshots"]),
        ('SELECT * FROM "Crm"."Customers 2024"', ["crm.customers 2024"]),
        ("SELECT * FROM a -- JOIN b\n", ["sales.a"]),
        ("SELECT 'FROM b' FROM a /* FROM c */", ["sales.a"]),
        ('SELECT "b.c" FROM a', ["sales.a"]),
        ("SELECT 1 FROM a;", ["sales.a"]),
    ],
)
def test_every_table_that_a_query_reads_is_found(query: str, found: list[str]) -> None:
    assert tables(query) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("WITH c AS (SELECT * FROM a) SELECT * FROM c", ["sales.a"]),
        ("WITH c AS (SELECT 1), d AS (SELECT * FROM c) SELECT * FROM d", []),
        ("WITH c AS (WITH d AS (SELECT * FROM a) SELECT * FROM d) SELECT * FROM c", ["sales.a"]),
        ("WITH c AS (SELECT 1) SELECT * FROM a WHERE x IN (SELECT * FROM c)", ["sales.a"]),
        ("WITH c AS (SELECT 1) SELECT * FROM c UNION SELECT * FROM a", ["sales.a"]),
        ("WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) SELECT * FROM c", []),
        ("WITH c AS (SELECT 1) SELECT * FROM crm.c", ["crm.c"]),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", ["sales.orders"]),
        ("SELECT * FROM (WITH c AS (SELECT 1) SELECT * FROM c) JOIN c ON true", ["sales.c"]),
    ],
)
def test_the_name_of_a_cte_is_no_table_where_it_holds(query: str, found: list[str]) -> None:
    assert tables(query) == found


def test_a_table_of_another_catalog_keeps_it() -> None:
    assert facts('SELECT * FROM "Federated"."Db"."T"').tables == (UpstreamTable("db", "t", "federated"),)


def test_unqualified_names_are_of_the_targets_catalog_and_database() -> None:
    assert facts("SELECT * FROM t, db.u", catalog="Federated").tables == (
        UpstreamTable("db", "u", "federated"),
        UpstreamTable("sales", "t", "federated"),
    )


def test_placeholders_do_not_stand_in_the_way() -> None:
    found = facts(
        "SELECT * FROM a WHERE day = ${partition} AND country IN (${country})",
        location="s3://lake/${partition}/",
        parameters={"country": "') OR (now() = '"},
    )
    assert found == QueryFacts((UpstreamTable("sales", "a"),), ())


# --- time and chance -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "now()",
        "NOW ( )",
        "current_date",
        "CURRENT_DATE",
        "current_timestamp",
        "current_timestamp(3)",
        "current_time",
        "localtime",
        "localtimestamp",
        "localtimestamp(6)",
        "current_timezone()",
        "current_user",
        "current_catalog",
        "rand()",
        "random()",
        "random(10)",
        "random(1, 5)",
        "uuid()",
        "shuffle(ARRAY[1, 2])",
        "CAST(now() AS varchar)",
        "TRY_CAST(now() AS varchar)",
        "try(uuid())",
        "date_diff('day', x, current_date)",
        "year(current_date)",
        "current_date - INTERVAL '1' DAY",
        "to_unixtime(now())",
        "filter(xs, x -> x < now())",
        "CASE WHEN x > now() THEN 1 END",
        "sum(x) FILTER (WHERE y < now())",
        "sum(x) OVER (ORDER BY random())",
        "(SELECT max(y) FROM b WHERE y < now())",
    ],
)
def test_a_function_of_time_or_chance_is_found(expression: str) -> None:
    found = facts(f"SELECT {expression} AS x FROM a")
    assert found.nondeterministic
    assert not found.deterministic
    assert found.tables is not None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM a WHERE day = current_date",
        "SELECT * FROM a JOIN b ON a.x = b.x AND b.y < now()",
        "SELECT * FROM a ORDER BY random() LIMIT 5",
        "SELECT x FROM a GROUP BY x HAVING max(y) < now()",
        "WITH c AS (SELECT now() AS x) SELECT * FROM c",
        "SELECT 1 UNION ALL SELECT rand()",
        "SELECT * FROM (VALUES (uuid())) v",
        "VALUES (uuid())",
        "SELECT * FROM a TABLESAMPLE BERNOULLI (10)",
        "SELECT * FROM a TABLESAMPLE SYSTEM (10)",
    ],
)
def test_it_is_found_wherever_it_stands(query: str) -> None:
    assert facts(query).nondeterministic


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'now()' FROM a",
        "SELECT 'it''s now()' FROM a",
        'SELECT "now" FROM a',
        'SELECT "now()" FROM a',
        'SELECT "current_date" FROM a',
        "SELECT a.current_date FROM a",
        "SELECT 1 -- now()\nFROM a",
        "SELECT /* random() */ 1 FROM a",
        "SELECT uuid, random, rand FROM a",
        "SELECT x AS now FROM a",
        "SELECT date(x), date_trunc('day', x), from_unixtime(x), date_add('day', 1, x) FROM a",
        "SELECT TIMESTAMP '2024-01-31 00:00:00', DATE '2024-01-31' FROM a",
        "SELECT count(*), sum(x) OVER (PARTITION BY y ORDER BY z), approx_distinct(x) FROM a",
        "SELECT json_extract_scalar(x, '$.now') FROM a",
    ],
)
def test_what_only_looks_like_one_is_not(query: str) -> None:
    found = facts(query)
    assert found.nondeterministic == ()
    assert found.deterministic


def test_each_function_is_named_once_in_order() -> None:
    assert facts("SELECT uuid(), rand(), uuid(), random() FROM a").nondeterministic == ("rand", "uuid")


# --- what is not read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT FROM WHERE",
        "SELECT (",
        "SELECT * FROM a b c d",
        "WITH c AS (SELECT 1)",
        "SELECT 1 FROM a WHERE x LIKE",
        f"SELECT {'(' * 3000}1{')' * 3000}",
    ],
)
def test_a_text_that_can_not_be_read_has_unknown_tables_and_is_never_reused(query: str) -> None:
    found = facts(query)
    assert found == QueryFacts(None, ())
    assert not found.deterministic


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        ("WITH c AS (SELECT 1) INSERT INTO b SELECT * FROM c", "INSERT"),
        ("WITH c AS (SELECT 1) DELETE FROM b", "DELETE"),
    ],
)
def test_what_only_begins_like_a_query_is_refused(query: str, statement: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        facts(query)
    assert (caught.value.target, caught.value.field) == ("daily", "query")
    assert caught.value.what == f"it is {statement}, which is not a query."


def test_the_target_itself_lets_no_second_statement_come_here() -> None:
    with pytest.raises(InvalidTarget, match="several statements"):
        facts("SELECT 1; SELECT 2")


@pytest.mark.parametrize(
    "query",
    [
        "VALUES ((SELECT max(x) FROM t))",
        "SELECT * FROM TABLE(exclude_columns(input => TABLE(orders), columns => DESCRIPTOR(x)))",
    ],
)
def test_a_table_that_may_be_hidden_makes_the_upstreams_known_or_unknown_never_none(query: str) -> None:
    assert inspect_query(target(query=query)).tables != ()


@pytest.mark.parametrize(
    "function",
    ["secure_rand()", "secure_random(1, 2)", "current_schema", "current_path", "current_groups()", "version()"],
)
def test_functions_of_the_session_are_not_deterministic(function: str) -> None:
    assert not inspect_query(target(query=f"SELECT {function} FROM a")).deterministic


@pytest.mark.parametrize("query", ["SELECT 1; -- the end", "SELECT 1; /* the end */"])
def test_a_comment_behind_the_semicolon_is_no_statement(query: str) -> None:
    assert inspect_query(target(query=query)).tables == ()


@pytest.mark.parametrize("query", ["WITH c AS (SELECT 1) SELECT * FROM C", 'WITH "C" AS (SELECT 1) SELECT * FROM c'])
def test_a_common_table_is_found_whatever_its_case(query: str) -> None:
    assert inspect_query(target(query=query)).tables == ()


def test_a_table_behind_a_common_table_of_its_name_is_found() -> None:
    found = inspect_query(target(query="WITH orders AS (SELECT * FROM orders) SELECT * FROM orders"))
    assert found.tables is None or [each.name for each in found.tables] == ["orders"]


def test_nothing_of_sqlglot_is_left_to_be_loaded_by_threads_at_one_moment() -> None:
    code = """
import sys
from athena_assets import Target
from athena_assets.sql import inspect_query

before = set(sys.modules)
query = "WITH a AS (SELECT 1 AS x) SELECT x, now() FROM a JOIN b USING (x) UNION ALL SELECT y, uuid() FROM c.d"
assert inspect_query(Target(name="t", query=query, location="s3://lake/x/")).tables
late = {name for name in set(sys.modules) - before if name.startswith("sqlglot")}
assert not late, late
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
