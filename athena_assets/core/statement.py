"""The text of the UNLOAD statement: rendered and read here and nowhere else. The inner SELECT is never rewritten."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from athena_assets.core.location import Location
from athena_assets.core.output import OutputFormat

MAX_STATEMENT_BYTES = 262_144  # UTF-8; Athena API reference, StartQueryExecution, QueryString

_LABEL = "-- athena_assets "
_TO = "\n)\nTO "
_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_STRING = re.compile(r"'(?:[^']|'')*'")
_QUERY_KEYWORDS = ("SELECT", "WITH", "VALUES", "TABLE")

# The regions of SQL text in which a quote, a semicolon or a placeholder means something else. A doubled quote inside a
# string reads as two adjacent strings, which is all that the scan needs. An unterminated region runs to the end.
_REGION = re.compile(
    r"""(?P<string>'[^']*(?:'|\Z)) | (?P<identifier>"[^"]*(?:"|\Z)) |
        (?P<line_comment>--[^\r\n]*) | (?P<block_comment>/\*.*?(?:\*/|\Z))""",
    re.VERBOSE | re.DOTALL,
)


class InvalidStatement(ValueError):
    """Why a query text is refused: `problem`, `next_step`."""

    def __init__(self, problem: str, next_step: str) -> None:
        super().__init__(f"{problem} {next_step}")
        self.problem = problem
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class Label:
    """What the leading comment of a query says about its origin. It holds no secrets."""

    slot: str
    fence: int
    attempt: int


def _regions(sql: str) -> Iterator[tuple[str, int, int]]:
    """Yields (kind, start, end) for the whole text; kind is `code` between the quoted and commented regions."""
    position = 0
    for match in _REGION.finditer(sql):
        if match.start() > position:
            yield "code", position, match.start()
        yield str(match.lastgroup), match.start(), match.end()
        position = match.end()
    if position < len(sql):
        yield "code", position, len(sql)


def check_query(sql: str) -> str:
    """Returns the one query in `sql`, without the semicolon that may end it.

    Raises:
        InvalidStatement: if it is empty, holds several statements, is no query, or leaves a quote or comment open.
    """
    encoded(sql)
    semicolon: int | None = None
    first_word = ""
    for kind, start, end in _regions(sql):
        text = sql[start:end]
        if kind in ("string", "identifier") and (len(text) < 2 or text[-1] != text[0]):
            raise InvalidStatement(f"the quote opened at character {start + 1} is never closed.", "Close it.")
        if kind == "block_comment" and (len(text) < 4 or not text.endswith("*/")):
            raise InvalidStatement(f"the comment opened at character {start + 1} is never closed.", "Close it.")
        if kind.endswith("comment"):
            continue
        if semicolon is not None and text.strip():
            raise InvalidStatement("it holds several statements.", "Give each statement a target of its own.")
        if kind == "code":
            if semicolon is None and ";" in text:
                semicolon = start + text.index(";")
                if text[text.index(";") + 1 :].strip():
                    raise InvalidStatement("it holds several statements.", "Give each statement a target of its own.")
                text = sql[start:semicolon]
            first_word = first_word or text.strip(" \t\r\n(")
        else:
            first_word = first_word or text
    if not first_word:
        raise InvalidStatement("it is empty.", "Write the SELECT whose result is to be published.")
    keyword = re.split(r"\W", first_word, maxsplit=1)[0].upper()
    if keyword not in _QUERY_KEYWORDS:
        hint = " The UNLOAD around it is added for you." if keyword == "UNLOAD" else ""
        raise InvalidStatement(
            f"it begins with {first_word[:20]!r}, which is not a query.", f"Begin with SELECT or WITH.{hint}"
        )
    return sql if semicolon is None else sql[:semicolon] + sql[semicolon + 1 :]


def query_placeholders(sql: str) -> frozenset[str]:
    """The names of the placeholders in `sql`.

    Raises:
        InvalidStatement: for a placeholder inside quotes or a comment, where a literal can't stand, or a malformed one.
    """
    names = set()
    for kind, start, end in _regions(sql):
        for match in _PLACEHOLDER.finditer(sql, start, end):
            if kind != "code":
                where = "quotes" if kind in ("string", "identifier") else "a comment"
                raise InvalidStatement(
                    f"the placeholder {match.group()} stands inside {where}.",
                    "It renders a whole, quoted literal: write it bare.",
                )
            names.add(_checked_name(match))
        if kind == "code":
            _check_closed(sql[start:end])
    return frozenset(names)


def location_placeholders(template: str) -> frozenset[str]:
    """The names of the placeholders in a location template. Raises InvalidStatement for a malformed one."""
    _check_closed(template)
    return frozenset(_checked_name(match) for match in _PLACEHOLDER.finditer(template))


def _check_closed(text: str) -> None:
    rest = _PLACEHOLDER.sub("", text)
    if "${" in rest:
        raise InvalidStatement(f"the placeholder {rest[rest.index('${') :][:20]!r} is not closed.", "Write ${name}.")


def _checked_name(match: re.Match[str]) -> str:
    if not _NAME.fullmatch(match.group(1)):
        raise InvalidStatement(f"{match.group()} is not a placeholder.", "Write ${name} with letters, digits and _.")
    return match.group(1)


def quoted_literal(value: str) -> str:
    """A Trino string literal. Between single quotes only the quote itself is special (Trino reference, "Literals")."""
    if "\0" in value:
        raise InvalidStatement("a value holds a NUL character.", "Remove it.")
    encoded(value)
    return "'" + value.replace("'", "''") + "'"


def render_query(sql: str, values: Mapping[str, str]) -> str:
    """Puts each value in as a quoted literal. `sql` has passed `check_query` and `query_placeholders`."""
    return "".join(
        _PLACEHOLDER.sub(lambda match: quoted_literal(values[match.group(1)]), sql[start:end])
        if kind == "code"
        else sql[start:end]
        for kind, start, end in _regions(sql)
    )


def render_location(template: str, values: Mapping[str, str]) -> str:
    """Puts each value in as part of one path segment.

    Raises:
        InvalidStatement: for a value that is empty or would not stay inside its segment.
    """

    def segment(match: re.Match[str]) -> str:
        value = values[match.group(1)]
        if not value or "/" in value or value in (".", ".."):
            raise InvalidStatement(
                f"{match.group()} is {value!r}, which is not one path segment.",
                "Use a key without / that is not empty.",
            )
        return value

    return _PLACEHOLDER.sub(segment, template)


def render_unload(query: str, destination: Location, output: OutputFormat, label: Label) -> str:
    """The statement that is sent. The newline before the parenthesis ends a comment that the query may end with."""
    properties = ", ".join(f"{name} = {_property(value)}" for name, value in output.properties())
    return (
        f"{render_label(label)}\nUNLOAD (\n{query.strip()}{_TO}{quoted_literal(str(destination))}\nWITH ({properties})"
    )


def _property(value: str | int | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return f"ARRAY[{', '.join(quoted_literal(each) for each in value)}]"
    return str(value) if isinstance(value, int) else quoted_literal(value)


def readdress(statement: str, destination: Location, label: Label) -> str:
    """The same UNLOAD with another destination and label. `statement` is a text of `render_unload`."""
    body = statement.split("\n", 1)[1]
    before, _, after = body.rpartition(_TO)
    properties = after.split("\n", 1)[1]
    return f"{render_label(label)}\n{before}{_TO}{quoted_literal(str(destination))}\n{properties}"


def render_label(label: Label) -> str:
    """A one-line SQL comment; JSON escapes every line break, so that no value can leave the comment."""
    return _LABEL + json.dumps({"slot": label.slot, "fence": label.fence, "attempt": label.attempt})


def parse_label(statement: str) -> Label | None:
    """The label that a query text carries, or None if it carries none of ours."""
    first_line = statement.split("\n", 1)[0]
    if not first_line.startswith(_LABEL):
        return None
    try:
        found = json.loads(first_line.removeprefix(_LABEL))
    except (ValueError, RecursionError):
        return None
    match found:
        case {"slot": str(slot), "fence": fence, "attempt": attempt} if type(fence) is type(attempt) is int:
            return Label(slot, fence, attempt)
    return None


def unload_destination(statement: str) -> Location | None:
    """Where an UNLOAD writes to, whoever wrote it; None if the text is no UNLOAD, or none that can be read.

    Read from its end, where `TO` and the destination stand, so that the query inside is not interpreted. The location
    is as the statement has it, and not one that `parse_location` would take: a bucket's root is above everything in it.
    """
    tokens = _tokens(statement)
    if [next(tokens, ""), next(tokens, "")] != ["UNLOAD", "("]:
        return None
    rest = list(tokens)
    while rest and rest[-1] == ";":
        rest.pop()
    if rest and rest[-1] == ")":
        depth = 0
        while rest:
            token = rest.pop()
            depth += (token == ")") - (token == "(")
            if depth == 0:
                break
        if not rest or rest.pop() != "WITH":
            return None
    match rest:
        case [*_, ")", "TO", str(literal)] if _STRING.fullmatch(literal):
            return _place(literal[1:-1].replace("''", "'"))
    return None


def _tokens(statement: str) -> Iterator[str]:
    """Words in capitals, other characters each by itself, and what is quoted as it stands; no comments."""
    string, end_of_string = "", 0
    for kind, start, end in _regions(statement):
        if string and (kind != "string" or start != end_of_string):
            yield string
            string = ""
        if kind == "string":
            string, end_of_string = string + statement[start:end], end  # a doubled quote makes two regions of one
        elif kind == "identifier":
            yield statement[start:end]
        elif kind == "code":
            yield from (match.group().upper() for match in _TOKEN.finditer(statement, start, end))
    if string:
        yield string


def _place(uri: str) -> Location | None:
    """Any place in S3 by its URI; Trino's file system takes all three of its schemes."""
    scheme, separator, rest = uri.partition("://")
    bucket, _, path = rest.partition("/")
    if not separator or scheme.lower() not in ("s3", "s3a", "s3n") or not bucket:
        return None
    return Location(bucket, path if not path or path.endswith("/") else f"{path}/")


def encoded(text: str) -> bytes:
    """The UTF-8 bytes of a text. Raises InvalidStatement for half of a surrogate pair, which has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidStatement(
            f"it has the character {text[error.start]!r}, which has no UTF-8.", "Remove it."
        ) from error


def check_size(statement: str) -> None:
    """Raises InvalidStatement if Athena would refuse the statement for its length."""
    size = len(encoded(statement))
    if size > MAX_STATEMENT_BYTES:
        raise InvalidStatement(
            f"the statement is {size:,} bytes; Athena's limit is {MAX_STATEMENT_BYTES:,}.", "Shorten it or use a view."
        )
