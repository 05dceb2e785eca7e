"""Casts between Trino's types: rewritten to give Trino's values, or refused."""

from __future__ import annotations

import re

from sqlglot import exp

from athena_assets.local import sql_functions
from athena_assets.local.athena_errors import not_supported
from athena_assets.local.sql_rules import FLOATS, INTEGERS, TEXTS, TIMESTAMPS, kind_of, literal_of

_TEXT_PATTERNS = {
    **dict.fromkeys(INTEGERS, r"^[+-]?[0-9]+$"),
    exp.DType.DATE: r"^\s*[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}\s*$",
    exp.DType.TIMESTAMP: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,3})?)?)?$",
    exp.DType.DOUBLE: r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$",
    exp.DType.FLOAT: r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$",
}


def rewrite_cast(node: exp.Cast) -> None:
    """Does nothing to casts that a rewrite has put there."""
    if node.meta.get("rewritten"):
        return
    source, target = kind_of(node.this), node.to.this
    if isinstance(node.this, exp.Null) or (isinstance(node.this, exp.Uuid) and target in TEXTS):
        return
    if target in TIMESTAMPS:
        node.set("to", exp.DataType.build("TIMESTAMP"))
        target = exp.DType.TIMESTAMP
    name = (
        f"a cast of {node.this.type.sql(dialect='trino') if node.this.type else '?'} to {node.to.sql(dialect='trino')}"
    )
    if source is None:
        raise not_supported(f"{name} (its source type is not known)")
    if (source == target and not node.to.expressions) or source == exp.DType.NULL:
        return
    if target in TEXTS:
        allowed = INTEGERS | TEXTS | {exp.DType.DECIMAL, exp.DType.BOOLEAN, exp.DType.DATE, exp.DType.UUID}
        if node.to.expressions or source not in allowed:
            raise not_supported(name)
    elif source in TEXTS and target in _TEXT_PATTERNS:
        _guard_text(node, _TEXT_PATTERNS[target])
    elif target in INTEGERS:
        if source in FLOATS:  # Trino rounds half away from zero, which is what DuckDB's round does, but not its cast
            double = exp.Cast(this=node.this.copy(), to=exp.DataType.build("DOUBLE"))
            node.set("this", sql_functions.call("round", double))
        elif source not in INTEGERS | {exp.DType.BOOLEAN, exp.DType.DECIMAL}:
            raise not_supported(name)
    elif target in FLOATS:
        if source not in INTEGERS | FLOATS | {exp.DType.DECIMAL, exp.DType.BOOLEAN}:
            raise not_supported(name)
    elif target == exp.DType.DECIMAL:
        if source not in INTEGERS | {exp.DType.DECIMAL}:
            raise not_supported(name)
    elif target not in (exp.DType.DATE, exp.DType.TIMESTAMP) or source not in TIMESTAMPS | {exp.DType.DATE}:
        raise not_supported(name)


def _guard_text(node: exp.Cast, pattern: str) -> None:
    """DuckDB reads more spellings than Trino does ('1.5' as an integer): only Trino's pass."""
    literal = literal_of(node.this)
    if literal is not None and re.match(pattern, literal):
        return
    matches = exp.Anonymous(this="regexp_matches", expressions=[node.this.copy(), exp.Literal.string(pattern)])
    if isinstance(node, exp.TryCast):
        guarded: exp.Expr = exp.Case(ifs=[exp.If(this=matches, true=node.this.copy())])
    else:
        message = exp.Literal.string("INVALID_CAST_ARGUMENT: Cannot cast value to " + node.to.sql(dialect="trino"))
        accepted = exp.Or(this=exp.Is(this=node.this.copy(), expression=exp.Null()), expression=matches)
        failure = exp.Anonymous(this="error", expressions=[message])
        guarded = exp.Case(ifs=[exp.If(this=accepted, true=node.this.copy())], default=failure)
    node.set("this", guarded)
