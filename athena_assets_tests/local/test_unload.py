"""UNLOAD: what it writes, what it reports, and the race that it has on the real service too."""

from __future__ import annotations

import gzip
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError

from athena_assets_tests.local.conftest import Lake, status_of

PARQUET = "WITH (format = 'PARQUET')"
MIXED = pa.table(
    {
        "n": pa.array([1, None, 3], pa.int64()),
        "small": pa.array([1, 2, 3], pa.int32()),
        "x": pa.array([0.5, 1.5, None], pa.float64()),
        "name": pa.array(["a", "it's", 'q"'], pa.string()),
        "ok": pa.array([True, False, None], pa.bool_()),
        "day": pa.array([date(2013, 1, 1), None, date(2013, 12, 31)], pa.date32()),
        "at": pa.array([1_357_016_400_123_456, None, 0], pa.timestamp("us")),  # 2013-01-01 05:00:00.123456
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
    }
)


def failure(execution: dict[str, Any]) -> str:
    assert execution["Status"]["State"] == "FAILED", execution["Status"]
    return str(execution["Status"]["StateChangeReason"])


def test_parquet_holds_exactly_the_rows_and_types(lake: Lake) -> None:
    lake.table("mixed", MIXED)
    execution = lake.run(f"UNLOAD (SELECT * FROM mixed) TO 's3://out/p/' {PARQUET}")
    assert execution["Status"]["State"] == "SUCCEEDED", execution["Status"]
    milliseconds = MIXED.schema.set(6, pa.field("at", pa.timestamp("ms")))
    assert lake.unloaded("p/").equals(MIXED.cast(milliseconds, safe=False))


@pytest.mark.parametrize("compression", ["GZIP", "SNAPPY", "ZSTD", "NONE", "LZ4"])
def test_parquet_is_compressed_as_asked(numbers: Lake, compression: str) -> None:
    numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' WITH (format='parquet', compression='{compression}')")
    (key,) = numbers.keys("p/")
    found = pq.read_metadata(io.BytesIO(numbers.read(key))).row_group(0).column(0).compression
    assert found == {"NONE": "UNCOMPRESSED"}.get(compression, compression)


def test_parquet_is_gzip_unless_told_otherwise(numbers: Lake) -> None:
    numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' {PARQUET}")
    (key,) = numbers.keys("p/")
    assert pq.read_metadata(io.BytesIO(numbers.read(key))).row_group(0).column(0).compression == "GZIP"


def test_json_is_one_document_a_line_in_gzip(lake: Lake) -> None:
    lake.table("mixed", MIXED)
    lake.run("UNLOAD (SELECT n, name, at, price FROM mixed) TO 's3://out/j/' WITH (format = 'JSON')")
    (key,) = lake.keys("j/")
    assert key.endswith(".gz")
    rows = [json.loads(line) for line in gzip.decompress(lake.read(key)).decode().splitlines()]
    assert rows[0] == {"n": 1, "name": "a", "at": "2013-01-01 05:00:00.123", "price": 1.5}
    assert rows[1] == {"n": None, "name": "it's", "at": None, "price": None}
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ("", "format"),
        ("WITH (format = 'CSV')", "format"),
        ("WITH (format = 'PARQUET', compression = 'LZO')", "NOT_SUPPORTED: embedded Athena does not run"),
        ("WITH (format = 'PARQUET', compression = 'ZLIB')", "PARQUET is compressed with one of GZIP"),
        ("WITH (format = 'ORC', compression = 'GZIP')", "ORC is compressed with one of ZLIB"),
        ("WITH (format = 'AVRO', compression = 'SNAPPY')", "compression cannot be chosen for AVRO"),
        ("WITH (format = 'TEXTFILE', compression = 'ZSTD')", "TEXTFILE is always compressed with GZIP"),
        ("WITH (format = 'PARQUET', compression_level = 3)", "compression_level"),
        ("WITH (format = 'PARQUET', compression = 'ZSTD', compression_level = 23)", "compression_level"),
        ("WITH (format = 'PARQUET', compression = 'ZSTD', compression_level = 0)", "compression_level"),
        ("WITH (format = 'ORC', compression = 'ZSTD', compression_level = 3)", "compression_level cannot be chosen"),
        ("WITH (format = 'JSON', field_delimiter = ',')", "field_delimiter is for TEXTFILE only"),
        ("WITH (format = 'TEXTFILE', field_delimiter = '||')", "field_delimiter is one single-byte character"),
        ("WITH (format = 'TEXTFILE', field_delimiter = '')", "field_delimiter is one single-byte character"),
        ("WITH (format = 'PARQUET', partitioned_by = 'n')", "partitioned_by is an ARRAY"),
        ("WITH (format = 'JSON', compression = 'SNAPPY')", "JSON is always compressed with GZIP"),
        ("WITH (format = 'PARQUET', nonsense = 'x')", "nonsense"),
    ],
)
def test_properties_that_cannot_be_honoured_fail_the_query(numbers: Lake, properties: str, reason: str) -> None:
    execution = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' {properties}")
    assert reason in failure(execution)
    assert execution["Status"]["AthenaError"]["ErrorCategory"] == 2
    assert numbers.keys() == []


def test_comments_and_case_do_not_matter_and_the_text_is_kept(numbers: Lake) -> None:
    sql = "-- athena_assets slot=out/p fence=1 (it's)\n/* UNLOAD ( */ unload (select n -- ')'\n from numbers) to 's3://out/p/'"
    sql += "\n with (FORMAT = 'parquet') ;"
    execution = numbers.run(sql)
    assert execution["Status"]["State"] == "SUCCEEDED", execution["Status"]
    assert execution["Query"] == sql
    assert execution["StatementType"] == "DML"
    assert numbers.unloaded("p/").column("n").to_pylist() == list(range(100))


@pytest.mark.parametrize("size", [0, 1])
def test_any_object_under_the_destination_is_in_the_way(numbers: Lake, size: int) -> None:
    numbers.put("p/_hidden", b"x" * size)
    execution = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' {PARQUET}")
    assert failure(execution) == "HIVE_PATH_ALREADY_EXISTS: Target directory already exists: s3://out/p/"
    error = execution["Status"]["AthenaError"]
    assert (error["ErrorCategory"], error["Retryable"]) == (2, False)
    assert numbers.keys() == ["p/_hidden"]


def test_a_neighbour_with_the_same_beginning_is_not_in_the_way(numbers: Lake) -> None:
    numbers.put("p2/x")
    execution = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p' {PARQUET}")
    assert execution["Status"]["State"] == "SUCCEEDED"
    assert len(numbers.keys("p/")) == 1


def test_plain_callers_at_one_moment_duplicate_rows(numbers: Lake) -> None:
    numbers.aws.faults.query_delay(0.3)
    callers = 8
    barrier = threading.Barrier(callers)

    def call(number: int) -> str:
        barrier.wait()
        execution = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' {PARQUET}")
        return str(execution["Status"]["State"])

    with ThreadPoolExecutor(callers) as pool:
        states = list(pool.map(call, range(callers)))
    winners = states.count("SUCCEEDED")
    assert winners > 1
    assert numbers.unloaded("p/").num_rows == 100 * winners


def test_the_manifest_names_exactly_the_written_files(numbers: Lake) -> None:
    numbers.aws.faults.rows_per_file(30)
    execution = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' {PARQUET}")
    query_id = execution["QueryExecutionId"]
    assert execution["ResultConfiguration"]["OutputLocation"] == f"s3://results/q/{query_id}"
    assert execution["Statistics"]["DataManifestLocation"] == f"s3://results/q/{query_id}-manifest.csv"
    lines = numbers.read(f"q/{query_id}-manifest.csv", "results").decode().splitlines()
    assert len(lines) == 4
    assert sorted(lines) == [f"s3://out/{key}" for key in numbers.keys("p/")]
    assert numbers.keys(bucket="results") == [f"q/{query_id}-manifest.csv", f"q/{query_id}.metadata"]


def test_file_names_are_the_querys_own(numbers: Lake) -> None:
    first = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/a/' {PARQUET}")["QueryExecutionId"]
    numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/b/' {PARQUET}")
    (one,), (other,) = numbers.keys("a/"), numbers.keys("b/")
    assert one.split("/")[1].split("_")[3] == first[:5]
    assert one.split("/")[1].split("_")[2] < other.split("/")[1].split("_")[2]


def test_no_rows_write_no_file_and_no_manifest(numbers: Lake) -> None:
    execution = numbers.run(f"UNLOAD (SELECT n FROM numbers WHERE n < 0) TO 's3://out/p/' {PARQUET}")
    assert execution["Status"]["State"] == "SUCCEEDED"
    assert "DataManifestLocation" not in execution["Statistics"]
    assert numbers.keys() == []


def test_statistics_tell_bytes_times_and_rows(numbers: Lake) -> None:
    execution = numbers.run(f"UNLOAD (SELECT n FROM numbers WHERE n < 10) TO 's3://out/p/' {PARQUET}")
    head = numbers.s3.head_object(Bucket="data", Key="numbers/part-0.parquet")
    assert execution["Statistics"]["DataScannedInBytes"] == head["ContentLength"]
    assert execution["Statistics"]["EngineExecutionTimeInMillis"] >= 50
    assert execution["Statistics"]["TotalExecutionTimeInMillis"] >= execution["Statistics"]["QueryQueueTimeInMillis"]
    assert execution["Status"]["CompletionDateTime"] >= execution["Status"]["SubmissionDateTime"]
    query_id = execution["QueryExecutionId"]
    found = numbers.athena.get_query_runtime_statistics(QueryExecutionId=query_id)["QueryRuntimeStatistics"]
    assert found["Rows"]["OutputRows"] == 10


def test_a_second_name_for_one_column_is_refused(numbers: Lake) -> None:
    execution = numbers.run(f"UNLOAD (SELECT n, n FROM numbers) TO 's3://out/p/' {PARQUET}")
    assert failure(execution).startswith("DUPLICATE_COLUMN_NAME")


def test_an_absent_destination_bucket_fails_the_query(numbers: Lake) -> None:
    execution = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://nowhere/p/' {PARQUET}")
    assert "bucket does not exist" in failure(execution)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "-- nothing",
        "SELEC 1",
        "UNLOAD SELECT 1 TO 's3://out/p/' WITH (format = 'PARQUET')",
        "UNLOAD (SELECT 1 TO 's3://out/p/'",
        "UNLOAD (SELECT 1) TO out WITH (format = 'PARQUET')",
        "UNLOAD (SELECT 1) TO 's3://out/p/' WITH (format = 'PARQUET') garbage",
        "UNLOAD (SELECT 1; SELECT 2) TO 's3://out/p/' WITH (format = 'PARQUET')",
        "UNLOAD (SELECT FROM numbers) TO 's3://out/p/' WITH (format = 'PARQUET')",
        "UNLOAD (DROP TABLE numbers) TO 's3://out/p/' WITH (format = 'PARQUET')",
        "SELECT 'open",
        "SELECT " + "1" * 262_144,
    ],
)
def test_what_is_no_statement_is_rejected_at_the_start(lake: Lake, sql: str) -> None:
    with pytest.raises(ClientError) as error:
        lake.start(sql or " ")
    assert status_of(error) == (400, "InvalidRequestException")
    assert lake.aws.queries() == []


@pytest.mark.parametrize("sql", ["CREATE TABLE t AS SELECT 1", "INSERT INTO t VALUES (1)", "SHOW TABLES"])
def test_statements_that_are_not_built_fail_with_their_name(lake: Lake, sql: str) -> None:
    assert failure(lake.run(sql)).startswith(f"NOT_SUPPORTED: embedded Athena does not run {sql.split()[0]} statements")
