"""The UNLOAD text: golden, labelled, and readdressed without a change to the query."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from athena_assets.core.location import Location
from athena_assets.core.output import OutputFormat
from athena_assets.core.statement import (
    MAX_STATEMENT_BYTES,
    InvalidStatement,
    Label,
    check_query,
    check_size,
    parse_label,
    quoted_literal,
    readdress,
    render_label,
    render_unload,
    unload_destination,
)
from athena_assets.errors import InvalidTarget
from athena_assets_tests.core.examples import CONTROL, LOCATION, request, target

GOLDEN = Path(__file__).parent / "golden"
STAGING = Location("lake", f"{CONTROL}staging/00000007-01-00ff/")
LABEL = Label("s3://lake/marts/daily/", 7, 1)

labels = st.builds(Label, st.text(), st.integers(), st.integers())
queries = st.lists(
    st.sampled_from(
        [
            "SELECT 1",
            "\n)\nTO '",
            "\n)\nTO ",
            "s3://lake/other/'",
            "\nWITH (format = 'JSON')",
            "'",
            "''",
            "\n",
            " -- ",
            "ä",
        ]
    ),
    min_size=1,
    max_size=12,
).map("".join)
outputs = st.sampled_from(
    [
        OutputFormat(),
        OutputFormat("PARQUET", "ZSTD", 5),
        OutputFormat("TEXTFILE", field_delimiter="\n"),
        OutputFormat("TEXTFILE", field_delimiter="'"),
        OutputFormat("TEXTFILE", field_delimiter=")"),
    ]
)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("parquet", OutputFormat("PARQUET", "ZSTD", 5)),
        ("textfile", OutputFormat("TEXTFILE", field_delimiter="'")),
    ],
)
def test_the_statement_is_what_it_always_was(name: str, output: OutputFormat) -> None:
    query = "\n  SELECT 'it''s', \"Über\"\n  FROM orders -- the last line is a comment\n"
    assert render_unload(query, STAGING, output, LABEL) == (GOLDEN / f"unload-{name}.sql").read_text().removesuffix(
        "\n"
    )


def test_a_query_that_ends_in_a_comment_still_closes() -> None:
    sent = render_unload(check_query("SELECT 1; -- the end"), STAGING, OutputFormat(), LABEL)
    assert sent.splitlines()[1:5] == ["UNLOAD (", "SELECT 1 -- the end", ")", f"TO 's3://lake/{STAGING.prefix}'"]


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ("", "''"),
        ("a", "'a'"),
        ("it's", "'it''s'"),
        ("''", "''''''"),
        ("\\", "'\\'"),
        ("a\nb", "'a\nb'"),
        ('"', "'\"'"),
    ],
)
def test_only_the_single_quote_is_doubled(value: str, literal: str) -> None:
    assert quoted_literal(value) == literal


# --- the label ------------------------------------------------------------------------------------------------------


@given(labels)
@example(Label("\n\r\u2028\u2029\x85\x0b*/ SELECT 1 --", 1, 1))
def test_no_label_leaves_its_line(label: Label) -> None:
    text = render_label(label)
    assert text.startswith("-- athena_assets {")
    assert text.isascii()
    assert text.isprintable()
    assert len(text.splitlines()) == 1


@given(labels, queries)
def test_a_label_is_read_back_from_the_statement(label: Label, query: str) -> None:
    assert parse_label(render_unload(query, STAGING, OutputFormat(), label)) == label


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELECT 1",
        "-- athena_assets",
        "-- athena_assets ",
        "-- athena_assets not json",
        "-- athena_assets []",
        "-- athena_assets {}",
        '-- athena_assets {"slot": "s3://lake/x/", "fence": 1}',
        '-- athena_assets {"slot": "s3://lake/x/", "fence": "1", "attempt": 1}',
        '-- athena_assets {"slot": null, "fence": 1, "attempt": 1}',
        '-- other {"slot": "s3://lake/x/", "fence": 1, "attempt": 1}',
        'SELECT 1\n-- athena_assets {"slot": "s3://lake/x/", "fence": 1, "attempt": 1}',
    ],
)
def test_what_is_not_our_label_is_none(text: str) -> None:
    assert parse_label(text) is None


def test_a_label_of_a_later_version_with_more_in_it_is_still_read() -> None:
    content = {"slot": "s3://lake/x/", "fence": 3, "attempt": 2, "more": True}
    assert parse_label(f"-- athena_assets {json.dumps(content)}\nSELECT 1") == Label("s3://lake/x/", 3, 2)


# --- another address ------------------------------------------------------------------------------------------------


@given(queries, outputs, labels, labels)
def test_readdressing_changes_destination_and_label_only(
    query: str, output: OutputFormat, before: Label, after: Label
) -> None:
    elsewhere = Location("lake", f"{CONTROL}staging/00000008-01-ff00/")
    sent = render_unload(query, STAGING, output, before)
    assert readdress(sent, elsewhere, after) == render_unload(query, elsewhere, output, after)


def test_readdressing_leaves_a_query_alone_that_holds_the_old_address() -> None:
    query = f"SELECT '\n)\nTO ''{STAGING}''\nWITH (format = ''JSON'')'"
    moved = readdress(
        render_unload(query, STAGING, OutputFormat(), LABEL), Location("lake", "new/"), Label("s3://lake/x/", 8, 1)
    )
    assert query in moved
    assert moved.endswith("\n)\nTO 's3://lake/new/'\nWITH (format = 'PARQUET')")
    assert parse_label(moved) == Label("s3://lake/x/", 8, 1)


# --- the destination --------------------------------------------------------------------------------------------------


@given(queries, outputs, labels)
@example(" ) TO 's3://other/place/' WITH (format = 'JSON') --", OutputFormat(), LABEL)
@example(", ')' AS \"TO\" /* ) TO 's3://other/' */", OutputFormat("PARQUET", partitioned_by=("a", "b")), LABEL)
def test_the_destination_is_read_back_whatever_the_query_holds(query: str, output: OutputFormat, label: Label) -> None:
    try:
        accepted = check_query(f"SELECT 1 {query}")
    except InvalidStatement:
        reject()
    assert unload_destination(render_unload(accepted, STAGING, output, label)) == STAGING


HAND = Location("lake", "by/hand/")


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("UNLOAD (SELECT 1) TO 's3://lake/by/hand/' WITH (format = 'PARQUET')", HAND),
        ("unload(select 1)to's3://lake/by/hand'with(format='json')", HAND),
        ("UNLOAD (SELECT 1) TO 's3://lake/by/hand/'", HAND),
        ("-- note\n/* UNLOAD */ UNLOAD /*(*/ ( SELECT 1 -- )\n ) /* '' */ TO -- x\n 's3://lake/by/hand/' ; ;", HAND),
        ("UNLOAD (SELECT 1) TO 's3://lake/by/hand/' WITH (partitioned_by = ARRAY['a)', '(b'], x = (1))", HAND),
        ("UNLOAD (SELECT ' TO ''s3://x/y/''' FROM (VALUES (1))) TO 's3://lake/by/hand/' WITH (format = ')')", HAND),
        ("UNLOAD (SELECT 1) TO 's3://lake/it''s/'", Location("lake", "it's/")),
        ("UNLOAD (SELECT 1) TO 's3://lake/a//b'", Location("lake", "a//b/")),
        ("UNLOAD (SELECT 1) TO 'S3A://lake'", Location("lake", "")),
        ("UNLOAD (SELECT 1) TO 's3://lake/'", Location("lake", "")),
    ],
)
def test_the_destination_of_a_statement_that_somebody_typed_is_read(text: str, destination: Location) -> None:
    assert unload_destination(text) == destination


@pytest.mark.parametrize(
    "text",
    [
        "",
        "UNLOAD",
        "SELECT 1",
        "SELECT 'UNLOAD (' TO 's3://lake/by/hand/'",
        "-- UNLOAD (SELECT 1) TO 's3://lake/by/hand/'",
        "PREPARE p FROM UNLOAD (SELECT 1) TO 's3://lake/by/hand/' WITH (format = 'JSON')",
        "EXECUTE p",
        "EXPLAIN UNLOAD (SELECT 1) TO 's3://lake/by/hand/'",
        "UNLOAD (SELECT 1) TO 's3://lake/by/hand/",
        "UNLOAD (SELECT 1) TO /* 's3://lake/by/hand/'",
        'UNLOAD (SELECT 1) TO "s3://lake/by/hand/"',
        "UNLOAD (SELECT 1) INTO 's3://lake/by/hand/'",
        "UNLOAD (SELECT 1) TO 's3://lake/by/hand/' format = 'JSON')",
        "UNLOAD (SELECT 1) TO 's3://lake/by/hand/' (format = 'JSON')",
        "UNLOAD (SELECT 1) TO 'by/hand/'",
        "UNLOAD (SELECT 1) TO 'https://lake/by/hand/'",
        "UNLOAD (SELECT 1) TO 's3://'",
        "UNLOAD SELECT 1 TO 's3://lake/by/hand/'",
    ],
)
def test_what_is_no_unload_that_can_be_read_has_no_destination(text: str) -> None:
    assert unload_destination(text) is None


@given(st.text("UNLOAD()TO'\"-/* \n;s3:WITH"))
def test_what_is_broken_anywhere_has_a_destination_or_none(text: str) -> None:
    found = unload_destination(f"UNLOAD ({text}")
    assert found is None or found.bucket


# --- length ---------------------------------------------------------------------------------------------------------


def test_a_statement_may_have_262144_bytes_and_no_more() -> None:
    check_size("ä" * (MAX_STATEMENT_BYTES // 2))
    with pytest.raises(InvalidStatement, match=r"262,145 bytes; Athena's limit is 262,144"):
        check_size("ä" * (MAX_STATEMENT_BYTES // 2) + "x")


def test_a_request_counts_the_whole_statement_with_its_values() -> None:
    parameterised = target(query="SELECT ${a}", parameters={"a": "x" * MAX_STATEMENT_BYTES})
    with pytest.raises(InvalidTarget) as caught:
        request(target=parameterised, query=parameterised.query_for(None)).check()
    assert (caught.value.target, caught.value.field) == ("daily", "query")


def test_a_request_that_passes_its_check_can_always_be_sent() -> None:
    overhead = len(render_unload("", STAGING, OutputFormat(), LABEL).encode())
    for size in range(MAX_STATEMENT_BYTES - overhead - 60, MAX_STATEMENT_BYTES - overhead + 10):
        wish = request(query="x" * size)
        try:
            wish.check()
        except InvalidTarget:
            continue
        sent = wish.start_parameters(f"{CONTROL}staging/99999999-98-0123456789abcdef/", 99_999_999, 98)
        assert len(sent.query.encode()) <= MAX_STATEMENT_BYTES


def test_the_start_parameters_name_everything_that_athena_compares() -> None:
    wish = request(
        target=target(catalog="other", database="sales", output="JSON"),
        workgroup="etl",
        output_location="s3://results/",
    )
    sent = wish.start_parameters(STAGING.prefix, 7, 1)
    assert sent.query == render_unload("SELECT 1 AS one", STAGING, OutputFormat("JSON"), Label(str(LOCATION), 7, 1))
    assert (sent.staging, sent.catalog, sent.database) == (STAGING.prefix, "other", "sales")
    assert (sent.workgroup, sent.output_location) == ("etl", "s3://results/")


@pytest.mark.parametrize(
    "comment",
    ["[" * 100_000, '{"slot": "s3://b/p/", "fence": true, "attempt": 1}', '{"slot": 1, "fence": 1, "attempt": 1}'],
)
def test_a_comment_that_only_looks_like_a_label_is_none(comment: str) -> None:
    assert parse_label(f"-- athena_assets {comment}\nSELECT 1") is None
