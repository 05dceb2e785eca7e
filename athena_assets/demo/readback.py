"""What really lies at a location: every object is read, every row counted, and nothing is taken out twice."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The rows that a reader of the location sees.

    `objects` are ETags by key. `fewest` and `most` say how often a row stands there. `missing` rows of the upstream
    table are not there, `foreign` ones are there and not in the upstream table; both are counted once each.
    """

    objects: dict[str, str]
    rows: int
    distinct: int
    fewest: int
    most: int
    missing: int
    foreign: int

    @property
    def copies(self) -> str:
        """How often each row is there: one number if it is the same for all of them."""
        return str(self.most) if self.fewest == self.most else f"{self.fewest} to {self.most}"


def read_back(s3: S3Client, bucket: str, prefix: str, upstream: str) -> ReadBack:
    """Reads all Parquet files under `prefix`, and compares with those under `upstream` in the columns of both."""
    objects, table = _read(s3, bucket, prefix)
    _, source = _read(s3, bucket, upstream)
    if table is None:
        return ReadBack(objects, 0, 0, 0, 0, 0 if source is None else _groups(source).num_rows, 0)
    counts = _groups(table)["count_all"]
    missing, foreign = _difference(source, table)
    return ReadBack(
        objects,
        rows=table.num_rows,
        distinct=len(counts),
        fewest=pc.min(counts).as_py() or 0,
        most=pc.max(counts).as_py() or 0,
        missing=missing,
        foreign=foreign,
    )


def _read(s3: S3Client, bucket: str, prefix: str) -> tuple[dict[str, str], Any]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    objects = {found["Key"]: found["ETag"] for page in pages for found in page.get("Contents", [])}
    bodies = (s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in objects)
    tables = [pq.read_table(io.BytesIO(body)).replace_schema_metadata(None) for body in bodies]
    return objects, pa.concat_tables(tables) if tables else None


def _groups(table: Any) -> Any:
    return table.group_by(table.column_names).aggregate([([], "count_all")])


def _difference(source: Any, table: Any) -> tuple[int, int]:
    """Rows of `source` only, and of `table` only. Grouping takes two nulls for equal, which a join does not."""
    columns = [name for name in source.column_names if name in table.column_names]
    there = table.select(columns)
    both = pa.concat_tables([_marked(source.select(columns).cast(there.schema), 0), _marked(there, 1)])
    sides = both.group_by(columns).aggregate([("side", "min"), ("side", "max")])
    missing = pc.sum(pc.equal(sides["side_max"], 0)).as_py()
    foreign = pc.sum(pc.equal(sides["side_min"], 1)).as_py()
    return missing or 0, foreign or 0


def _marked(table: Any, side: int) -> Any:
    return table.append_column("side", pa.array([side] * table.num_rows, pa.int8()))
