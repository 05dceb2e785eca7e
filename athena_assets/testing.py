"""Tests of your own targets, without an AWS account: a pytest plugin, loaded wherever this package is installed.

    def test_daily_delays(athena_assets_lake, athena_assets_publisher):
        athena_assets_lake.create_table("nycflights.flights", [{"origin": "JFK", "dep_delay": 20}])
        athena_assets_lake.create_bucket(my_target)
        athena_assets_publisher.unload(my_target)
        assert athena_assets_lake.read(my_target) == [{"origin": "JFK", "late": 1}]

Fixtures: `athena_assets_aws` (an embedded AWS: one server for a test session, or for each worker of pytest-xdist,
emptied before each test), `athena_assets_lake` (tables in, published rows out), `athena_assets_settings` and
`athena_assets_publisher`. Each of them points the environment's AWS variables at the embedded AWS for the test's
duration, so that code under test that makes its own clients, or an AthenaUnloadResource, reaches that too and never an
account. They need the extra `local`; nothing of it is imported before a fixture is used.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from athena_assets import AwsSettings, Publisher, Target
from athena_assets.dev.extra import ExtraMissing, require_local
from athena_assets.errors import AthenaAssetsError

if TYPE_CHECKING:
    from athena_assets.local import EmbeddedAws

BUCKET = "athena-assets-testing"
"""Holds the tables of `create_table` and Athena's results."""

LEASE_SECONDS = 5.0
"""Of `athena_assets_publisher`: a test that kills an owner does not wait long for the next."""

_FORMAT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquet"
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"

Row = dict[str, Any]


class UnreadableResult(AthenaAssetsError):
    """A published format that rows with names can't be read from."""


class Lake:
    """Upstream tables and published results of one test, on its embedded AWS."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self._s3 = aws.client("s3")
        self._glue = aws.client("glue")

    def create_bucket(self, where: str | Target) -> None:
        """Makes a bucket, or the one that a target publishes to, if it is not there yet."""
        name = where if isinstance(where, str) else where.location.removeprefix("s3://").partition("/")[0]
        if name not in {each["Name"] for each in self._s3.list_buckets()["Buckets"]}:
            self._s3.create_bucket(Bucket=name)

    def create_table(self, name: str, rows: Any) -> None:
        """Makes the external table `database.table` over Parquet; the database too, if need be.

        Args:
            name: lower case, as Glue stores it.
            rows: a pyarrow Table, or dictionaries of equal keys. Of those, a column that holds only None has no type:
                give a pyarrow Table then.
        """
        from athena_assets.aws.parquet import hive_type

        data = _table(rows)
        database, _, table = name.partition(".")
        if database not in {each["Name"] for each in self._glue.get_databases()["DatabaseList"]}:
            self._glue.create_database(DatabaseInput={"Name": database})
        self.append_rows(name, data)
        self._glue.create_table(
            DatabaseName=database,
            TableInput={
                "Name": table,
                "TableType": "EXTERNAL_TABLE",
                "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet"},
                "StorageDescriptor": {
                    "Columns": [{"Name": each.name, "Type": hive_type(each.type)} for each in data.schema],
                    "Location": f"s3://{BUCKET}/{_prefix(name)}",
                    "InputFormat": f"{_FORMAT}InputFormat",
                    "OutputFormat": f"{_FORMAT}OutputFormat",
                    "SerdeInfo": {"SerializationLibrary": _SERDE},
                },
            },
        )

    def append_rows(self, name: str, rows: Any) -> None:
        """Adds a file to such a table: its version is another one from now on, and results of it are not reused."""
        import pyarrow.parquet as pq

        body = io.BytesIO()
        pq.write_table(_table(rows), body)
        self._s3.put_object(Bucket=BUCKET, Key=f"{_prefix(name)}{uuid.uuid4().hex}.parquet", Body=body.getvalue())

    def read(self, target: Target, partition: str | None = None) -> list[Row]:
        """The rows that a reader of the location finds, file by file; a row that is there twice is twice in the list.

        Columns of Hive partitions within the result come last, as strings.

        Raises:
            UnreadableResult: TEXTFILE has no column names; read its objects with `objects`.
        """
        rows: list[Row] = []
        for path, body in self.objects(target, partition).items():
            partitions = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
            names = {name: unquote(value) for name, value in partitions.items()}
            rows += [row | names for row in _rows(target, path, body)]
        return rows

    def objects(self, target: Target, partition: str | None = None) -> dict[str, bytes]:
        """Every object at the location that readers take for data, by its path below the location."""
        location = target.location_for(partition)
        found: dict[str, bytes] = {}
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=location.prefix):
            for each in page.get("Contents", ()):
                path = each["Key"].removeprefix(location.prefix)
                if not path.rpartition("/")[2].startswith(("_", ".")):  # as Hive's readers
                    found[path] = self._s3.get_object(Bucket=location.bucket, Key=each["Key"])["Body"].read()
        return found


@pytest.fixture(scope="session")
def athena_assets_server() -> Iterator[EmbeddedAws]:
    """The server process of this test session. Tests use `athena_assets_aws`, which empties it."""
    try:
        require_local("the fixtures of athena_assets.testing")
    except ExtraMissing as error:
        pytest.fail(str(error), pytrace=False)
    from athena_assets.local import EmbeddedAws

    with EmbeddedAws.start() as aws:
        yield aws


@pytest.fixture
def athena_assets_aws(athena_assets_server: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """An empty embedded AWS but for one bucket, named by the environment for the duration of the test."""
    aws = athena_assets_server
    aws.reset()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    aws.client("s3").create_bucket(Bucket=BUCKET)
    monkeypatch.setenv("ATHENA_ASSETS_OUTPUT_LOCATION", f"s3://{BUCKET}/athena-results/")
    yield aws
    aws.faults.clear()


@pytest.fixture
def athena_assets_lake(athena_assets_aws: EmbeddedAws) -> Lake:
    """Puts upstream tables there, and reads what was published."""
    return Lake(athena_assets_aws)


@pytest.fixture
def athena_assets_settings(athena_assets_aws: EmbeddedAws) -> AwsSettings:
    """Settings for a Publisher of your own."""
    environment = athena_assets_aws.environment()
    return AwsSettings(
        region=environment["AWS_REGION"],
        endpoint_url=athena_assets_aws.endpoint_url,
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        output_location=os.environ["ATHENA_ASSETS_OUTPUT_LOCATION"],
    )


@pytest.fixture
def athena_assets_publisher(athena_assets_settings: AwsSettings) -> Publisher:
    """Publishes to the embedded AWS, with a short lease."""
    return Publisher(athena_assets_settings, lease_seconds=LEASE_SECONDS)


def _prefix(table: str) -> str:
    return f"tables/{table}/"


def _table(rows: Any) -> Any:
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    return pa.Table.from_pylist([dict(row) for row in _mappings(rows)])


def _mappings(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise ValueError("rows are a pyarrow Table, or at least one dictionary: an empty list has no columns")
    return rows


def _rows(target: Target, path: str, body: bytes) -> list[Row]:
    rows: list[Row]
    if target.format.format == "PARQUET":
        import pyarrow.parquet as pq

        rows = pq.read_table(io.BytesIO(body)).to_pylist()
    elif target.format.format == "ORC":
        import pyarrow.orc

        rows = pyarrow.orc.read_table(io.BytesIO(body)).to_pylist()
    elif target.format.format == "AVRO":
        import fastavro

        rows = list(fastavro.reader(io.BytesIO(body)))  # type: ignore[arg-type]
    elif target.format.format == "JSON":
        text = gzip.decompress(body) if path.endswith(".gz") else body
        rows = [json.loads(line) for line in text.splitlines()]
    else:
        raise UnreadableResult(
            f"target {target.name!r}",
            f"{target.format.format} has no column names.",
            not_done="Nothing was read.",
            next_step="Take the objects as they are: Lake.objects.",
        )
    return rows
