"""The differences between Trino and DuckDB, one function each: rewritten where possible, refused otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from athena_assets.local.athena_errors import QueryFailed, not_supported
from athena_assets.local.sql_rules import (
    DATE_FORMATS,
    EXTRACT_PARTS,
    FLOATS,
    FUNCTIONS,
    INTEGERS,
    NODES,
    OF_ARGUMENT,
    TEXTS,
    TIMESTAMPS,
    TRUNC_UNITS,
)

Annotate = Callable[[exp.Query], exp.Query]
_ROUNDED = (exp.Round, exp.Floor, exp.Ceil)


def kind_of(node: exp.Expr | None) -> exp.DType | None:
    """The known type of a typed expression; `None` if it is unknown."""
    found = None if node is None or node.type is None else node.type.this
    return None if found in (None, exp.DType.UNKNOWN) else found


def check_shape(tree: exp.Query) -> None:
    """Refuses whatever is not listed, before anything is resolved."""
    for node in tree.walk():
        if type(node) in FUNCTIONS:
            _check_function(node)
        elif not isinstance(node, NODES):
            name = node.name if isinstance(node, exp.Anonymous) else node.key
            raise not_supported(f"{name} ({node.sql(dialect='trino')[:80]})")
        elif isinstance(node, exp.Table) and node.args.get("sample"):
            raise not_supported("TABLESAMPLE")
        elif isinstance(node, exp.Unnest) and node.args.get("offset"):
            raise not_supported("UNNEST WITH ORDINALITY")
        elif isinstance(node, exp.With) and node.args.get("recursive"):
            raise not_supported("WITH RECURSIVE")
        elif isinstance(node, exp.Select) and any(node.args.get(name) for name in ("qualify", "match", "windows")):
            raise not_supported("QUALIFY, MATCH_RECOGNIZE or a named WINDOW")


def _literal(node: exp.Expr | None) -> str | None:
    return str(node.this) if isinstance(node, exp.Literal) else None


def _check_function(node: exp.Expr) -> None:
    arguments = [value for value in node.args.values() if isinstance(value, exp.Expr)]
    match node:
        case exp.Substring():
            start = _literal(node.args.get("start"))
            if start is None or not start.isdigit() or int(start) < 1:
                raise not_supported("substr with a start that is not a positive number")
        case exp.RegexpReplace():
            replacement = node.args.get("replacement")
            if replacement is not None and (_literal(replacement) is None or set("$\\") & set(str(replacement.this))):
                raise not_supported("regexp_replace with $ or \\ in its replacement, or one that is not a literal")
        case exp.TimestampTrunc() if str(node.args["unit"].name).upper() not in TRUNC_UNITS:
            raise not_supported(f"date_trunc to {node.args['unit'].name}")
        case exp.Extract() if str(node.this.name).upper() not in EXTRACT_PARTS:
            raise not_supported(f"EXTRACT of {node.this.name}")
        case exp.TimeToStr():
            pattern = _literal(node.args.get("format"))
            rest = pattern or "%"
            for allowed in (*DATE_FORMATS, "%M", "%S"):  # sqlglot has turned Trino's %i and %s into these
                rest = rest.replace(allowed, "")
            if "%" in rest:
                raise not_supported(f"date_format with other parts than {', '.join(DATE_FORMATS)}")
        case exp.Min() | exp.Max() if node.expressions:
            raise not_supported(f"{node.key} with a count")
        case exp.ArgMax() | exp.ArgMin() if len(arguments) > 2 or node.args.get("count"):
            raise not_supported("max_by or min_by with a count")
        case exp.Rand() if arguments:
            raise not_supported("random with bounds")
        case exp.StrPosition() if len(arguments) > 2:
            raise not_supported("strpos with an instance")
        case _:
            pass


def rewrite(tree: exp.Query, annotate: Annotate) -> exp.Query:
    """Children before parents. Types are inferred again after each round, for a rewrite may tell its parent's type."""
    for node in _post_order(tree):
        result = FUNCTIONS.get(type(node))
        if result and result != OF_ARGUMENT:
            _wrap(node, exp.DataType.build(result, dialect="trino"))
    for _ in range(3):
        tree = annotate(tree)
        for node in _post_order(tree):
            if FUNCTIONS.get(type(node)) == OF_ARGUMENT and not node.meta.get("rewritten"):
                _rewrite_function(node)
    tree = annotate(tree)
    for node in _post_order(tree):
        if FUNCTIONS.get(type(node)) == OF_ARGUMENT and not node.meta.get("rewritten"):
            raise not_supported(f"{node.sql(dialect='trino')[:80]}, whose argument has no known type; add a cast")
    for node in _post_order(tree):
        match node:
            case exp.Div():
                _rewrite_division(node)
            case exp.Add() | exp.Sub():
                _rewrite_date_arithmetic(node)
            case exp.Cast():
                _rewrite_cast(node)
            case exp.DateDiff():
                _check_date_diff(node)
            case (
                exp.EQ()
                | exp.NEQ()
                | exp.GT()
                | exp.GTE()
                | exp.LT()
                | exp.LTE()
                | exp.NullSafeEQ()
                | exp.NullSafeNEQ()
            ):
                _check_comparison(node, node.this, node.expression)
            case exp.In():
                for value in node.expressions:
                    _check_comparison(node, node.this, value)
            case exp.Between():
                _check_comparison(node, node.this, node.args["low"])
                _check_comparison(node, node.this, node.args["high"])
            case _:
                pass
    return tree


def _post_order(tree: exp.Query) -> list[exp.Expr]:
    return list(tree.walk(bfs=False))[::-1]


def _wrap(node: exp.Expr, to: exp.DataType) -> None:
    """Casts a function's value; around the window or filter that belongs to an aggregate."""
    outer = node
    while isinstance(outer.parent, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Window)) and (
        outer.parent.this is outer
    ):
        outer = outer.parent
    cast = exp.Cast(to=to.copy())
    cast.meta["rewritten"] = True
    outer.replace(cast)
    cast.set("this", outer)


def _rewrite_function(node: exp.Expr) -> None:
    """Gives the result the type that Trino gives it. Does nothing as long as the argument's type is not known."""
    kind = kind_of(node.this)
    if kind is None or not isinstance(node.this.type, exp.DataType):
        return
    node.meta["rewritten"] = True
    argument = node.this.type
    spelled = argument.sql(dialect="trino")
    match node:
        case exp.Avg():
            if kind not in INTEGERS | {exp.DType.DOUBLE}:
                raise not_supported(f"avg of {spelled}; cast it to double")
            _wrap(node, exp.DataType.build("DOUBLE"))
        case exp.Sum():
            if kind not in INTEGERS | FLOATS | {exp.DType.DECIMAL}:
                raise not_supported(f"sum of {spelled}")
            if kind != exp.DType.DECIMAL:
                _wrap(node, exp.DataType.build("BIGINT") if kind in INTEGERS else argument)
        case exp.Floor() | exp.Ceil() | exp.Round():
            if kind not in INTEGERS | FLOATS:
                raise not_supported(f"{node.key} of {spelled}; cast it to double")
            _wrap(node, argument)
        case exp.TimestampTrunc() | exp.DateAdd():
            if kind not in TIMESTAMPS | {exp.DType.DATE}:
                raise QueryFailed(f"TYPE_MISMATCH: date_trunc or date_add of {spelled}")
            _wrap(node, argument)
        case exp.ArgMax() | exp.ArgMin():
            # DuckDB's arg_max skips rows whose first argument is NULL; Trino returns that NULL.
            name = "arg_max_null" if isinstance(node, exp.ArgMax) else "arg_min_null"
            call = exp.Anonymous(this=name, expressions=[node.this.copy(), node.expression.copy()])
            node.replace(call)
            _wrap(call, argument)
        case _:
            pass  # DuckDB's type is Trino's


def _is_exact(node: exp.Expr) -> bool:
    """Whether Trino computes this operand as an integer or a decimal."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        return _is_exact(inner.this)
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return "e" not in str(inner.this).lower()
    if isinstance(inner, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)):
        return _is_exact(inner.this) and _is_exact(inner.expression)
    return kind_of(inner) in INTEGERS | {exp.DType.DECIMAL}


def _rewrite_division(node: exp.Div) -> None:
    left, right = node.this, node.expression
    if kind_of(left) is None or kind_of(right) is None:
        raise not_supported(f"a division whose types are not known ({node.sql(dialect='trino')[:80]}); add casts")
    if kind_of(left) in INTEGERS and kind_of(right) in INTEGERS:
        operands = [exp.paren(side.copy()) if isinstance(side, exp.Binary) else side.copy() for side in (left, right)]
        division = exp.IntDiv(this=operands[0], expression=operands[1])
        division.type = left.type
        node.replace(exp.Paren(this=division))
    elif _is_exact(left) and _is_exact(right):
        raise not_supported("a division of decimals (1.5 is a decimal in Athena); cast one side to double")


def _rewrite_date_arithmetic(node: exp.Expr) -> None:
    sides = (node.this, node.expression)
    if not any(isinstance(side, exp.Interval) for side in sides):
        if any(kind_of(side) in TIMESTAMPS | {exp.DType.DATE} for side in sides):
            raise not_supported("arithmetic on dates without an interval; use date_add or date_diff")
        return
    other = sides[0] if isinstance(sides[1], exp.Interval) else sides[1]
    kind = kind_of(other)
    if kind is None or kind not in TIMESTAMPS | {exp.DType.DATE} or isinstance(other, exp.Interval):
        raise not_supported(f"interval arithmetic ({node.sql(dialect='trino')[:80]})")
    _wrap(node, exp.DataType.build(other.type))


def _check_date_diff(node: exp.DateDiff) -> None:
    """DuckDB counts crossed boundaries, Trino whole units; they agree on days between dates."""
    unit = str(node.args["unit"].name).upper() if node.args.get("unit") else "DAY"
    if unit != "DAY" or {kind_of(node.this), kind_of(node.expression)} != {exp.DType.DATE}:
        raise not_supported("date_diff other than of days between dates")


def _check_comparison(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> None:
    """DuckDB converts text silently where Athena says TYPE_MISMATCH."""
    kinds = {kind_of(left), kind_of(right)}
    others = INTEGERS | FLOATS | TIMESTAMPS | {exp.DType.DATE, exp.DType.DECIMAL, exp.DType.BOOLEAN}
    if kinds & TEXTS and kinds & others:
        kinds_text = " and ".join(str(side.type.sql(dialect="trino")) for side in (left, right) if side.type)
        raise QueryFailed(f"TYPE_MISMATCH: Cannot compare {kinds_text} ({node.sql(dialect='trino')[:80]})")


_TEXT_PATTERNS = {
    **dict.fromkeys(INTEGERS, r"^[+-]?[0-9]+$"),
    exp.DType.DATE: r"^\s*[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}\s*$",
    exp.DType.TIMESTAMP: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,3})?)?)?$",
    exp.DType.DOUBLE: r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$",
    exp.DType.FLOAT: r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$",
}


def _rewrite_cast(node: exp.Cast) -> None:
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
        rounded = isinstance(node.this.unnest(), _ROUNDED) or (
            isinstance(node.this, exp.Cast) and isinstance(node.this.this, _ROUNDED)
        )
        if source not in INTEGERS | {exp.DType.BOOLEAN, exp.DType.DECIMAL} and not (source in FLOATS and rounded):
            raise not_supported(f"{name}: round, floor or ceil it first")
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
    literal = _literal(node.this)
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
