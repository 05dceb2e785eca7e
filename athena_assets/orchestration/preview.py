"""The first rows of a result, as a table in Markdown."""

import html
import re
from collections.abc import Iterable

from athena_assets.aws.result_files import MOST_COLUMNS, Sample

WIDEST = 80  # characters of one value


def markdown(sample: Sample) -> str | None:
    """None if there is no row to show. What stands in a value is shown as it is, never read as Markdown or HTML."""
    if not sample.rows:
        return None
    names = sample.names[:MOST_COLUMNS]
    left_out = sample.left_out + len(sample.names) - len(names)
    lines = [_line(map(_shown, names)), _line(["---"] * len(names))]
    for row in sample.rows:
        values = [*row, *[None] * len(names)][: len(names)]
        lines.append(_line("*NULL*" if value is None else _shown(value) for value in values))
    if left_out:
        lines += ["", f"{left_out} more columns are not shown."]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: str) -> str:
    short = value if len(value) <= WIDEST else value[: WIDEST - 1] + "…"
    one_line = html.escape(re.sub(r"[\s\x00-\x1f]+", " ", short), quote=False)
    # Backslashes before Markdown's punctuation (CommonMark, "Backslash escapes"); `|` would end the cell.
    return re.sub(r"([\\`*_{}\[\]()#+!|~$:-])", r"\\\1", one_line)
