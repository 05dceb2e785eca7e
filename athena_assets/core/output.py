"""The output format of an UNLOAD and the properties that Athena allows with it.

Source: Athena user guide, "UNLOAD" (properties) and "Compression support" (formats and levels).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_COLUMN = re.compile(r"[a-z_][a-z0-9_]*")
_COMPRESSIONS: dict[str, tuple[str, ...]] = {
    "PARQUET": ("GZIP", "SNAPPY", "ZSTD", "LZ4", "LZO", "NONE"),
    "ORC": ("ZLIB", "SNAPPY", "ZSTD", "LZ4", "NONE"),
    "JSON": ("GZIP",),
    "TEXTFILE": ("GZIP",),
    "AVRO": (),
}


class InvalidOutput(ValueError):
    """Why the output properties are refused: `field`, `problem`, `next_step`."""

    def __init__(self, field: str, problem: str, next_step: str) -> None:
        super().__init__(f"{field}: {problem} {next_step}")
        self.field = field
        self.problem = problem
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """What UNLOAD writes.

    Args:
        format: PARQUET, ORC, AVRO, JSON or TEXTFILE (case does not matter).
        compression: None means Athena's default (PARQUET: GZIP, ORC: ZLIB, JSON and TEXTFILE: always GZIP).
        compression_level: 1-22, only with ZSTD and not for ORC.
        field_delimiter: one character, only for TEXTFILE; None means Athena's default, `\\001`.
        partitioned_by: columns by whose values the files are laid out in directories (`a=1/b=x/`), at most 100 of
            them. They come last in the SELECT, in this order.

    Raises:
        InvalidOutput: for a combination that Athena would reject.
    """

    format: str = "PARQUET"
    compression: str | None = None
    compression_level: int | None = None
    field_delimiter: str | None = None
    partitioned_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", self.format.upper())
        if self.format not in _COMPRESSIONS:
            raise InvalidOutput("format", f"{self.format!r} is unknown.", f"Use one of {', '.join(_COMPRESSIONS)}.")
        if self.compression is not None:
            object.__setattr__(self, "compression", self.compression.upper())
            allowed = _COMPRESSIONS[self.format]
            if self.compression not in allowed:
                raise InvalidOutput(
                    "compression",
                    f"{self.compression!r} is not available for {self.format}.",
                    f"Use one of {', '.join(allowed)}." if allowed else "Leave it out.",
                )
        if self.compression_level is not None:
            if self.compression != "ZSTD" or self.format == "ORC":
                raise InvalidOutput(
                    "compression_level", "it is only available with ZSTD, and not for ORC.", "Leave it out or use ZSTD."
                )
            if not 1 <= self.compression_level <= 22:
                raise InvalidOutput("compression_level", f"{self.compression_level} is out of range.", "Use 1 to 22.")
        if self.field_delimiter is not None:
            if self.format != "TEXTFILE":
                raise InvalidOutput("field_delimiter", "it is only available for TEXTFILE.", "Leave it out.")
            if len(self.field_delimiter) != 1 or self.field_delimiter == "\0" or not self.field_delimiter.isascii():
                raise InvalidOutput("field_delimiter", "it must be one ASCII character.", "Give exactly one, not NUL.")

        object.__setattr__(self, "partitioned_by", tuple(self.partitioned_by))
        for column in self.partitioned_by:
            if not _COLUMN.fullmatch(column):
                raise InvalidOutput("partitioned_by", f"{column!r} is not a column's name.", "Use lower-case names.")
        if len(set(self.partitioned_by)) < len(self.partitioned_by):
            raise InvalidOutput("partitioned_by", "it names a column twice.", "Name each once.")

    def properties(self) -> tuple[tuple[str, str | int | tuple[str, ...]], ...]:
        """The UNLOAD properties in a fixed order; what is left to Athena's default is left out."""
        named = (
            ("format", self.format),
            ("compression", self.compression if self.format in ("PARQUET", "ORC") else None),
            ("compression_level", self.compression_level),
            ("field_delimiter", self.field_delimiter),
            ("partitioned_by", self.partitioned_by or None),
        )
        return tuple((name, value) for name, value in named if value is not None)
