"""A small lake on an embedded AWS, and what S3 and Athena's history say about it: never our own metadata."""

from __future__ import annotations

import gzip
import io
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from athena_assets import AwsSettings, Published, Publisher, Reused, Skipped, Target
from athena_assets.core import keys
from athena_assets.core.codec import decode, encode
from athena_assets.core.location import parse_location
from athena_assets.core.manifest import Manifest
from athena_assets.core.register import HISTORY, Register, decode_register
from athena_assets.local import EmbeddedAws, QueryRecord

ROWS = 1_000
ROWS_PER_FILE = 250  # four files, so that there is a middle of the copy
LEASE = 2.0  # seconds; what a test waits for after a crash


def wait_until(condition: Callable[[], Any], what: str, timeout: float = 60) -> Any:
    """The condition's first true value; fails the test by name if there is none in time."""
    until = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < until, f"timed out waiting until {what}"
        time.sleep(0.02)
    return found


def done(outcome: Published | Reused | Skipped | None) -> Published | Reused:
    """The outcome, if it is a publication."""
    assert isinstance(outcome, Published | Reused)
    return outcome


class Lake:
    """One bucket with the table `lake.numbers` (n: 0 to 999), and a result location that is nobody's target."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.bucket = f"lake-{uuid.uuid4().hex[:12]}"
        self.database = self.bucket.replace("-", "_")
        self.s3 = aws.client("s3")
        self.s3.create_bucket(Bucket=self.bucket)
        self.glue = aws.client("glue")
        self.glue.create_database(DatabaseInput={"Name": self.database})
        self.add_table("numbers", range(ROWS))
        self.settings = AwsSettings(
            endpoint_url=aws.endpoint_url,
            region="us-east-1",
            access_key_id="testing",
            secret_access_key="testing",
            output_location=f"s3://{self.bucket}/athena-results/",
        )

    def add_table(self, name: str, values: range) -> None:
        prefix = f"upstream/{name}/"
        self.put_rows(name, "part-0.parquet", values)
        self.glue.create_table(
            DatabaseName=self.database,
            TableInput={
                "Name": name,
                "TableType": "EXTERNAL_TABLE",
                "Parameters": {"classification": "parquet", "EXTERNAL": "TRUE"},
                "StorageDescriptor": {
                    "Columns": [{"Name": "n", "Type": "bigint"}],
                    "Location": f"s3://{self.bucket}/{prefix}",
                    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
                    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
                    "SerdeInfo": {
                        "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
                    },
                },
            },
        )

    def put_rows(self, table: str, name: str, values: range) -> None:
        body = io.BytesIO()
        pq.write_table(pa.table({"n": pa.array(values, pa.int64())}), body)
        self.s3.put_object(Bucket=self.bucket, Key=f"upstream/{table}/{name}", Body=body.getvalue())

    def put_stranger(self, target: Target, name: str = "stranger") -> str:
        """Somebody else's object under a target's location; its key."""
        key = f"{parse_location(target.location).prefix}{name}"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=b"precious")
        return key

    def wait_until_held(self, hold: str) -> str:
        """The id of the one query that stands at the hold."""
        (query_id,) = wait_until(lambda: self.aws.faults.held(hold), "the query is held")
        return str(query_id)

    def target(self, name: str = "", **changes: Any) -> Target:
        """A target of its own location, unless `changes` says otherwise."""
        name = name or f"t_{uuid.uuid4().hex[:8]}"
        arguments: dict[str, Any] = {
            "name": name,
            "query": "SELECT n FROM numbers",
            "location": f"s3://{self.bucket}/published/{name}/",
            "database": self.database,
        }
        return Target(**(arguments | changes))

    def publisher(self, lease: float = LEASE) -> Publisher:
        return Publisher(self.settings, lease_seconds=lease)

    # --- what is really there ----------------------------------------------------------------------------------------

    def listing(self, location: str, *, stamped: bool = False) -> dict[str, tuple[Any, ...]]:
        """Key -> (ETag, size), and when it was written where asked, of everything under a location."""
        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        found: dict[str, tuple[Any, ...]] = {}
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for each in page.get("Contents", ()):
                stamp = (each["LastModified"],) if stamped else ()
                found[each["Key"]] = (each["ETag"], each["Size"], *stamp)
        return found

    def rows(self, location: str) -> Counter[int]:
        """Every value of n in every file under the location, with how often it is there."""
        counted: Counter[int] = Counter()
        for key in self.listing(location):
            body = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            if key.endswith(".gz"):
                counted.update(json.loads(line)["n"] for line in gzip.decompress(body).splitlines())
            else:
                counted.update(pq.read_table(io.BytesIO(body))["n"].to_pylist())
        return counted

    def read(self, key: str) -> bytes:
        body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return body

    def queries(self, location: str) -> list[QueryRecord]:
        """Athena's history of the statements that name this slot, oldest first."""
        slot = parse_location(location)
        staging = keys.slot_prefix(slot)
        return [each for each in self.aws.queries() if staging in each.sql or f"'{slot}" in each.sql]

    def register(self, location: str) -> Register | None:
        key = keys.register_key(parse_location(location))
        try:
            return decode_register(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        except self.s3.exceptions.NoSuchKey:
            return None

    def state(self, location: str) -> str | None:
        found = self.register(location)
        return None if found is None else str(found.state)

    def staged(self, location: str) -> dict[str, tuple[Any, ...]]:
        prefix = keys.slot_prefix(parse_location(location))
        return self.listing(f"s3://{self.bucket}/{prefix}staging/")

    def readers(self, location: str) -> str:
        """Where the location's readers look: there, or in the directory of pointer mode that is published."""
        register = self.register(location)
        publication = None if register is None else register.publication
        directory = None if publication is None else publication.directory
        return location if directory is None else f"s3://{self.bucket}/{directory}"

    def pointer(self, table: str, *partition: str) -> str:
        """Where Glue sends the readers of a table, or of a partition."""
        names = {"DatabaseName": self.database}
        if partition:
            found: Any = self.glue.get_partition(**names, TableName=table, PartitionValues=list(partition))["Partition"]
        else:
            found = self.glue.get_table(**names, Name=table)["Table"]
        return str(found["StorageDescriptor"]["Location"])

    def prolong(self, location: str, length: int) -> None:
        """Puts the register and the manifests of `length` publications there, after the pattern of the one there is."""
        slot, found = parse_location(location), self.register(location)
        assert found is not None
        assert found.publication is not None
        body = self.s3.get_object(Bucket=self.bucket, Key=found.publication.manifest)["Body"].read()
        first = decode(body, Manifest)
        for fence in range(2, length + 1):
            key = keys.manifest_key(slot, fence, 1)
            publication = replace(first.publication, fence=fence, request=f"request {fence}", manifest=key)
            manifest = replace(first, publication=publication, replaces=found.remembered[:HISTORY])
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=encode(manifest))
            found = replace(found, fence=fence, publication=publication, history=found.remembered[:HISTORY])
        self.s3.put_object(Bucket=self.bucket, Key=keys.register_key(slot), Body=encode(found))

    def assert_published_once(self, location: str, values: range = range(ROWS)) -> None:
        """Every row once for readers, the slot free, nothing left of the publication in staging."""
        read = self.readers(location)
        assert self.rows(read) == Counter(values)
        register = self.register(location)
        assert register is not None
        assert register.state == "free"
        assert register.publication is not None
        manifest = json.loads(self.s3.get_object(Bucket=self.bucket, Key=register.publication.manifest)["Body"].read())
        assert not [key for key in self.staged(location) if key.startswith(manifest["staging"])]
        assert {file["key"] for file in manifest["files"]} == set(self.listing(read))


# --- callers ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ThreadCaller:
    """One caller in a thread: its story, and how it ended."""

    publisher: Publisher
    target: Target
    arguments: dict[str, Any] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    outcome: Published | Reused | Skipped | None = None
    error: BaseException | None = None
    thread: threading.Thread | None = None

    def start(self, barrier: threading.Barrier | None = None) -> ThreadCaller:
        self.thread = threading.Thread(target=self._run, args=(barrier,), daemon=True)
        self.thread.start()
        return self

    def _run(self, barrier: threading.Barrier | None) -> None:
        if barrier is not None:
            barrier.wait()
        try:
            self.outcome = self.publisher.unload(self.target, observe=self.story.append, **self.arguments)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def told(self, event: str) -> bool:
        return any(line.startswith(event) for line in self.story)

    def end(self) -> object:
        """Its outcome or its error, once it has ended."""
        self.join()
        return self.outcome if self.error is None else self.error

    def join(self, timeout: float = 60) -> ThreadCaller:
        assert self.thread is not None
        self.thread.join(timeout)
        assert not self.thread.is_alive(), f"a caller did not end; its story: {self.story}"
        return self
