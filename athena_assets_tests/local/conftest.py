"""One server for the session (one per xdist worker), emptied before each test."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.config import Config

from athena_assets.local import EmbeddedAws

ONE_ATTEMPT = Config(retries={"total_max_attempts": 1})
Found = TypeVar("Found")
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
HIVE_TYPES = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
}


def hive_type(kind: pa.DataType) -> str:
    """The Hive type of a column that a test writes."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return "date" if pa.types.is_date32(kind) else HIVE_TYPES[kind]


@dataclass
class Lake:
    """Three buckets, a database, and short words for what the tests do with them."""

    aws: EmbeddedAws
    s3: Any = field(init=False)
    athena: Any = field(init=False)
    glue: Any = field(init=False)

    def __post_init__(self) -> None:
        self.s3 = self.aws.client("s3", ONE_ATTEMPT)
        self.athena = self.aws.client("athena", ONE_ATTEMPT)
        self.glue = self.aws.client("glue", ONE_ATTEMPT)
        for bucket in ("data", "out", "results"):
            self.s3.create_bucket(Bucket=bucket)
        self.glue.create_database(DatabaseInput={"Name": "db"})

    def put(self, key: str, body: bytes = b"x", bucket: str = "out", **conditions: Any) -> str:
        """PutObject; returns the ETag."""
        return str(self.s3.put_object(Bucket=bucket, Key=key, Body=body, **conditions)["ETag"])

    def keys(self, prefix: str = "", bucket: str = "out") -> list[str]:
        """All keys under a prefix."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def read(self, key: str, bucket: str = "out") -> bytes:
        """An object's content."""
        body: bytes = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    def table(self, name: str, data: pa.Table | Sequence[pa.Table], **storage: Any) -> None:
        """A Glue table over Parquet, one object for each part."""
        parts = [data] if isinstance(data, pa.Table) else list(data)
        for number, part in enumerate(parts):
            sink = io.BytesIO()
            pq.write_table(part, sink)
            self.put(f"{name}/part-{number}.parquet", sink.getvalue(), "data")
        columns = [{"Name": each.name, "Type": hive_type(each.type)} for each in parts[0].schema]
        self.create_table(name, columns, **storage)

    def create_table(self, name: str, columns: list[dict[str, str]], **table_input: Any) -> None:
        """CreateTable at `s3://data/<name>/`, for Parquet unless `serde` says otherwise."""
        serde = table_input.pop("serde", {"SerializationLibrary": PARQUET_SERDE})
        storage = {"Columns": columns, "Location": f"s3://data/{name}/", "SerdeInfo": serde}
        self.glue.create_table(
            DatabaseName="db", TableInput={"Name": name, "StorageDescriptor": storage, **table_input}
        )

    def start(self, sql: str, **arguments: Any) -> str:
        """StartQueryExecution in the test's database; returns the id."""
        defaults = {
            "QueryExecutionContext": {"Database": "db"},
            "ResultConfiguration": {"OutputLocation": "s3://results/q/"},
        }
        return str(self.athena.start_query_execution(QueryString=sql, **{**defaults, **arguments})["QueryExecutionId"])

    def describe(self, query_id: str) -> dict[str, Any]:
        """GetQueryExecution."""
        found: dict[str, Any] = self.athena.get_query_execution(QueryExecutionId=query_id)["QueryExecution"]
        return found

    def wait(self, query_id: str) -> dict[str, Any]:
        """Polls until the query has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.describe(query_id)
            return found if found["Status"]["State"] in FINAL else None

        return eventually(ended)

    def run(self, sql: str, **arguments: Any) -> dict[str, Any]:
        """Starts and waits."""
        return self.wait(self.start(sql, **arguments))

    def rows(self, sql: str) -> list[tuple[str | None, ...]]:
        """The result of a SELECT as text; the query must succeed."""
        execution = self.run(sql)
        assert execution["Status"]["State"] == "SUCCEEDED", execution["Status"]
        answer = self.athena.get_query_results(QueryExecutionId=execution["QueryExecutionId"])["ResultSet"]["Rows"]
        return [tuple(value.get("VarCharValue") for value in row["Data"]) for row in answer[1:]]

    def unloaded(self, prefix: str) -> pa.Table:
        """All Parquet files under a prefix as one table."""
        return pa.concat_tables([pq.read_table(io.BytesIO(self.read(key))) for key in self.keys(prefix)])


def eventually(look: Callable[[], Found | None], seconds: float = 20) -> Found:
    """What `look` returns as soon as it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"did not come true within {seconds} s")


def status_of(error: Any) -> tuple[int, str]:
    """HTTP status and code of a ClientError."""
    response: Mapping[str, Any] = error.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start() as aws:
        yield aws


@pytest.fixture
def lake(server: EmbeddedAws) -> Lake:
    server.reset()
    return Lake(server)


@pytest.fixture
def numbers(lake: Lake) -> Lake:
    """A table `numbers` with the column `n` from 0 to 99."""
    lake.table("numbers", pa.table({"n": pa.array(range(100), pa.int64())}))
    return lake
