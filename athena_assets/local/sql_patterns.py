"""Regular expressions that mean the same to Trino (Java's syntax on Joni) and to DuckDB (RE2), or do not pass.

Allowed are literals, escaped signs, `.`, classes, groups, alternatives, greedy and lazy quantifiers, anchors, `(?i)` at
the start. Where the two differ only on some texts, those texts are named by `unlike`, for a guard: `\\d`, `\\w`, `\\s`,
`\\b` and case know ASCII only in RE2, and `$` stands before a last line break in Java's syntax only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from athena_assets.local.athena_errors import not_supported

_ESCAPED_SIGN = r"\\[.\\+*?()\[\]{}|^$/\"'tnr-]"
_TOKEN = re.compile(
    rf"(?P<class>\[\^?(?:[^\[\]\\&^]|{_ESCAPED_SIGN}|\\[dwsDWS])+\])"
    rf"|(?P<shorthand>\\[dwsDWSb])|(?P<sign>{_ESCAPED_SIGN})"
    r"|(?P<quantifier>(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??)"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)|(?P<end>\$)|(?P<other>[^\\*+?{}()|\[\]$])",
    re.DOTALL,
)
_PROBES = ("", "a", " 1a")


@dataclass(slots=True)
class _Group:
    """A pair of parentheses, or the whole pattern."""

    parent: _Group | None
    captures: bool = False
    alternatives: bool = False
    quantified: bool = False

    def takes_part(self) -> bool:
        """Whether every match has a text for it."""
        outer = self.parent
        return outer is None or (not self.quantified and not outer.alternatives and outer.takes_part())


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that may pass. `unlike` is a pattern of the texts on which the engines could differ."""

    text: str
    unlike: str | None
    groups: tuple[bool, ...]

    def matches_nothing(self) -> bool:
        """Whether it could match the empty text: after that, the engines go on differently."""
        compiled = re.compile(self.text)
        return any(not found.group() for probe in _PROBES for found in compiled.finditer(probe))


def read(pattern: str) -> Pattern:
    """`QueryFailed` for a pattern that could mean different things."""
    ignores_case = pattern.startswith("(?i)")
    at = 4 if ignores_case else 0
    whole = current = _Group(None)
    captured: list[_Group] = []
    closed: _Group | None = None
    ascii_only, at_end, quantifiable = ignores_case, False, False
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            raise not_supported(f"the regular expression {pattern!r}, from character {at + 1} on")
        kind, text = str(found.lastgroup), found.group()
        at = found.end()
        if kind == "quantifier":
            if not quantifiable:
                raise not_supported(f"the quantifier {text} in the regular expression {pattern!r}")
            if closed is not None:
                closed.quantified = True
        elif kind == "open":
            current = _Group(current, captures=text == "(")
            if current.captures:
                captured.append(current)
        elif kind == "close":
            if current.parent is None:
                raise not_supported(f"the regular expression {pattern!r}: it closes a group that is not open")
            closed, current = current, current.parent
        elif kind == "or":
            current.alternatives = True
        ascii_only |= kind == "shorthand" or (kind == "class" and re.search(r"\\[dwsDWS]", text) is not None)
        at_end |= kind == "end"
        quantifiable = kind in ("class", "shorthand", "sign", "close") or (kind == "other" and text != "^")
        quantifiable &= text != "\\b"
        if kind != "close":
            closed = None
    if current is not whole:
        raise not_supported(f"the regular expression {pattern!r}: a group is not closed")
    unlike = [r"[^\x00-\x7F]|\x0B"] * ascii_only + [r"\n\z"] * at_end
    return Pattern(pattern, "|".join(unlike) or None, tuple(group.takes_part() for group in captured))
