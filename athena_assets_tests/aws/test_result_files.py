"""Counts and first rows of published files, as S3 gives them."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from athena_assets import AwsSettings, OutputFormat
from athena_assets.aws.result_files import MOST_COLUMNS, READ, WHOLE, ResultFile, Unreadable, count_rows, first_rows
from athena_assets.aws.session import AwsClients
from athena_assets.local import EmbeddedAws

BUCKET = "results"
WIDE = MOST_COLUMNS + 5


@pytest.fixture(scope="module")
def aws() -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start() as aws:
        aws.client("s3").create_bucket(Bucket=BUCKET)
        yield aws


@pytest.fixture(scope="module")
def clients(aws: EmbeddedAws) -> AwsClients:
    return AwsClients(
        AwsSettings(
            endpoint_url=aws.endpoint_url,
            region="us-east-1",
            access_key_id="testing",
            secret_access_key="testing",
        )
    )


@pytest.fixture
def put(aws: EmbeddedAws) -> Callable[[bytes], ResultFile]:
    def put(body: bytes) -> ResultFile:
        aws.client("s3").put_object(Bucket=BUCKET, Key="file", Body=body)
        return ResultFile(BUCKET, "file", len(body))

    return put


def number(row: int, column: int) -> int:
    """Scattered, so that no format packs them."""
    return (row + 1) * (column + 7) * 0x9E3779B97F4A7C15 % 2**61


def table(rows: int, columns: int = 1) -> pa.Table:
    return pa.table({f"c{column}": pa.array([number(row, column) for row in range(rows)]) for column in range(columns)})


def written(format: str, data: pa.Table, **options: Any) -> bytes:  # noqa: A002 - Athena's word
    body = io.BytesIO()
    match format:
        case "PARQUET":
            pyarrow.parquet.write_table(data, body, **options)
        case "ORC":
            pyarrow.orc.write_table(data, body, **options)
        case "AVRO":
            fields = [{"name": name, "type": "long"} for name in data.schema.names]
            fastavro.writer(body, {"type": "record", "name": "row", "fields": fields}, data.to_pylist())
        case "JSON":
            return gzip.compress(b"".join(json.dumps(row).encode() + b"\n" for row in data.to_pylist()))
        case _:
            lines = ("\x01".join(str(value) for value in row.values()) + "\n" for row in data.to_pylist())
            return gzip.compress("".join(lines).encode())
    return body.getvalue()


@pytest.mark.parametrize("form", ["PARQUET", "ORC", "AVRO", "JSON", "TEXTFILE"])
def test_a_file_too_large_for_one_read_is_counted_and_begun(
    clients: AwsClients, put: Callable[[bytes], ResultFile], form: str
) -> None:
    data = table(140_000)
    file = put(written(form, data))
    assert file.size > WHOLE
    output = OutputFormat(form)
    assert count_rows(clients, file, output) == 140_000
    if form == "ORC":
        with pytest.raises(Unreadable, match="read by the stripe"):
            first_rows(clients, file, output, 10)
    else:
        assert first_rows(clients, file, output, 2).rows == ((str(number(0, 0)),), (str(number(1, 0)),))


def test_a_preview_of_a_wide_and_large_file_reads_a_small_part_of_it(
    aws: EmbeddedAws, clients: AwsClients, put: Callable[[bytes], ResultFile]
) -> None:
    file = put(written("PARQUET", table(100_000, WIDE), use_dictionary=False, data_page_size=32_768))
    before = len(aws.requests(operation="GetObject"))
    sample = first_rows(clients, file, OutputFormat("PARQUET"), 10)
    assert len(sample.rows) == 10
    assert (len(sample.names), sample.left_out) == (MOST_COLUMNS, 5)
    assert sample.columns is not None
    assert len(sample.columns) == WIDE
    calls = len(aws.requests(operation="GetObject")) - before
    assert calls * READ < file.size / 4


@pytest.mark.parametrize("form", ["PARQUET", "ORC", "AVRO", "JSON", "TEXTFILE"])
@pytest.mark.parametrize("look", [count_rows, partial(first_rows, count=10)])
def test_a_file_that_is_broken_or_gone_is_named(
    clients: AwsClients, put: Callable[[bytes], ResultFile], form: str, look: Callable[..., object]
) -> None:
    whole = written(form, table(100))
    # The first lines of a file that breaks off later are whole.
    half = [whole[: len(whole) // 2]] if look is count_rows or form not in ("JSON", "TEXTFILE") else []
    for body in (b"nothing of the kind", *half):
        with pytest.raises(Unreadable, match="s3://results/file"):
            look(clients, put(body), OutputFormat(form))
    with pytest.raises(Unreadable, match="s3://results/gone is gone"):
        look(clients, ResultFile(BUCKET, "gone", 100), OutputFormat(form))


def test_null_and_what_only_looks_like_it_are_told_apart(
    clients: AwsClients, put: Callable[[bytes], ResultFile]
) -> None:
    text = put(gzip.compress(b"a\t\\N\tc\n\t\t\n"))
    sample = first_rows(clients, text, OutputFormat("TEXTFILE", field_delimiter="\t"), 10)
    assert sample.rows == (("a", None, "c"), ("", "", ""))
    lines = put(gzip.compress(b'{"a": "\\\\N"}\n{"b": null, "c": [1, {"d": "e"}]}\n'))
    sample = first_rows(clients, lines, OutputFormat("JSON"), 10)
    assert sample.names == ("a", "b", "c")
    assert sample.rows == (("\\N", None, None), (None, None, '[1, {"d": "e"}]'))
