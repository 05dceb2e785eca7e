"""Target: everything that can be checked without AWS is checked before anything is sent."""

import itertools
from typing import Any

import pytest
import sqlglot
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot import exp

from athena_assets.core.disjoint import check_disjoint
from athena_assets.core.output import OutputFormat
from athena_assets.core.statement import MAX_STATEMENT_BYTES
from athena_assets.core.target import Guard, OnConflict, Reuse, Target, UpstreamTable
from athena_assets.errors import InvalidTarget
from athena_assets_tests.core.examples import target

BY_DAY = {"query": "SELECT * FROM t WHERE day = ${partition}", "location": "s3://lake/daily/${partition}/"}


def refused(**changes: Any) -> InvalidTarget:
    with pytest.raises(InvalidTarget) as caught:
        target(**changes)
    return checked(caught.value)


def checked(error: InvalidTarget) -> InvalidTarget:
    assert str(error).startswith(f"target {error.target!r}, {error.field}: {error.what} ")
    assert error.not_done == "No query was started and nothing was written."
    assert error.next_step.endswith(".")
    return error


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"name": ""}, "name", "not a valid asset key"),
        ({"name": "a-b"}, "name", "not a valid asset key"),
        ({"name": "a.b"}, "name", "not a valid asset key"),
        ({"name": "a//b"}, "name", "not a valid asset key"),
        ({"name": "/a"}, "name", "not a valid asset key"),
        ({"name": "a/"}, "name", "not a valid asset key"),
        ({"name": "a\n"}, "name", "not a valid asset key"),
        ({"name": "täglich"}, "name", "not a valid asset key"),
        ({"output": "CSV"}, "format", "'CSV' is unknown"),
        ({"on_conflict": "wait"}, "on_conflict", "'wait' is unknown"),
        ({"on_conflict": ""}, "on_conflict", "'' is unknown"),
        ({"reuse": "sometimes"}, "reuse", "'sometimes' is unknown"),
        ({"reuse": None}, "reuse", "None is unknown"),
        ({"guard": False}, "guard", "False is unknown"),
        ({"guard": "never"}, "guard", "'never' is unknown"),
        ({"timeout": 0}, "timeout", "0 is not a positive number"),
        ({"timeout": -1.0}, "timeout", "-1.0 is not a positive number"),
        ({"timeout": float("nan")}, "timeout", "nan is not a positive number"),
        ({"wait_timeout": 0}, "wait_timeout", "0 is not a positive number"),
        ({"wait_timeout": float("nan")}, "wait_timeout", "nan is not a positive number"),
        ({"retries": -1}, "retries", "-1 is negative"),
        ({"database": ""}, "database", "must not be empty"),
        ({"catalog": ""}, "database", "must not be empty"),
        ({"parameters": {"partition": "x"}}, "parameters", "'partition' is set by the partition key"),
        ({"parameters": {"day": 20240131}}, "parameters", "'day' is not a string"),
        ({"parameters": {"day": None}}, "parameters", "'day' is not a string"),
        ({"parameters": {"day": "a\0b"}}, "parameters", "'day': a value holds a NUL character"),
        ({"location": "s3://lake/"}, "location", "bucket's root"),
        ({"location": "s3://lake/p//x/"}, "location", "path segment ''"),
        ({"location": ""}, "location", "does not begin with s3://"),
        ({"location": f"s3://lake/{'a' * 801}/"}, "location", "801 bytes"),
        ({"location": "s3://lake/_athena_assets/v1/"}, "location", "overlaps the control prefix"),
        ({"location": "s3://lake/_athena_assets/v1/x/"}, "location", "overlaps the control prefix"),
        ({"location": "s3://lake/_athena_assets/"}, "location", "overlaps the control prefix"),
    ],
)
def test_a_bad_field_is_named_with_its_target(changes: dict[str, Any], field: str, problem: str) -> None:
    error = refused(**changes)
    assert (error.target, error.field) == (changes.get("name", "daily"), field)
    assert problem in error.what


def test_an_unknown_choice_is_answered_with_the_choices() -> None:
    assert refused(on_conflict="wait").next_step == "Use one of join, queue, skip, fail."
    assert refused(reuse="x").next_step == "Use one of auto, always, never."
    assert refused(guard="x").next_step == "Use one of takeover, always, off."


def test_only_the_control_prefix_itself_is_reserved() -> None:
    for path in ("_athena_assets/v2", "_athena_assets_old", "marts/_athena_assets/v1"):
        assert target(location=f"s3://lake/{path}/").location_for(None).prefix == f"{path}/"


def test_choices_and_formats_may_be_given_by_name() -> None:
    found = target(on_conflict="fail", reuse="always", guard="off", output="json", name="marts/daily_2")
    assert found.on_conflict is OnConflict.FAIL
    assert found.reuse is Reuse.ALWAYS
    assert found.guard is Guard.OFF
    assert found.format == OutputFormat("JSON")


def test_later_changes_of_the_given_parameters_do_not_reach_the_target() -> None:
    given_parameters = {"day": "1"}
    found = target(query="SELECT ${day}", parameters=given_parameters)
    given_parameters["day"] = "2"
    assert found.query_for(None) == "SELECT '1'"


def test_upstreams_become_a_tuple() -> None:
    assert target(upstreams=[UpstreamTable("sales", "orders")]).upstreams == (UpstreamTable("sales", "orders"),)
    assert str(UpstreamTable("sales", "orders")) == "awsdatacatalog.sales.orders"


# --- the query ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "it is empty"),
        (" \n\t", "it is empty"),
        (";", "it is empty"),
        ("((", "it is empty"),
        ("-- SELECT 1", "it is empty"),
        ("/* SELECT 1 */", "it is empty"),
        ("-- one\n/* two */ ; -- three", "it is empty"),
        ("SELECT 1; SELECT 2", "it holds several statements"),
        ("SELECT 1; ; ", "it holds several statements"),
        ("SELECT 1;\n-- c\nSELECT 2", "it holds several statements"),
        ("SELECT 1; 'x'", "it holds several statements"),
        ('SELECT 1; "x"', "it holds several statements"),
        ("SELECT 1 /* ; */; /* ; */ DROP TABLE t", "it holds several statements"),
        ("INSERT INTO t SELECT 1", "it begins with 'INSERT INTO t SELECT', which is not a query"),
        ("DROP TABLE t", "which is not a query"),
        ("/* SELECT */ DELETE FROM t", "which is not a query"),
        ("EXPLAIN SELECT 1", "which is not a query"),
        ("CREATE TABLE t AS SELECT 1", "which is not a query"),
        ("SELECTION", "which is not a query"),
        ("'SELECT 1'", "which is not a query"),
        ('"SELECT" 1', "which is not a query"),
        ("1", "which is not a query"),
        ("SELECT 'a", "the quote opened at character 8 is never closed"),
        ("SELECT '", "the quote opened at character 8 is never closed"),
        ("SELECT 'it''s", "never closed"),
        ("SELECT 'a\\' FROM t WHERE b = 'c' OR d = 'e\\'' ", "never closed"),
        ('SELECT "a', "the quote opened at character 8 is never closed"),
        ("SELECT 1 /* a", "the comment opened at character 10 is never closed"),
        ("SELECT 1 /*/", "the comment opened at character 10 is never closed"),
        ("SELECT 1 /* a *", "the comment opened at character 10 is never closed"),
    ],
)
def test_what_is_not_one_query_is_refused(query: str, problem: str) -> None:
    error = refused(query=query)
    assert error.field == "query"
    assert problem in error.what


def test_whoever_writes_unload_is_told_that_it_is_added() -> None:
    error = refused(query="UNLOAD (SELECT 1) TO 's3://lake/x/' WITH (format = 'JSON')")
    assert "which is not a query" in error.what
    assert error.next_step == "Begin with SELECT or WITH. The UNLOAD around it is added for you."


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("SELECT 1", "SELECT 1"),
        ("select 1", "select 1"),
        ("SELECT 1;", "SELECT 1"),
        ("SELECT 1 ; \n", "SELECT 1  \n"),
        ("SELECT 1; -- the end", "SELECT 1 -- the end"),
        ("SELECT 1; /* the; end */", "SELECT 1 /* the; end */"),
        ("SELECT ';'", "SELECT ';'"),
        ('SELECT 1 AS ";"', 'SELECT 1 AS ";"'),
        ("SELECT 1 -- ;\n", "SELECT 1 -- ;\n"),
        ("SELECT 'it''s' || '--' || '/*'", "SELECT 'it''s' || '--' || '/*'"),
        ("SELECT '\\'", "SELECT '\\'"),
        ("SELECT 1 -- it's", "SELECT 1 -- it's"),
        ("/* it's */ WITH a AS (SELECT 1) SELECT * FROM a", "/* it's */ WITH a AS (SELECT 1) SELECT * FROM a"),
        ("(SELECT 1)", "(SELECT 1)"),
        (" ( (SELECT 1) UNION (SELECT 2))", " ( (SELECT 1) UNION (SELECT 2))"),
        ("(-- why\nSELECT 1)", "(-- why\nSELECT 1)"),
        ("VALUES 1, 2", "VALUES 1, 2"),
        ("TABLE t", "TABLE t"),
        ("SELECT/**/1", "SELECT/**/1"),
        ("SELECT* FROM t", "SELECT* FROM t"),
        ("SELECT '$' || '{x'", "SELECT '$' || '{x'"),
    ],
)
def test_one_query_is_sent_as_written_but_for_its_semicolon(query: str, sent: str) -> None:
    assert target(query=query).query_for(None) == sent


def test_a_query_that_can_not_fit_is_refused_by_its_bytes() -> None:
    assert len(target(query=f"SELECT '{'ä' * 130_000}'").query_for(None).encode()) == 260_009
    error = refused(query=f"SELECT '{'ä' * 131_068}'")
    assert error.field == "query"
    assert f"Athena's limit is {MAX_STATEMENT_BYTES:,}" in error.what
    assert MAX_STATEMENT_BYTES == 262_144


# --- placeholders ---------------------------------------------------------------------------------------------------


def test_a_bare_placeholder_becomes_a_quoted_literal() -> None:
    assert target(**BY_DAY).query_for("2024-01-31") == "SELECT * FROM t WHERE day = '2024-01-31'"


def test_a_placeholder_may_stand_many_times() -> None:
    found = target(query="SELECT ${a}, ${b}, ${a}", parameters={"a": "1", "b": "2"})
    assert found.query_for(None) == "SELECT '1', '2', '1'"


def test_a_value_that_looks_like_a_placeholder_is_not_rendered_again() -> None:
    found = target(query="SELECT ${a}, ${b}", parameters={"a": "${b}", "b": "${a}"})
    assert found.query_for(None) == "SELECT '${b}', '${a}'"
    with pytest.raises(InvalidTarget, match=r"has the character \{"):
        target(**BY_DAY).location_for("${partition}")


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("SELECT '${partition}'", "quotes"),
        ("SELECT 'it''s ${partition}'", "quotes"),
        ('SELECT 1 AS "${partition}"', "quotes"),
        ("SELECT 1 -- ${partition}", "a comment"),
        ("SELECT /* ${partition} */ 1", "a comment"),
    ],
)
def test_a_placeholder_where_no_literal_can_stand_is_refused(query: str, where: str) -> None:
    error = refused(query=query, location="s3://lake/daily/${partition}/")
    assert error.field == "query"
    assert error.what == f"the placeholder ${{partition}} stands inside {where}."
    assert error.next_step == "It renders a whole, quoted literal: write it bare."


@pytest.mark.parametrize("text", ["${}", "${ partition }", "${1}", "${a-b}", "${a.b}"])
@pytest.mark.parametrize("field", ["query", "location"])
def test_a_malformed_placeholder_is_refused(field: str, text: str) -> None:
    value = f"SELECT {text}" if field == "query" else f"s3://lake/{text}/"
    error = refused(**{field: value})
    assert error.field == field
    assert error.what == f"{text} is not a placeholder."


def test_a_placeholder_without_a_value_is_refused() -> None:
    assert refused(query="SELECT ${day}").what == "the placeholder ${day} has no value."
    error = refused(location="s3://lake/${day}/")
    assert (error.field, error.what) == ("location", "the placeholder ${day} has no value.")


def test_a_partition_in_the_query_alone_is_refused() -> None:
    error = refused(query="SELECT ${partition}")
    assert error.field == "location"
    assert "each would replace the one before" in error.what


def test_a_partition_in_the_location_alone_is_enough() -> None:
    found = target(location="s3://lake/${partition}/x")
    assert found.partitioned
    assert str(found.location_for("a")) == "s3://lake/a/x/"


def test_a_partition_key_is_given_if_and_only_if_the_location_has_one() -> None:
    for found, partition, problem in (
        (target(**BY_DAY), None, "no partition key was given"),
        (target(), "x", "the location has no ${partition}"),
    ):
        with pytest.raises(InvalidTarget) as caught:
            found.location_for(partition)
        assert checked(caught.value).field == "location"
        assert problem in caught.value.what


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "not one path segment"),
        (".", "not one path segment"),
        ("..", "not one path segment"),
        ("a/b", "not one path segment"),
        ("../../other", "not one path segment"),
        ("it's", "the character '"),
        ("a\nb", r"the character '\n'"),
        ("a\0b", r"the character '\x00'"),
        ("ä", "the character 'ä'"),
        ("*", "the character *"),
        ("x" * 801, "808 bytes"),
    ],
)
def test_a_key_that_would_not_stay_in_its_segment_is_refused(key: str, problem: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        target(location="s3://lake/days/${partition}").location_for(key)
    assert checked(caught.value).field == "location"
    assert problem in caught.value.what


def test_dots_can_not_be_put_together_to_a_dotted_segment() -> None:
    for location, key in (("s3://lake/.${partition}/", "."), ("s3://lake/${a}${partition}/", ".")):
        with pytest.raises(InvalidTarget, match="not one path segment"):
            target(location=location, parameters={"a": "b"}).location_for(key)


def test_a_key_with_dots_inside_is_ordinary() -> None:
    assert str(target(location="s3://lake/${partition}").location_for("v1..2")) == "s3://lake/v1..2/"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30))
@example("' OR 1=1 --")
@example("''")
@example("'")
@example("a\nb\r\n'; DROP TABLE t; --")
@example("\u2019 \u02bc \uff07")
@example("\\'")
@example("${partition}")
@example("*/ ' /*")
def test_a_hostile_value_arrives_as_one_literal(value: str) -> None:
    found = target(
        query="SELECT ${value} AS a, 'it''s' AS b -- it's\nFROM t WHERE c = ${value} AND d = 1",
        parameters={"value": value},
    )
    parsed = sqlglot.parse_one(found.query_for(None), read="trino")
    literals = [each.this for each in parsed.find_all(exp.Literal) if each.is_string]
    assert sorted(literals) == sorted([value, "it's", value])
    assert isinstance(parsed, exp.Select)
    assert [each.alias for each in parsed.selects] == ["a", "b"]
    assert [each.this for each in parsed.find_all(exp.Literal) if not each.is_string] == ["1"]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30))
def test_a_hostile_key_arrives_as_one_literal(key: str) -> None:
    parsed = sqlglot.parse_one(target(**BY_DAY).query_for(key), read="trino")
    assert [each.this for each in parsed.find_all(exp.Literal)] == [key]


def test_a_key_with_a_nul_is_refused() -> None:
    with pytest.raises(InvalidTarget, match="NUL"):
        target(**BY_DAY).query_for("a\0b")


# --- sets of targets ------------------------------------------------------------------------------------------------


def targets(*locations: str) -> list[Target]:
    return [target(name=f"t{index}", location=location) for index, location in enumerate(locations)]


OVERLAPPING = [
    ("s3://lake/a/", "s3://lake/a"),
    ("s3://lake/a/", "s3://lake/a/b/"),
    ("s3://lake/a/b/c/", "s3://lake/a/"),
    ("s3://lake/a/${partition}/", "s3://lake/a/"),
    ("s3://lake/a/${partition}/", "s3://lake/a/2024/"),
    ("s3://lake/a/${partition}/", "s3://lake/a/2024/b/"),
    ("s3://lake/a/${partition}/", "s3://lake/a/${partition}/"),
    ("s3://lake/${partition}/x/", "s3://lake/y/${partition}/"),
    ("s3://lake/a_${partition}/", "s3://lake/a_b_${partition}/"),
    ("s3://lake/a${partition}/", "s3://lake/a_b/"),
    ("s3://lake/day=${partition}/x", "s3://lake/${partition}/x"),
]
DISJOINT = [
    ("s3://lake/foo/", "s3://lake/foo_old/"),
    ("s3://lake/a/", "s3://pond/a/"),
    ("s3://lake/a/b/", "s3://lake/a/c/"),
    ("s3://lake/a/${partition}/", "s3://lake/b/${partition}/"),
    ("s3://lake/${partition}/a/", "s3://lake/${partition}/b/"),
    ("s3://lake/day=${partition}/", "s3://lake/week=${partition}/"),
    ("s3://lake/day=${partition}/", "s3://lake/week/"),
    ("s3://lake/A/", "s3://lake/a/"),
]


@pytest.mark.parametrize(("one", "other"), [*OVERLAPPING, *((b, a) for a, b in OVERLAPPING)])
def test_targets_that_could_write_to_one_place_are_refused(one: str, other: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        check_disjoint([target(name="apart", location="s3://apart/x"), *targets(one, other)])
    error = checked(caught.value)
    assert (error.target, error.field) == ("t1", "location")
    assert error.what == f"{other} overlaps {one} of target 't0'."


@pytest.mark.parametrize(("one", "other"), [*DISJOINT, *((b, a) for a, b in DISJOINT)])
def test_targets_side_by_side_are_accepted(one: str, other: str) -> None:
    check_disjoint(targets(one, other))
    check_disjoint(tuple(targets(one, other)))


@given(
    st.lists(
        st.sampled_from(["a", "ab", "b", "${partition}", "a${partition}", "${partition}b"]), min_size=1, max_size=3
    ),
    st.lists(
        st.sampled_from(["a", "ab", "b", "${partition}", "a${partition}", "${partition}b"]), min_size=1, max_size=3
    ),
)
def test_no_two_keys_bring_accepted_targets_together(one: list[str], other: list[str]) -> None:
    left, right = targets("s3://lake/" + "/".join(one), "s3://lake/" + "/".join(other))
    try:
        check_disjoint([left, right])
    except InvalidTarget:
        return
    keys = ("a", "b", "ab", "c")
    for one_key, other_key in itertools.product(keys, keys):
        found = left.location_for(one_key if left.partitioned else None)
        assert not found.overlaps(right.location_for(other_key if right.partitioned else None))


def test_a_name_used_twice_is_refused() -> None:
    with pytest.raises(InvalidTarget) as caught:
        check_disjoint([target(location="s3://lake/a"), target(location="s3://lake/b")])
    assert checked(caught.value).field == "name"


def test_any_number_of_targets_may_be_disjoint() -> None:
    check_disjoint([])
    check_disjoint(targets(*(f"s3://lake/{index}/" for index in range(20))))


@pytest.mark.parametrize("query", ["SELECT '${' AS a, '}' AS b", "SELECT 1 /* ${ */ -- }"])
def test_braces_in_quotes_and_comments_are_no_placeholder(query: str) -> None:
    assert target(query=query).query_for(None) == query


@pytest.mark.parametrize(
    "changes",
    [
        {"location": "s3://lake/${partition/"},
        {"location": "s3://lake/a${/"},
        {"location": "s3://lake/{partition}/"},
        {"query": "SELECT ${partition FROM t"},
    ],
)
def test_a_placeholder_that_is_not_closed_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidTarget):
        target(**changes)


def test_a_partition_key_can_not_reach_the_control_prefix() -> None:
    with pytest.raises(InvalidTarget, match="control prefix"):
        target(location="s3://lake/${partition}/").location_for("_athena_assets")


@pytest.mark.parametrize("query", ["SELECT 1 -- x\r; SELECT 2", "SELECT1", "SELECT '\ud800'"])
def test_a_comment_ends_at_a_carriage_return_and_a_keyword_at_its_end(query: str) -> None:
    with pytest.raises(InvalidTarget):
        target(query=query)


def test_half_a_surrogate_pair_in_a_parameter_is_refused() -> None:
    with pytest.raises(InvalidTarget, match="no UTF-8"):
        target(query="SELECT ${a}", parameters={"a": "\ud800"})


def test_parameters_are_constants_when_locations_are_compared() -> None:
    check_disjoint(
        [target(name=region, location="s3://lake/${r}/x", parameters={"r": region}) for region in ("eu", "us")]
    )
    with pytest.raises(InvalidTarget, match="overlaps"):
        check_disjoint([target(name=name, location="s3://lake/${r}/x", parameters={"r": "eu"}) for name in ("a", "b")])


@pytest.mark.parametrize(
    "changes",
    [
        {"timeout": None},
        {"timeout": "60"},
        {"retries": None},
        {"retries": 1.5},
        {"query": None},
        {"location": None},
        {"parameters": None},
        {"name": None},
        {"database": 5},
        {"output": 3},
        {"output": {"format": "PARQUET"}},
        {"workgroup": 5},
        {"glue_table": 5},
        {"keep_previous": True},
        {"retries": True},
        {"adopt_existing": "no"},
        {"clean_after_failure": 1},
        {"upstreams": "lake.numbers"},
        {"upstreams": ["x"]},
    ],
)
def test_a_value_of_another_type_is_refused_by_name(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(InvalidTarget, match=name):
        target(**changes)
