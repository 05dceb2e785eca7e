"""What stands in a file of a published result: how many rows, and the first of them.

Parquet and ORC are read by pyarrow, AVRO by fastavro (`pip install athena_assets[schema]`), JSON and TEXTFILE, which
Athena always compresses with GZIP, by the standard library.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from athena_assets.aws import parquet
from athena_assets.aws.parquet import Column, columns_of
from athena_assets.aws.replies import Refusal, question
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import Unanswered
from athena_assets.core.output import OutputFormat

try:
    import pyarrow.orc as po
    import pyarrow.parquet as pq
except ImportError:
    po = None

try:
    import fastavro
except ImportError:
    fastavro = None  # type: ignore[assignment]

WHOLE = 1 << 20  # bytes: a file up to this is read in one call
MOST_COLUMNS = 20  # of a Parquet file whose first rows are read: each takes a call of its own
READ = 1 << 16  # bytes of one ranged read
_DELIMITER = "\x01"  # Athena's default for TEXTFILE
_NULL = r"\N"  # how TEXTFILE writes it
# Arrow's own errors derive from these too.
_BROKEN = (ValueError, OSError, EOFError, zlib.error, KeyError, IndexError, NotImplementedError)


class Unreadable(Exception):
    """A file can't be looked into; the text says why. Its publication is as good as before."""


@dataclass(frozen=True, slots=True)
class ResultFile:
    """One published file; `size` in bytes."""

    bucket: str
    key: str
    size: int

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class Sample:
    """The first rows of a result.

    Args:
        columns: names and Hive types of all its columns; None where the format does not tell the types.
        names: of the values in `rows`.
        rows: values as text; None for NULL.
        left_out: columns whose values were not read.
    """

    columns: tuple[Column, ...] | None
    names: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    left_out: int = 0


def count_rows(clients: AwsClients, file: ResultFile, output: OutputFormat) -> int:
    """How many rows a reader of the file gets.

    The footers of Parquet and ORC tell it, in one or a few calls. A file of another format is read as a whole.

    Raises:
        Unreadable, AccessDenied.
    """
    with _reading(file):
        match output.format:
            case "PARQUET":
                _need(parquet.available(), "pyarrow")
                metadata = parquet.read_metadata(clients, file.bucket, file.key)
                if metadata is None:
                    raise Unreadable(f"{file.uri} is gone, is no Parquet file, or was not answered")
                return int(metadata.num_rows)
            case "ORC":
                _need(po is not None, "pyarrow")
                return int(po.ORCFile(_open(clients, file)).nrows)
            case "AVRO":
                _need(fastavro is not None, "fastavro")
                return sum(block.num_records for block in fastavro.block_reader(_open(clients, file)))
            case _:
                return sum(1 for _ in _lines(clients, file))


def first_rows(clients: AwsClients, file: ResultFile, output: OutputFormat, count: int) -> Sample:
    """The first rows of a file, at most `count`.

    Raises:
        Unreadable: also for a format that tells nothing without being read as a whole: ORC over `WHOLE` bytes.
        AccessDenied.
    """
    with _reading(file):
        match output.format:
            case "PARQUET":
                _need(parquet.available(), "pyarrow")
                return _of_parquet(pq.ParquetFile(_open(clients, file), buffer_size=READ, pre_buffer=False), count)
            case "ORC":
                _need(po is not None, "pyarrow")
                if file.size > WHOLE:
                    raise Unreadable(f"{file.uri} has {file.size} bytes, and ORC is read by the stripe")
                table = po.ORCFile(_open(clients, file)).read()
                return _of_arrow(columns_of(table.schema), table.slice(0, count))
            case "AVRO":
                _need(fastavro is not None, "fastavro")
                records: Any = itertools.islice(fastavro.reader(_open(clients, file)), count)
                return _of_records(list(records))
            case "JSON":
                return _of_records([json.loads(line) for line in itertools.islice(_lines(clients, file), count)])
            case _:
                delimiter = output.field_delimiter or _DELIMITER
                lines = [line.decode(errors="replace") for line in itertools.islice(_lines(clients, file), count)]
                rows = tuple(tuple(None if each == _NULL else each for each in line.split(delimiter)) for line in lines)
                names = tuple(f"column {index + 1}" for index in range(max(map(len, rows), default=0)))
                return Sample(None, names, rows)


def _of_parquet(opened: Any, count: int) -> Sample:
    columns = columns_of(opened.schema_arrow)
    names = [each.name for each in columns][:MOST_COLUMNS]
    if not count or not opened.metadata.num_rows:
        return Sample(columns, (), ())
    batch = next(opened.iter_batches(batch_size=count, columns=names))
    return _of_arrow(columns, batch)


def _of_arrow(columns: tuple[Column, ...], table: Any) -> Sample:
    names = tuple(table.schema.names)
    rows = tuple(tuple(_text(value) for value in row.values()) for row in table.to_pylist())
    return Sample(columns, names, rows, left_out=len(columns) - len(names))


def _of_records(records: list[dict[str, Any]]) -> Sample:
    """A record of JSON leaves out what is NULL, so that the names are those of all of them."""
    names = tuple(dict.fromkeys(name for record in records for name in record))
    return Sample(None, names, tuple(tuple(_text(record.get(name)) for name in names) for record in records))


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict | list):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def _lines(clients: AwsClients, file: ResultFile) -> Iterator[bytes]:
    with gzip.open(_open(clients, file)) as lines:
        for line in lines:
            yield line.rstrip(b"\n")


def _need(there: bool, package: str) -> None:
    if not there:
        raise Unreadable(f"{package} is not installed: pip install 'athena_assets[schema]'")


@contextmanager
def _reading(file: ResultFile) -> Iterator[None]:
    """What a reader of a format says of a file that it can't read becomes Unreadable."""
    try:
        yield
    except _BROKEN as error:
        raise Unreadable(f"{file.uri}: {type(error).__name__}: {error}") from error


def _open(clients: AwsClients, file: ResultFile) -> BinaryIO:
    ranges = _Ranges(clients, file)
    return io.BytesIO(ranges.fetch(0, file.size)) if file.size <= WHOLE else io.BufferedReader(ranges, READ)


class _Ranges(io.RawIOBase):
    """An S3 object as a file that can be searched; each read is one GetObject with a range."""

    def __init__(self, clients: AwsClients, file: ResultFile) -> None:
        self._clients = clients
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self.fetch(self._at, min(self._at + len(buffer), self._file.size))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def fetch(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""

        def get_object(**arguments: Any) -> bytes:
            body: bytes = self._clients.s3.get_object(**arguments)["Body"].read()
            return body

        answer = question(
            self._file.uri,
            get_object,
            {
                "Bucket": self._file.bucket,
                "Key": self._file.key,
                "Range": f"bytes={start}-{end - 1}",
                "ExpectedBucketOwner": self._clients.settings.expected_bucket_owner,
            },
        )
        if isinstance(answer, Refusal):
            raise Unreadable(f"{self._file.uri} is gone ({answer.code})")
        if isinstance(answer, Unanswered):
            raise Unreadable(f"{self._file.uri}: {answer.reason}")
        return answer
