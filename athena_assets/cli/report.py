"""What results and errors look like, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from athena_assets.core.effects import ListedObject
from athena_assets.core.register import Publication
from athena_assets.core.request import Published, Reused, Skipped
from athena_assets.errors import AthenaAssetsError, ForeignQueryRunning, QueryFailed, SlotBusy

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def error_document(error: BaseException) -> dict[str, Any]:
    """`kind` and `message` always; the parts of one of our errors too."""
    document: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, AthenaAssetsError):
        document |= {
            "subject": error.subject,
            "what": error.what,
            "not_done": error.not_done,
            "next_step": error.next_step,
        }
    if isinstance(error, QueryFailed | SlotBusy | ForeignQueryRunning):
        document["query_id"] = error.query_id
    if isinstance(error, SlotBusy):
        document["owner"] = error.owner
    if isinstance(error, ForeignQueryRunning):
        document["workgroup"] = error.workgroup
    return document


def outcome_document(outcome: Published | Reused | Skipped) -> dict[str, Any]:
    document = asdict(outcome)
    return {"outcome": type(outcome).__name__.lower(), **document}


def outcome_line(label: str, outcome: Published | Reused | Skipped) -> str:
    """The one line that says what became of a request."""
    if isinstance(outcome, Skipped):
        return f"skipped    {label}: held by {outcome.owner}"
    word, notes = "published", []
    if isinstance(outcome, Reused):
        word = "joined" if outcome.joined else "reused"
        notes.append(f"of request {outcome.publication.request}")
    elif outcome.adopted:
        notes.append("begun by an earlier owner")
    if outcome.superseded:
        notes.append("since superseded")
    return f"{word:<9}  {label}: {publication_text(outcome.publication)}{''.join(f', {note}' for note in notes)}"


def publication_text(publication: Publication) -> str:
    rows = "" if publication.rows is None else f"{publication.rows:,} rows, "
    return (
        f"{rows}{plural(publication.files, 'file')}, {size_text(publication.bytes)}, query {publication.query_id}, "
        f"fence {publication.fence}"
    )


def objects_document(objects: Sequence[ListedObject]) -> list[dict[str, Any]]:
    return [asdict(each) for each in objects]


def object_lines(bucket: str, objects: Sequence[ListedObject]) -> list[str]:
    return [f"  {size_text(each.size):>9}  s3://{bucket}/{each.key}" for each in objects]


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size_text(count: float) -> str:
    """A number of bytes, in decimal units."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:,.0f} {_UNITS[unit]}" if unit == 0 else f"{count:,.1f} {_UNITS[unit]}"


def age_text(seconds: float) -> str:
    """About how long that is."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they must be."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]


def outline(value: Any, indent: str = "") -> list[str]:
    """A JSON value as indented lines: what is empty on one line, a text of several lines as it is."""
    if not isinstance(value, dict | list):
        return [indent + _scalar(value)]
    named = value.items() if isinstance(value, dict) else [(f"[{index}]", each) for index, each in enumerate(value)]
    lines: list[str] = []
    for name, each in named:
        if isinstance(each, dict | list) and each:
            lines += [f"{indent}{name}:", *outline(each, indent + "  ")]
        elif isinstance(each, str) and "\n" in each:
            lines += [f"{indent}{name}:", *(f"{indent}  | {line}" for line in each.splitlines())]
        else:
            lines.append(f"{indent}{name}: {_scalar(each)}")
    return lines


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
