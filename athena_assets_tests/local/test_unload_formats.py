"""UNLOAD's formats: the rows and types that a reader of each format finds, and how they are compressed."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from athena_assets.local.hive_text import java_double, java_float, timestamp_text
from athena_assets_tests.local.conftest import Lake

MIXED = pa.table(
    {
        "n": pa.array([1, None, 3], pa.int64()),
        "small": pa.array([1, 2, 3], pa.int32()),
        "x": pa.array([0.5, 1e10, None], pa.float64()),
        "name": pa.array(["a", "it's", ""], pa.string()),
        "ok": pa.array([True, False, None], pa.bool_()),
        "day": pa.array([date(2013, 1, 1), None, date(2013, 12, 31)], pa.date32()),
        "at": pa.array([1_357_016_400_123_456, None, 0], pa.timestamp("us")),  # 2013-01-01 05:00:00.123456
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
    }
)


@pytest.fixture
def mixed(lake: Lake) -> Lake:
    lake.table("mixed", MIXED)
    return lake


def unload(lake: Lake, properties: str, query: str = "SELECT * FROM mixed") -> bytes:
    """The content of the only file."""
    status = lake.run(f"UNLOAD ({query}) TO 's3://out/p/' WITH ({properties})")["Status"]
    assert status["State"] == "SUCCEEDED", status
    (key,) = lake.keys("p/")
    assert key.endswith(".gz") == any(name in properties for name in ("TEXTFILE", "JSON"))
    return lake.read(key)


def test_orc_holds_the_rows_and_types(mixed: Lake) -> None:
    found = orc.ORCFile(io.BytesIO(unload(mixed, "format = 'ORC'"))).read()
    wanted = MIXED.cast(MIXED.schema.set(6, pa.field("at", pa.timestamp("ms"))), safe=False)
    assert found.schema.field("at").type == pa.timestamp("ns")
    assert found.cast(wanted.schema).equals(wanted)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", "ZLIB"),
        (", compression = 'ZLIB'", "ZLIB"),
        (", compression = 'snappy'", "SNAPPY"),
        (", compression = 'ZSTD'", "ZSTD"),
        (", compression = 'LZ4'", "LZ4"),
        (", compression = 'NONE'", "UNCOMPRESSED"),
    ],
)
def test_orc_is_compressed_as_asked(mixed: Lake, asked: str, found: str) -> None:
    assert orc.ORCFile(io.BytesIO(unload(mixed, f"format = 'ORC'{asked}"))).compression == found


def test_parquet_takes_a_level_for_zstd(mixed: Lake) -> None:
    body = unload(mixed, "format = 'PARQUET', compression = 'ZSTD', compression_level = 22")
    assert pq.read_metadata(io.BytesIO(body)).row_group(0).column(0).compression == "ZSTD"


def test_avro_holds_the_rows_with_logical_types(mixed: Lake) -> None:
    reader = fastavro.reader(io.BytesIO(unload(mixed, "format = 'AVRO'")))
    assert list(reader) == [
        {
            "n": 1,
            "small": 1,
            "x": 0.5,
            "name": "a",
            "ok": True,
            "day": date(2013, 1, 1),
            "at": datetime(2013, 1, 1, 5, 0, 0, 123_000, UTC),
            "price": Decimal("1.50"),
        },
        {"n": None, "small": 2, "x": 1e10, "name": "it's", "ok": False, "day": None, "at": None, "price": None},
        {
            "n": 3,
            "small": 3,
            "x": None,
            "name": "",
            "ok": None,
            "day": date(2013, 12, 31),
            "at": datetime(1970, 1, 1, tzinfo=UTC),
            "price": Decimal("-2.25"),
        },
    ]


def test_text_follows_hives_conventions(mixed: Lake) -> None:
    lines = gzip.decompress(unload(mixed, "format = 'TEXTFILE', field_delimiter = '|'")).decode().splitlines()
    assert lines == [
        "1|1|0.5|a|true|2013-01-01|2013-01-01 05:00:00.123|1.50",
        "\\N|2|1.0E10|it's|false|\\N|\\N|\\N",
        "3|3|\\N||\\N|2013-12-31|1970-01-01 00:00:00|-2.25",
    ]


def test_text_is_delimited_by_control_a_unless_told_otherwise(mixed: Lake) -> None:
    text = gzip.decompress(unload(mixed, "format = 'TEXTFILE'", "SELECT n, small FROM mixed")).decode()
    assert text == "1\x011\n\\N\x012\n3\x013\n"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("'a|b'", "a text with the delimiter"),
        ("'a\nb'", "a text with the delimiter, a line break"),
        (r"'\N'", r"or \N in TEXTFILE ('v')"),
        ("ARRAY[1, 2]", "a column of type list"),
    ],
)
def test_text_that_no_reader_would_get_back_is_refused(lake: Lake, value: str, reason: str) -> None:
    query = f"UNLOAD (SELECT {value} AS v) TO 's3://out/p/' WITH (format = 'TEXTFILE', field_delimiter = '|')"
    status = lake.run(query)["Status"]
    assert status["State"] == "FAILED"
    assert reason in status["StateChangeReason"]
    assert lake.keys() == []


def test_arrays_are_written_where_the_format_has_them(lake: Lake) -> None:
    readers: dict[str, Callable[[bytes], Any]] = {
        "PARQUET": lambda body: pq.read_table(io.BytesIO(body)).to_pylist(),
        "ORC": lambda body: orc.ORCFile(io.BytesIO(body)).read().to_pylist(),
        "AVRO": lambda body: list(fastavro.reader(io.BytesIO(body))),
    }
    for name, read in readers.items():
        lake.run(f"UNLOAD (SELECT ARRAY[1, 2] AS v) TO 's3://out/{name}/' WITH (format = '{name}')")
        (key,) = lake.keys(f"{name}/")
        assert read(lake.read(key)) == [{"v": [1, 2]}]


def test_a_timestamp_inside_an_array_is_refused_in_avro(lake: Lake) -> None:
    query = "UNLOAD (SELECT ARRAY[TIMESTAMP '2020-01-01 00:00:00'] AS v) TO 's3://out/p/' WITH (format = 'AVRO')"
    assert "a column of type timestamp[ms] in AVRO" in lake.run(query)["Status"]["StateChangeReason"]


def test_zeros_keep_their_sign_in_text(lake: Lake) -> None:
    query = "SELECT x FROM (VALUES 0e0, -0e0, 1e0) AS u(x)"
    assert gzip.decompress(unload(lake, "format = 'TEXTFILE'", query)).split() == [b"0.0", b"-0.0", b"1.0"]


def test_a_name_that_is_none_of_avros_is_refused(lake: Lake) -> None:
    status = lake.run("UNLOAD (SELECT 1 AS \"a b\") TO 's3://out/p/' WITH (format = 'AVRO')")["Status"]
    assert "the column name 'a b' in AVRO" in status["StateChangeReason"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.25e300, "-1.25E300"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_are_spelled_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text


def test_single_precision_is_spelled_with_its_own_digits() -> None:
    tenth, big = pa.array([0.1, 16777216.0], pa.float32()).to_pylist()
    assert (java_float(tenth), java_float(big), java_float(float("inf"))) == ("0.1", "1.6777216E7", "Infinity")


def test_years_have_four_digits() -> None:
    assert timestamp_text(datetime(13, 1, 2, 3, 4, 5, 60_000)) == "0013-01-02 03:04:05.06"  # noqa: DTZ001 - naive
