"""The differences between Trino and DuckDB, one function each: rewritten where possible, refused otherwise."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from athena_assets.local import sql_casts, sql_functions
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
    kind_of,
    literal_of,
)

Annotate = Callable[[exp.Query], exp.Query]


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


def _check_function(node: exp.Expr) -> None:
    arguments = [value for value in node.args.values() if isinstance(value, exp.Expr)]
    match node:
        case exp.Substring():
            start = literal_of(node.args.get("start"))
            if start is None or not start.isdigit() or int(start) < 1:
                raise not_supported("substr with a start that is not a positive number")
        case exp.RegexpReplace():
            replacement = node.args.get("replacement")
            if replacement is not None and (literal_of(replacement) is None or set("$\\") & set(str(replacement.this))):
                raise not_supported("regexp_replace with $ or \\ in its replacement, or one that is not a literal")
        case exp.TimestampTrunc() | exp.DateTrunc() if str(node.args["unit"].name).upper() not in TRUNC_UNITS:
            raise not_supported(f"date_trunc to {node.args['unit'].name}")
        case exp.Extract() if str(node.this.name).upper() not in EXTRACT_PARTS:
            raise not_supported(f"EXTRACT of {node.this.name}")
        case exp.TimeToStr():
            pattern = literal_of(node.args.get("format"))
            rest = pattern or "%"
            for allowed in (*DATE_FORMATS, "%M", "%S"):  # sqlglot has turned Trino's %i and %s into these
                rest = rest.replace(allowed, "")
            if "%" in rest:
                raise not_supported(f"date_format with other parts than {', '.join(DATE_FORMATS)}")
        case exp.Trim() if node.args.get("expression"):
            raise not_supported("trim of other characters than white space")
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
                sql_casts.rewrite_cast(node)
            case exp.DateDiff():
                sql_functions.rewrite_date_diff(node)
            case exp.Trim():
                sql_functions.rewrite_trim(node)
            case exp.RegexpLike() | exp.RegexpExtract() | exp.RegexpReplace():
                sql_functions.rewrite_regexp(node)
            case exp.Unnest():
                _check_unnest(node)
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
    if isinstance(node, (exp.Avg, exp.Sum, exp.Floor, exp.Ceil, exp.Round)) and kind in FLOATS and _is_exact(node.this):
        raise not_supported(f"{node.key} of decimals without a type (1.5 is a decimal in Athena); cast it to double")
    match node:
        case exp.Avg() if kind == exp.DType.DECIMAL:
            sql_functions.rewrite_decimal_avg(node, argument)
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
        case exp.TimestampTrunc() | exp.DateTrunc() | exp.DateAdd():
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


def _check_unnest(node: exp.Unnest) -> None:
    """Trino makes columns of a row's fields, and pads the shorter of several arrays."""
    if len(node.expressions) != 1:
        raise not_supported("UNNEST of several arrays")
    array = node.expressions[0]
    elements = array.type.expressions if array.type is not None and kind_of(array) == exp.DType.ARRAY else []
    known = isinstance(array.unnest(), exp.GenerateSeries) or len(elements) == 1
    if not known or any(each.this == exp.DType.STRUCT for each in elements if isinstance(each, exp.DataType)):
        raise not_supported("UNNEST of something else than an array of plain values")


def _check_comparison(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> None:
    """DuckDB converts text silently where Athena says TYPE_MISMATCH."""
    kinds = {kind_of(left), kind_of(right)}
    others = INTEGERS | FLOATS | TIMESTAMPS | {exp.DType.DATE, exp.DType.DECIMAL, exp.DType.BOOLEAN}
    if kinds & TEXTS and kinds & others:
        kinds_text = " and ".join(str(side.type.sql(dialect="trino")) for side in (left, right) if side.type)
        raise QueryFailed(f"TYPE_MISMATCH: Cannot compare {kinds_text} ({node.sql(dialect='trino')[:80]})")
