"""The protective rules of the protocol, each with the edit of the source that removes it: the files in `mutations/`.

A file says which rule it removes, in which scenario the explorer then finds what, and for each place the lines of
`athena_assets/core` that occur there exactly once and those that stand there without the rule. Nothing in the product
knows of this: the edits are made in a copy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_EDIT = re.compile(r"^--- (\w+\.py)\n(.*?)^--- becomes\n(.*?)^--- end$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A rule removed. Any of `invariants` is what it violates."""

    rule: str
    scenario: str
    invariants: frozenset[str]
    edits: tuple[tuple[str, str, str], ...]


class DoesNotApply(Exception):
    """The lines that an edit replaces are not there, or not only once: the gate has to be mended with the source."""


def read(text: str) -> Mutation:
    head, _, edits = text.partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    found = tuple((match[1], match[2], match[3]) for match in _EDIT.finditer(edits))
    return Mutation(fields["rule"], fields["scenario"], frozenset(fields["violates"].split()), found)


def apply(mutation: Mutation, core: Path) -> None:
    """Makes the edits below the directory of a copied `core`."""
    if not mutation.edits:
        raise DoesNotApply(f"{mutation.rule}: no edit")
    for file, old, new in mutation.edits:
        text = (core / file).read_text()
        if text.count(old) != 1:
            raise DoesNotApply(f"{mutation.rule}: {file} holds {text.count(old)} times\n{old}")
        (core / file).write_text(text.replace(old, new))


MUTATIONS = tuple(read(path.read_text()) for path in sorted((Path(__file__).parent / "mutations").glob("*.txt")))
