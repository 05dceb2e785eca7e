"""Reads a statement as far as Athena does when it accepts one: its kind, and the parts of an UNLOAD.

The text itself is never changed: comments may stand anywhere, and `Query` returns exactly what was sent. The inner
SELECT is handed on as it stands between its parentheses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from athena_assets.local.athena_errors import RequestRefused

MAX_STATEMENT_BYTES = 262_144

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<string>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\"|`[^`]*`)"
    r"|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<number>\d+(?:\.\d+)?)|(?P<sign>.)",
    re.DOTALL,
)
_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "TABLE"})
_KNOWN_WORDS = frozenset(
    "CREATE INSERT DROP ALTER SHOW DESCRIBE DESC EXPLAIN MSCK DELETE UPDATE MERGE OPTIMIZE VACUUM PREPARE EXECUTE"
    " DEALLOCATE ANALYZE USE".split()
)


@dataclass(frozen=True, slots=True)
class Select:
    """A plain query."""

    sql: str


@dataclass(frozen=True, slots=True)
class Unload:
    """The parts of an UNLOAD. Property names are lower case; a value is a string, a number or a tuple of strings."""

    select: str
    location: str
    properties: dict[str, str | int | tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A statement that Athena knows and the embedded one does not run."""

    word: str


Statement = Select | Unload | Unsupported


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


def _malformed(sql: str, position: int, found: str, expecting: str) -> NoReturn:
    line = sql.count("\n", 0, position) + 1
    column = position - (sql.rfind("\n", 0, position) + 1) + 1
    raise RequestRefused(f"line {line}:{column}: mismatched input '{found}'. Expecting: {expecting}", "MALFORMED_QUERY")


def _tokens(sql: str) -> list[_Token]:
    tokens: list[_Token] = []
    for match in _TOKEN.finditer(sql):
        kind = str(match.lastgroup)
        if kind == "sign" and match.group() in "'\"`":
            _malformed(sql, match.start(), match.group(), "the end of the quoted text")
        if kind not in ("space", "comment"):
            tokens.append(_Token(kind, match.group(), match.start(), match.end()))
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    return tokens


def read_statement(sql: str) -> Statement:
    """`RequestRefused` for what Athena rejects at the start: no statement, or text that is not SQL."""
    tokens = _tokens(sql)
    if not tokens:
        raise RequestRefused("Query string is empty", "MALFORMED_QUERY")
    first = tokens[0]
    word = first.text.upper()
    if first.kind == "word" and word == "UNLOAD":
        return _Reader(sql, tokens).unload()
    if word in _QUERY_WORDS or first.text == "(":
        return Select(sql[first.start : tokens[-1].end])
    if first.kind == "word" and word in _KNOWN_WORDS:
        return Unsupported(word)
    _malformed(sql, first.start, first.text, "'SELECT', 'UNLOAD', 'WITH', <query>")


class _Reader:
    """One pass over the tokens of an UNLOAD."""

    def __init__(self, sql: str, tokens: list[_Token]) -> None:
        self._sql = sql
        self._tokens = tokens
        self._at = 1

    def unload(self) -> Unload:
        opening = self._take("(")
        depth, begin = 1, opening.end
        while depth:
            token = self._next("')'")
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        select = self._sql[begin : self._tokens[self._at - 1].start]
        self._take("TO")
        location = self._string()
        properties: dict[str, str | int | tuple[str, ...]] = {}
        if self._at < len(self._tokens):
            self._take("WITH")
            self._take("(")
            while True:
                name = self._next("<property>").text.lower()
                self._take("=")
                if name in properties:
                    raise RequestRefused(f"Duplicate property: {name}", "MALFORMED_QUERY")
                properties[name] = self._value()
                separator = self._next("',', ')'")
                if separator.text == ")":
                    break
                if separator.text != ",":
                    _malformed(self._sql, separator.start, separator.text, "',', ')'")
        if self._at < len(self._tokens):
            extra = self._tokens[self._at]
            _malformed(self._sql, extra.start, extra.text, "<EOF>")
        return Unload(select, location, properties)

    def _value(self) -> str | int | tuple[str, ...]:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is not None and token.kind == "number" and token.text.isdigit():
            self._at += 1
            return int(token.text)
        if token is not None and token.text.upper() == "ARRAY":
            self._at += 1
            self._take("[")
            names = [self._string()]
            while self._next("',', ']'").text == ",":
                names.append(self._string())
            return tuple(names)
        return self._string()

    def _next(self, expecting: str) -> _Token:
        if self._at >= len(self._tokens):
            _malformed(self._sql, len(self._sql), "<EOF>", expecting)
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, text: str) -> _Token:
        token = self._next(f"'{text}'")
        if token.text.upper() != text or token.kind not in ("word", "sign"):
            _malformed(self._sql, token.start, token.text, f"'{text}'")
        return token

    def _string(self) -> str:
        token = self._next("<string>")
        if token.kind != "string":
            _malformed(self._sql, token.start, token.text, "<string>")
        return token.text[1:-1].replace("''", "'")
