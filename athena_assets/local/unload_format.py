"""What an UNLOAD's properties ask for, checked as Athena checks them."""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets.local.athena_errors import QueryFailed, not_supported
from athena_assets.local.statements import Unload

DEFAULT_DELIMITER = "\x01"
_KNOWN = frozenset({"format", "compression", "compression_level", "field_delimiter", "partitioned_by"})
# The first is the default. None: the property itself is refused, and nothing is compressed by it.
_COMPRESSIONS: dict[str, tuple[str, ...]] = {
    "PARQUET": ("GZIP", "SNAPPY", "ZSTD", "LZ4", "LZO", "NONE"),
    "ORC": ("ZLIB", "SNAPPY", "ZSTD", "LZ4", "NONE"),
    "JSON": ("GZIP",),
    "TEXTFILE": ("GZIP",),
    "AVRO": (),
}
_GZIP_FILES = frozenset({"JSON", "TEXTFILE"})
_DEFAULT_LEVEL, _HIGHEST_LEVEL = 3, 22


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The files to write. `level` is for ZSTD in Parquet, `delimiter` for TEXTFILE."""

    name: str
    compression: str
    level: int | None = None
    delimiter: str = DEFAULT_DELIMITER
    partitioned_by: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        """Athena's text formats end in `.gz`; its other files have no ending."""
        return ".gz" if self.name in _GZIP_FILES else ""


def read_format(unload: Unload) -> FileFormat:
    """`QueryFailed` for properties that Athena does not know, that clash, or that cannot be honoured here."""
    properties = unload.properties
    unknown = sorted(set(properties) - _KNOWN)
    if unknown:
        raise QueryFailed(
            f"SYNTAX_ERROR: line 1:1: Catalog 'awsdatacatalog' table property '{unknown[0]}' does not exist"
        )
    name = _text(properties.get("format"), "format").upper()
    if name not in _COMPRESSIONS:
        raise QueryFailed(
            f"INVALID_TABLE_PROPERTY: UNLOAD needs a format: {', '.join(_COMPRESSIONS)}; not {name or 'nothing'}"
        )
    compression = _compression(name, properties)
    return FileFormat(
        name, compression, _level(name, compression, properties), _delimiter(name, properties), _columns(properties)
    )


def _invalid(message: str) -> QueryFailed:
    return QueryFailed(f"INVALID_TABLE_PROPERTY: {message}")


def _text(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _invalid(f"{name} is a string, not {value!r}")
    return value


def _compression(name: str, properties: dict[str, str | int | tuple[str, ...]]) -> str:
    allowed = _COMPRESSIONS[name]
    if "compression" not in properties:
        return allowed[0] if allowed else "NONE"
    asked = _text(properties["compression"], "compression").upper()
    if not allowed:
        raise _invalid(f"compression cannot be chosen for {name}")
    if len(allowed) == 1 and asked != allowed[0]:
        raise _invalid(f"{name} is always compressed with {allowed[0]}, not {asked}")
    if asked not in allowed:
        raise _invalid(f"{name} is compressed with one of {', '.join(allowed)}; not {asked}")
    if asked == "LZO":
        raise not_supported("UNLOAD to PARQUET with compression = 'LZO' (there is no LZO encoder here)")
    return asked


def _level(name: str, compression: str, properties: dict[str, str | int | tuple[str, ...]]) -> int | None:
    asked = properties.get("compression_level")
    if asked is None:
        return _DEFAULT_LEVEL if (name, compression) == ("PARQUET", "ZSTD") else None
    if name == "ORC":
        raise _invalid("compression_level cannot be chosen for ORC")
    if compression != "ZSTD" or not isinstance(asked, int) or not 1 <= asked <= _HIGHEST_LEVEL:
        raise _invalid(f"compression_level is a number from 1 to {_HIGHEST_LEVEL}, with compression = 'ZSTD' only")
    return asked


def _delimiter(name: str, properties: dict[str, str | int | tuple[str, ...]]) -> str:
    if "field_delimiter" not in properties:
        return DEFAULT_DELIMITER
    asked = _text(properties["field_delimiter"], "field_delimiter")
    if name != "TEXTFILE":
        raise _invalid(f"field_delimiter is for TEXTFILE only, not for {name}")
    asked = {"\\t": "\t", "\\001": DEFAULT_DELIMITER}.get(asked, asked)
    if len(asked) != 1 or not asked.isascii() or asked in "\n\r\\":
        raise _invalid(f"field_delimiter is one single-byte character, not {asked!r}")
    return asked


def _columns(properties: dict[str, str | int | tuple[str, ...]]) -> tuple[str, ...]:
    asked = properties.get("partitioned_by", ())
    if not isinstance(asked, tuple):
        raise _invalid(f"partitioned_by is an ARRAY of column names, not {asked!r}")
    columns = tuple(name.lower() for name in asked)
    for name in columns:
        if columns.count(name) > 1:
            raise _invalid(f"partitioned_by names '{name}' twice")
    return columns
