"""What the footer of a Parquet file tells. Without pyarrow nothing is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from athena_assets.aws.replies import Refusal, question
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import Unanswered

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    pa = None

_TAIL = 64 * 1024  # bytes read at first; a longer footer takes a second read
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result; `type` is the name that Athena's DDL gives it."""

    name: str
    type: str


def available() -> bool:
    """Whether pyarrow is installed."""
    return pa is not None


def sample_columns(clients: AwsClients, bucket: str, key: str) -> tuple[Column, ...] | None:
    """The columns of one Parquet file."""
    metadata = read_metadata(clients, bucket, key)
    return None if metadata is None else columns_of(metadata.schema.to_arrow_schema())


def columns_of(schema: Any) -> tuple[Column, ...]:
    """The columns of an Arrow schema."""
    return tuple(Column(field.name, hive_type(field.type)) for field in schema)


def read_metadata(clients: AwsClients, bucket: str, key: str) -> Any:
    """The footer of a Parquet file, as pyarrow's FileMetaData; None if there is no such file, or no pyarrow."""
    footer = None if pa is None else _footer(clients, bucket, key)
    return None if footer is None else pq.read_metadata(pa.BufferReader(_MAGIC + footer))


def _footer(clients: AwsClients, bucket: str, key: str) -> bytes | None:
    tail = _read(clients, bucket, key, last=_TAIL)
    if tail is None or not tail.endswith(_MAGIC):
        return None
    # Parquet format: footer, its length in 4 bytes little-endian, magic.
    needed = int.from_bytes(tail[-8:-4], "little") + 8
    return tail if needed <= len(tail) else _read(clients, bucket, key, last=needed)


def _read(clients: AwsClients, bucket: str, key: str, last: int | None = None) -> bytes | None:
    def get_object(**arguments: Any) -> bytes:
        body: bytes = clients.s3.get_object(**arguments)["Body"].read()
        return body

    answer = question(
        f"s3://{bucket}/{key}",
        get_object,
        {
            "Bucket": bucket,
            "Key": key,
            "Range": None if last is None else f"bytes=-{last}",
            "ExpectedBucketOwner": clients.settings.expected_bucket_owner,
        },
    )
    return None if isinstance(answer, Refusal | Unanswered) else answer


_SIMPLE = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
}


def hive_type(arrow_type: Any) -> str:
    """The Hive name of an Arrow type; Arrow's own name for what Hive has no name for."""
    types = pa.types
    if types.is_timestamp(arrow_type):
        return "timestamp"
    if types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if types.is_list(arrow_type):
        return f"array<{hive_type(arrow_type.value_type)}>"
    if types.is_map(arrow_type):
        return f"map<{hive_type(arrow_type.key_type)},{hive_type(arrow_type.item_type)}>"
    if types.is_struct(arrow_type):
        return "struct<" + ",".join(f"{each.name}:{hive_type(each.type)}" for each in arrow_type) + ">"
    return _SIMPLE.get(str(arrow_type), str(arrow_type))
