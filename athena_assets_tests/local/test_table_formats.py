"""Tables over files of every format: what a query finds in them, and what is refused rather than guessed."""

from __future__ import annotations

import gzip
import io
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc

from athena_assets.local import hive_text, projection
from athena_assets.local.athena_errors import QueryFailed
from athena_assets_tests.local.conftest import Lake, hive_type

SERDES = {
    "ORC": "org.apache.hadoop.hive.ql.io.orc.OrcSerde",
    "AVRO": "org.apache.hadoop.hive.serde2.avro.AvroSerDe",
    "TEXTFILE": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    "JSON": "org.openx.data.jsonserde.JsonSerDe",
    "HCATALOG": "org.apache.hive.hcatalog.data.JsonSerDe",
    "CSV": "org.apache.hadoop.hive.serde2.OpenCSVSerde",
}
MIXED = pa.table(
    {
        "n": pa.array([1, None, 3], pa.int64()),
        "small": pa.array([1, 2, 3], pa.int32()),
        "x": pa.array([0.5, 1e10, None], pa.float64()),
        "name": pa.array(["a", "it's", ""], pa.string()),
        "ok": pa.array([True, False, None], pa.bool_()),
        "day": pa.array([date(2013, 1, 1), None, date(2013, 12, 31)], pa.date32()),
        "at": pa.array([1_357_016_400_120, None, 0], pa.timestamp("ms")),  # 2013-01-01 05:00:00.12
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
    }
)
ROWS = [
    ("1", "1", "0.5", "a", "true", "2013-01-01", "2013-01-01 05:00:00.120", "1.50"),
    (None, "2", "10000000000.0", "it's", "false", None, None, None),
    ("3", "3", None, "", None, "2013-12-31", "1970-01-01 00:00:00.000", "-2.25"),
]


def serde(name: str, **parameters: str) -> dict[str, Any]:
    return {"SerializationLibrary": SERDES[name], "Parameters": {k.replace("_", "."): v for k, v in parameters.items()}}


def columns(**types: str) -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind} for name, kind in types.items()]


def reason(lake: Lake, sql: str) -> str:
    status = lake.run(sql)["Status"]
    assert status["State"] == "FAILED", status
    return str(status["StateChangeReason"])


@pytest.mark.parametrize("name", ["ORC", "AVRO", "TEXTFILE", "JSON", "HCATALOG"])
def test_what_an_unload_wrote_can_be_read_as_a_table(lake: Lake, name: str) -> None:
    lake.table("mixed", MIXED)
    form = "JSON" if name == "HCATALOG" else name
    lake.run(f"UNLOAD (SELECT * FROM mixed) TO 's3://data/copy/' WITH (format = '{form}')")
    copied = [{"Name": each.name, "Type": hive_type(each.type)} for each in MIXED.schema]
    lake.create_table("copy", copied, serde=serde(name))
    assert lake.rows("SELECT * FROM copy ORDER BY small") == ROWS
    assert lake.rows("SELECT sum(n), count(*) FROM copy WHERE day > DATE '2013-06-01'") == [("3", "1")]


def test_orc_columns_are_found_by_position_unless_by_name(lake: Lake) -> None:
    sink = io.BytesIO()
    orc.write_table(pa.table({"b": pa.array([1], pa.int64()), "a": pa.array([2], pa.int64())}), sink)
    for name, parameters in (("by_position", {}), ("by_name", {"orc_column_index_access": "false"})):
        lake.put(f"{name}/x", sink.getvalue(), "data")
        lake.create_table(name, columns(a="bigint", b="bigint", c="string"), serde=serde("ORC", **parameters))
    assert lake.rows("SELECT a, b, c FROM by_position") == [("1", "2", None)]
    assert lake.rows("SELECT a, b, c FROM by_name") == [("2", "1", None)]


def test_avro_columns_are_found_by_name(lake: Lake) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "B", "type": "int"}, {"name": "other", "type": "int"}]}
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [{"B": 5, "other": 6}], codec="deflate")
    lake.put("t/x", sink.getvalue(), "data")
    lake.create_table("t", columns(a="bigint", b="int"), serde=serde("AVRO"))
    assert lake.rows("SELECT a, b FROM t") == [(None, "5")]


def test_text_has_delimiters_headers_and_nulls_as_the_table_says(lake: Lake) -> None:
    body = b"n,s,f\n1,a,x\n,,\n\\N,\\N,\\N\n4\n5,e,y,surplus\r\n"
    lake.put("t/x.csv.gz", gzip.compress(body), "data")
    lake.create_table(
        "t",
        columns(n="int", s="string", f="string"),
        serde=serde("TEXTFILE", field_delim=","),
        Parameters={"skip.header.line.count": "1"},
    )
    assert lake.rows("SELECT n, s, f FROM t") == [
        ("1", "a", "x"),
        (None, "", ""),
        (None, None, None),
        ("4", None, None),
        ("5", "e", "y"),
    ]


def test_csv_with_quotes_is_strings(lake: Lake) -> None:
    lake.put("t/x.csv", b'id,"text"\n1,"a, ""b"""\n"2",\n3\n', "data")
    parameters = {"skip.header.line.count": "1"}
    lake.create_table("t", columns(id="string", text="string"), serde=serde("CSV"), Parameters=parameters)
    assert lake.rows("SELECT id, text FROM t") == [("1", 'a, "b"'), ("2", ""), ("3", None)]


def test_json_names_have_no_case_and_absent_ones_are_null(lake: Lake) -> None:
    lake.put("t/x.json", b'{"N": 1, "tags": ["a", null], "deep": {"X": 2.5}}\n{"other": 1}\n', "data")
    lake.create_table(
        "t", columns(n="bigint", tags="array<string>", deep="struct<x:double>", s="string"), serde=serde("JSON")
    )
    assert lake.rows("SELECT n, s FROM t") == [("1", None), (None, None)]
    assert lake.rows("SELECT x FROM t CROSS JOIN UNNEST(tags) AS u(x)") == [("a",), (None,)]


@pytest.mark.parametrize(
    ("name", "kind", "body", "expected"),
    [
        ("TEXTFILE", "int", b"abc", "HIVE_BAD_DATA: Error parsing field value 'abc' for field 'c'"),
        ("TEXTFILE", "int", b"1.5", "HIVE_BAD_DATA"),
        ("TEXTFILE", "tinyint", b"300", "HIVE_BAD_DATA"),
        ("TEXTFILE", "decimal(3,1)", b"1.25", "HIVE_BAD_DATA"),
        ("TEXTFILE", "date", b"01/02/2013", "HIVE_BAD_DATA"),
        ("TEXTFILE", "boolean", b"yes", "HIVE_BAD_DATA"),
        ("TEXTFILE", "array<int>", b"1", "NOT_SUPPORTED"),
        (
            "CSV",
            "int",
            b"1",
            "NOT_SUPPORTED: embedded Athena does not run OpenCSVSerde with columns other than strings",
        ),
        ("CSV", "string", b'a"b', "NOT_SUPPORTED: embedded Athena does not run this line of CSV"),
        ("CSV", "string", b'"a\\"b"', "NOT_SUPPORTED: embedded Athena does not run this line of CSV"),
        ("CSV", "string", b'"open', "NOT_SUPPORTED: embedded Athena does not run this line of CSV"),
        ("JSON", "int", b'{"c": "1"}', "NOT_SUPPORTED: embedded Athena does not run the JSON value '1'"),
        ("JSON", "string", b'{"c": 1}', "NOT_SUPPORTED: embedded Athena does not run the JSON value '1'"),
        ("JSON", "tinyint", b'{"c": 300}', "HIVE_BAD_DATA"),
        ("JSON", "int", b"{", "HIVE_CURSOR_ERROR: Row is not a valid JSON Object"),
        ("JSON", "int", b"[1]", "HIVE_CURSOR_ERROR: Row is not a valid JSON Object"),
        ("JSON", "map<string,int>", b'{"c": {}}', "NOT_SUPPORTED"),
        ("ORC", "int", b"junk", "HIVE_BAD_DATA: Not a valid ORC file"),
        ("AVRO", "int", b"junk", "HIVE_BAD_DATA: Not a valid Avro data file"),
    ],
)
def test_values_that_do_not_fit_are_errors(lake: Lake, name: str, kind: str, body: bytes, expected: str) -> None:
    lake.put("t/x", body + b"\n", "data")
    lake.create_table("t", columns(c=kind), serde=serde(name))
    assert reason(lake, "SELECT c FROM t").startswith(expected)


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("TEXTFILE", {"escape_delim": "\\"}, "the SerDe property escape.delim"),
        ("TEXTFILE", {"field_delim": "||"}, "a delimiter of several characters"),
        ("TEXTFILE", {"timestamp_formats": "x"}, "the SerDe property timestamp.formats"),
        ("TEXTFILE", {"serialization_encoding": "latin-1"}, "serialization.encoding = 'latin-1'"),
        ("JSON", {"mapping_a": "b"}, "the SerDe property mapping.a"),
        ("JSON", {"ignore_malformed_json": "true"}, "ignore.malformed.json = 'true'"),
    ],
)
def test_properties_that_change_the_meaning_are_refused(
    lake: Lake, name: str, parameters: dict[str, str], expected: str
) -> None:
    lake.create_table("t", columns(c="string"), serde=serde(name, **parameters))
    assert expected in reason(lake, "SELECT c FROM t")


@pytest.mark.parametrize("library", ["org.apache.hadoop.hive.serde2.RegexSerDe", "com.example.Other"])
def test_other_serdes_are_refused_by_name(lake: Lake, library: str) -> None:
    lake.create_table("t", columns(c="string"), serde={"SerializationLibrary": library})
    assert f"tables with the SerDe {library}" in reason(lake, "SELECT c FROM t")


def test_a_compression_that_is_not_read_is_refused(lake: Lake) -> None:
    lake.put("t/x.snappy", b"x", "data")
    lake.create_table("t", columns(c="string"), serde=serde("TEXTFILE"))
    assert "the compression of t/x.snappy" in reason(lake, "SELECT c FROM t")


def test_projected_partitions_need_no_catalog(lake: Lake) -> None:
    for key in ("day=2020-01-02/n=07/kind=a", "day=2020-01-03/n=08/kind=b", "day=2021-01-01/n=07/kind=a"):
        lake.put(f"t/{key}/x", b"1\n", "data")
    lake.create_table(
        "t",
        columns(v="int"),
        serde=serde("TEXTFILE"),
        PartitionKeys=columns(day="date", n="string", kind="string"),
        Parameters={
            "projection.enabled": "true",
            "projection.day.type": "date",
            "projection.day.format": "yyyy-MM-dd",
            "projection.day.range": "2020-01-01,2020-01-31",
            "projection.n.type": "integer",
            "projection.n.range": "0,9",
            "projection.n.digits": "2",
            "projection.kind.type": "enum",
            "projection.kind.values": "a,b",
        },
    )
    assert lake.rows("SELECT day, n, kind, v FROM t ORDER BY 1") == [
        ("2020-01-02", "07", "a", "1"),
        ("2020-01-03", "08", "b", "1"),
    ]


def test_a_projection_that_is_switched_off_leaves_the_catalog_in_charge(lake: Lake) -> None:
    lake.create_table(
        "t",
        columns(v="int"),
        PartitionKeys=columns(kind="string"),
        Parameters={"projection.enabled": "false", "projection.kind.type": "enum", "projection.kind.values": "a"},
    )
    lake.put("t/kind=a/x", b"not even Parquet", "data")
    assert lake.rows("SELECT count(*) FROM t") == [("0",)]


def projected(kind: str, template: str | None = None, **properties: str) -> list[tuple[str, str]]:
    named = {f"projection.c.{name.replace('_', '.')}": value for name, value in properties.items()}
    named |= {"projection.c.type": kind} | ({"storage.location.template": template} if template else {})
    found = projection.partitions(named, ["c"], "s3://b/t", datetime(2020, 3, 1, 12, 30))  # noqa: DTZ001 - naive
    return [(location, value) for location, (value,) in found]


@pytest.mark.parametrize(
    ("properties", "values"),
    [
        ({"kind": "integer", "range": "1,10", "interval": "4"}, ["1", "5", "9"]),
        ({"kind": "enum", "values": "x, y"}, ["x", "y"]),
        ({"kind": "date", "range": "2020,2022", "format": "yyyy", "interval_unit": "YEARS"}, ["2020", "2021", "2022"]),
        ({"kind": "date", "range": "2019-12,2020-02", "format": "yyyy-MM"}, ["2019-12", "2020-01", "2020-02"]),
        ({"kind": "date", "range": "NOW-2DAYS,NOW", "format": "yyyyMMdd"}, ["20200228", "20200229", "20200301"]),
        (
            {"kind": "date", "range": "2020-03-01-11,NOW", "format": "yyyy-MM-dd-HH", "interval_unit": "HOURS"},
            ["2020-03-01-11", "2020-03-01-12"],
        ),
    ],
)
def test_projections_give_the_values_that_they_describe(properties: dict[str, str], values: list[str]) -> None:
    assert [value for _, value in projected(**properties)] == values


def test_the_template_says_where_a_projected_partition_lies() -> None:
    assert projected("enum", "s3://b/other/${c}/", values="x") == [("s3://b/other/x/", "x")]
    assert projected("enum", values="x y,a=b") == [("s3://b/t/c=x y/", "x y"), ("s3://b/t/c=a%3Db/", "a=b")]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"kind": "injected"}, "partition projection of type injected"),
        ({"kind": "enum"}, "projection.c.values is missing"),
        ({"kind": "integer", "range": "0,10000"}, "more than 10000 partitions"),
        ({"kind": "date", "range": "2020,2021", "format": "yyyy"}, "interval.unit = nothing"),
        ({"kind": "date", "range": "2020,2021", "format": "dd MMM yyyy"}, "the date pattern"),
        ({"kind": "date", "range": "NOW-1YEARS,NOW", "format": "yyyy-MM-dd"}, "the bound NOW-1YEARS"),
    ],
)
def test_projections_that_say_too_little_or_too_much_are_refused(properties: dict[str, str], expected: str) -> None:
    with pytest.raises(QueryFailed) as error:
        projected(**properties)
    assert expected in error.value.reason


@pytest.mark.parametrize("text", ["2013-01-01 05:00:00", "2013-01-01 05:00:00.1", "2013-01-01 05:00:00.123456789"])
def test_timestamps_in_text_have_any_number_of_digits(text: str) -> None:
    (found,) = hive_text.parse_column("c", [text], pa.timestamp("ms"), "x").to_pylist()
    digits = (text.partition(".")[2] + "000")[:3]
    assert found == datetime(2013, 1, 1, 5, 0, 0, int(digits) * 1000)  # noqa: DTZ001 - naive
