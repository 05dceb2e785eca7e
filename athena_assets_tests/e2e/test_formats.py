"""Every format that Athena writes, published and read back from S3; results laid out in directories."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from typing import Any

import fastavro
import pyarrow.orc
import pyarrow.parquet
import pytest

from athena_assets import OutputFormat, Published, errors
from athena_assets_tests.e2e.lake import ROWS, Lake

FORMATS = {
    "parquet, gzip": OutputFormat("PARQUET"),
    "parquet, snappy": OutputFormat("PARQUET", compression="SNAPPY"),
    "parquet, zstd 19": OutputFormat("PARQUET", compression="ZSTD", compression_level=19),
    "parquet, lz4": OutputFormat("PARQUET", compression="LZ4"),
    "parquet, none": OutputFormat("PARQUET", compression="NONE"),
    "orc, zlib": OutputFormat("ORC"),
    "orc, snappy": OutputFormat("ORC", compression="SNAPPY"),
    "orc, zstd": OutputFormat("ORC", compression="ZSTD"),
    "orc, none": OutputFormat("ORC", compression="NONE"),
    "avro": OutputFormat("AVRO"),
    "json": OutputFormat("JSON"),
    "text": OutputFormat("TEXTFILE"),
    "text, tab": OutputFormat("TEXTFILE", field_delimiter="\t"),
}


def numbers(lake: Lake, location: str, output: OutputFormat) -> Counter[int]:
    """The values of n in a published result of any format, by that format's own reader."""
    found: Counter[int] = Counter()
    for key in lake.listing(location):
        body = lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
        found.update(_read(body, output))
    return found


def _read(body: bytes, output: OutputFormat) -> list[int]:
    values: Any
    match output.format:
        case "PARQUET":
            values = pyarrow.parquet.read_table(io.BytesIO(body))["n"].to_pylist()
        case "ORC":
            values = pyarrow.orc.read_table(io.BytesIO(body))["n"].to_pylist()
        case "AVRO":
            values = [row["n"] for row in fastavro.reader(io.BytesIO(body))]  # type: ignore[index, call-overload]
        case "JSON":
            values = [int(line.split(b":")[1].rstrip(b"}")) for line in gzip.decompress(body).splitlines()]
        case _:
            delimiter = (output.field_delimiter or "\x01").encode()
            rows = [line.split(delimiter) for line in gzip.decompress(body).splitlines()]
            assert all(row[1] == b"x" for row in rows)
            values = [int(row[0]) for row in rows]
    return list(values)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_published_and_replaced(lake: Lake, name: str) -> None:
    output = FORMATS[name]
    query = "SELECT n, 'x' AS x FROM numbers" if output.format == "TEXTFILE" else "SELECT n FROM numbers"
    target, publisher = lake.target(output=output, query=query), lake.publisher()
    assert isinstance(publisher.unload(target), Published)
    assert numbers(lake, target.location, output) == Counter(range(ROWS))
    outcome = publisher.unload(target, force=True)
    assert isinstance(outcome, Published)
    assert numbers(lake, target.location, output) == Counter(range(ROWS))

    assert publisher.count_rows(target, publisher.read_manifest(target)) == ROWS
    sample = publisher.sample(target, outcome, rows=3)
    assert sample is not None
    text = output.format == "TEXTFILE"
    first = int(str(sample.rows[0][0]))
    assert sample.rows == tuple((str(n), "x") if text else (str(n),) for n in range(first, first + 3))
    assert sample.names == (("column 1", "column 2") if text else ("n",))
    told = output.format in ("PARQUET", "ORC")
    assert (sample.columns is not None) == told
    assert not told or [(each.name, each.type) for each in sample.columns or ()] == [("n", "bigint")]


def test_a_result_laid_out_in_directories_is_replaced_whole(lake: Lake) -> None:
    output = OutputFormat("PARQUET", partitioned_by=("half", "digit"))
    query = "SELECT n, n / 500 AS half, n % 3 AS digit FROM numbers"
    target, publisher = lake.target(output=output, query=query), lake.publisher()
    publisher.unload(target)
    layout = {key.removeprefix(f"published/{target.name}/").rsplit("/", 1)[0] for key in lake.listing(target.location)}
    assert layout == {f"half={half}/digit={digit}" for half in (0, 1) for digit in (0, 1, 2)}
    lake.assert_published_once(target.location)
    old = set(lake.listing(target.location))
    publisher.unload(target, force=True)
    assert not old & set(lake.listing(target.location))
    lake.assert_published_once(target.location)


def test_more_than_100_partitions_are_refused_and_the_old_result_stays(lake: Lake) -> None:
    publisher = lake.publisher()
    first = lake.target()
    publisher.unload(first)
    output = OutputFormat("PARQUET", partitioned_by=("part",))
    many = lake.target(first.name, output=output, query="SELECT n, n % 101 AS part FROM numbers")
    with pytest.raises(errors.TooManyPartitions, match=r"at most 100 partitions.*\$\{partition\}"):
        publisher.unload(many)
    assert len(lake.queries(first.location)) == 2
    lake.assert_published_once(first.location)
    publisher.unload(lake.target(first.name, output=output, query="SELECT n, n % 100 AS part FROM numbers"))
    lake.assert_published_once(first.location)


def test_objects_that_a_requeued_query_left_behind_are_not_published(lake: Lake) -> None:
    target = lake.target()
    lake.aws.faults.requeue(sql_contains=target.name, after_files=2)
    assert isinstance(lake.publisher().unload(target), Published)
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)
