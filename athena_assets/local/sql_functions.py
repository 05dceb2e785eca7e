"""Functions of Trino's that DuckDB has in another form: rewritten to give Trino's values, or refused."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from athena_assets.local import sql_patterns
from athena_assets.local.athena_errors import not_supported
from athena_assets.local.sql_rules import TIMESTAMPS

# What Java's Character.isWhitespace tells, which Trino's trim goes by: no-break spaces are not among them.
WHITESPACE = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680" + "".join(map(chr, range(0x2000, 0x200B))).replace("\u2007", "")
WHITESPACE += "\u2028\u2029\u205f\u3000"
_DATE_UNITS = frozenset({"DAY", "WEEK", "MONTH"})
_TIMESTAMP_UNITS = _DATE_UNITS | {"HOUR", "MINUTE", "SECOND", "MILLISECOND"}
_WIDEST_DECIMAL = 38


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A function of DuckDB's."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def rewrite_trim(node: exp.Trim) -> None:
    """DuckDB's own idea of a space is another one."""
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    node.replace(call(name, node.this.copy(), exp.Literal.string(WHITESPACE)))


def rewrite_date_diff(node: exp.DateDiff) -> None:
    """Trino counts whole units, as DuckDB's `date_sub` does (`date_diff` counts crossed boundaries)."""
    unit = str(node.args["unit"].name).upper() if node.args.get("unit") else "DAY"
    kinds = {side.type.this if side.type else None for side in (node.this, node.expression)}
    allowed = _DATE_UNITS if kinds == {exp.DType.DATE} else _TIMESTAMP_UNITS if kinds <= TIMESTAMPS else frozenset()
    if unit not in allowed:
        shown = " and ".join(sorted(str(kind.value if kind else "?") for kind in kinds))
        raise not_supported(f"date_diff of {unit} between {shown}")
    node.replace(call("date_sub", exp.Literal.string(unit.lower()), node.expression.copy(), node.this.copy()))


def rewrite_regexp(node: exp.Expr) -> None:
    """`regexp_like`, `regexp_extract` and `regexp_replace` with a literal pattern."""
    literal = node.args.get("expression")
    if not isinstance(literal, exp.Literal) or not literal.is_string:
        raise not_supported("a regular expression that is not a literal")
    pattern = sql_patterns.read(str(literal.this))
    if pattern.unlike is not None:
        node.set("this", _guarded(node.this, pattern))
    if isinstance(node, exp.RegexpReplace) and pattern.matches_nothing():
        raise not_supported(f"regexp_replace of {pattern.text!r}, which matches the empty text")
    if isinstance(node, exp.RegexpExtract):
        group = node.args.get("group")
        number = int(str(group.this)) if isinstance(group, exp.Literal) and str(group.this).isdigit() else -1
        if number < 0 or number > len(pattern.groups) or (number > 0 and not pattern.groups[number - 1]):
            raise not_supported("regexp_extract of a group that a match need not have")
        _check_repeatable(node.this)
        found = call("regexp_extract", node.this.copy(), literal.copy(), exp.Literal.number(number))
        matches = call("regexp_matches", node.this.copy(), literal.copy())
        node.replace(exp.Case(ifs=[exp.If(this=matches, true=found)]))  # DuckDB gives '' where Trino gives NULL


def _guarded(subject: exp.Expr, pattern: sql_patterns.Pattern) -> exp.Expr:
    _check_repeatable(subject)
    reason = f"NOT_SUPPORTED: embedded Athena does not run {pattern.text!r} on this text: its answer could differ"
    unlike = call("regexp_matches", subject.copy(), exp.Literal.string(pattern.unlike))
    refusal = call("error", exp.Literal.string(reason))
    return exp.Case(ifs=[exp.If(this=unlike, true=refusal)], default=subject.copy())


def _check_repeatable(subject: exp.Expr) -> None:
    """The rewritten expression evaluates it more than once."""
    if any(isinstance(node, (exp.Rand, exp.Uuid)) for node in subject.walk()):
        raise not_supported("a regular expression on a random text")


def rewrite_decimal_avg(node: exp.Avg, argument: exp.DataType) -> exp.DataType:
    """Trino's average of decimals is a decimal of the same type, rounded half up: computed in whole numbers."""
    spelled = argument.sql(dialect="trino")
    numbers = [int(str(parameter.this)) for parameter in argument.expressions]
    plain = not isinstance(node.this, exp.Distinct) and not isinstance(node.parent, (exp.Window, exp.Filter))
    if len(numbers) != 2 or sum(numbers) >= _WIDEST_DECIMAL or not plain:
        raise not_supported(f"avg of {spelled} with DISTINCT, FILTER or OVER, or of so many digits; cast it to double")
    precision, scale = numbers
    value = node.this.sql(dialect="duckdb")
    total = f"CAST(replace(CAST(sum({value}) AS VARCHAR), '.', '') AS HUGEINT)"
    rounded = f"sign({total}) * ((2 * abs({total}) + count({value})) // (2 * count({value})))"
    unit = f"CAST('{'0.' + '0' * (scale - 1) + '1' if scale else '1'}' AS DECIMAL({scale + 1}, {scale}))"
    text = f"CAST(CAST({rounded} AS DECIMAL({precision}, 0)) * {unit} AS DECIMAL({precision}, {scale}))"
    average = sqlglot.parse_one(text, read="duckdb")
    average.type = argument.copy()
    for part in average.walk():  # nothing of it is Trino's any more
        part.meta["rewritten"] = True
    node.replace(average)
    return argument
