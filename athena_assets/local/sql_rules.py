"""What of Trino's SQL is known to mean the same on DuckDB. Everything that is not listed is refused.

A list of what is allowed, not of what is forbidden: a construct that nobody has compared is a clear error, never an
answer that might be wrong. Each function names the type of its result in Trino, because DuckDB's is often another one.
"""

from __future__ import annotations

from sqlglot import exp

# The type of a result that is the type of the (first) argument.
OF_ARGUMENT = "OF ARGUMENT"

# The names that may stand before a parenthesis, in Trino's spelling: sqlglot also reads other engines' names (`len`,
# `nvl`), which Athena would not know.
FUNCTION_NAMES = frozenset(
    (
        "count count_if length strpos year month day quarter hour minute second day_of_week dow day_of_year doy"
        " week week_of_year day_of_month row_number rank dense_rank ntile cardinality stddev stddev_samp"
        " stddev_pop variance var_samp var_pop sqrt power pow ln exp cbrt percent_rank"
        " cume_dist random rand pi lower upper replace reverse concat substr substring date_format bool_and every"
        " bool_or regexp_like starts_with date sum avg min max arbitrary any_value max_by min_by lag lead"
        " first_value last_value abs floor ceil ceiling round coalesce nullif greatest least if date_trunc"
        " date_add mod try array_agg sequence regexp_replace regexp_extract trim ltrim rtrim uuid date_diff"
        " grouping now current_timestamp current_date"
    ).split()
)
KEYWORDS = frozenset(
    (
        "in and or not exists from select as on using over values cast try_cast extract filter when then else"
        " case where join union except intersect all distinct by with unnest rollup cube sets decimal varchar"
        " timestamp between like is having limit offset interval any some lateral end asc desc first last"
        " recursive array row char numeric"
    ).split()
)

FUNCTIONS: dict[type[exp.Expr], str] = {
    **dict.fromkeys(
        (
            exp.Count, exp.CountIf, exp.Length, exp.StrPosition, exp.Year, exp.Month, exp.Day, exp.Quarter, exp.Hour,
            exp.Minute, exp.Second, exp.DayOfWeekIso, exp.DayOfYear, exp.DayOfMonth, exp.WeekOfYear, exp.RowNumber,
            exp.Rank, exp.DenseRank, exp.Ntile, exp.ArraySize, exp.DateDiff, exp.Extract,
        ),
        "BIGINT",
    ),
    **dict.fromkeys(
        (
            exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop, exp.Sqrt, exp.Pow, exp.Ln,
            exp.Exp, exp.Cbrt, exp.PercentRank, exp.CumeDist, exp.Rand, exp.Pi,
        ),
        "DOUBLE",
    ),
    **dict.fromkeys(
        (exp.Lower, exp.Upper, exp.Replace, exp.Reverse, exp.Concat, exp.Substring, exp.TimeToStr, exp.RegexpReplace,
         exp.RegexpExtract, exp.Trim),
        "VARCHAR",
    ),
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr, exp.RegexpLike, exp.StartsWith), "BOOLEAN"),
    exp.Date: "DATE",
    exp.Grouping: "INT",
    **dict.fromkeys(
        (
            exp.Sum, exp.Avg, exp.Min, exp.Max, exp.AnyValue, exp.ArgMax, exp.ArgMin, exp.Lag, exp.Lead, exp.FirstValue,
            exp.LastValue, exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Greatest, exp.Least, exp.TimestampTrunc,
            exp.DateTrunc, exp.DateAdd, exp.Try,
        ),
        OF_ARGUMENT,
    ),
    **dict.fromkeys((exp.ArrayAgg, exp.GenerateSeries, exp.Uuid), ""),
}  # fmt: skip

# Functions and clauses that the parser reads by their own grammar, so that they carry no name.
NODES: tuple[type[exp.Expr], ...] = (
    exp.Select,
    exp.Subquery,
    exp.Union,
    exp.Except,
    exp.Intersect,
    exp.With,
    exp.CTE,
    exp.From,
    exp.Join,
    exp.Where,
    exp.Group,
    exp.Having,
    exp.Order,
    exp.Ordered,
    exp.Limit,
    exp.Offset,
    exp.Distinct,
    exp.Alias,
    exp.TableAlias,
    exp.Column,
    exp.Identifier,
    exp.Star,
    exp.Table,
    exp.Literal,
    exp.Null,
    exp.Boolean,
    exp.Paren,
    exp.Neg,
    exp.And,
    exp.Or,
    exp.Not,
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.Is,
    exp.In,
    exp.Between,
    exp.Like,
    exp.Escape,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Mod,
    exp.DPipe,
    exp.Case,
    exp.If,
    exp.Cast,
    exp.TryCast,
    exp.DataType,
    exp.DataTypeParam,
    exp.CurrentDate,
    exp.CurrentTimestamp,
    exp.Window,
    exp.WindowSpec,
    exp.Filter,
    exp.IgnoreNulls,
    exp.RespectNulls,
    exp.Values,
    exp.Tuple,
    exp.Unnest,
    exp.Array,
    exp.Interval,
    exp.Var,
    exp.Exists,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Rollup,
    exp.Cube,
    exp.GroupingSets,
    exp.Coalesce,
    exp.Nullif,
)

EXTRACT_PARTS = frozenset("YEAR QUARTER MONTH DAY HOUR MINUTE SECOND".split())
TRUNC_UNITS = frozenset("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND".split())
DATE_FORMATS = ("%Y", "%m", "%d", "%H", "%i", "%s")
INTEGERS = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
FLOATS = frozenset({exp.DType.FLOAT, exp.DType.DOUBLE})
TEXTS = frozenset({exp.DType.VARCHAR, exp.DType.TEXT})
TIMESTAMPS = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMP_S, exp.DType.TIMESTAMP_MS})


def kind_of(node: exp.Expr | None) -> exp.DType | None:
    """The known type of a typed expression; `None` if it is unknown."""
    found = None if node is None or node.type is None else node.type.this
    return None if found in (None, exp.DType.UNKNOWN) else found


def literal_of(node: exp.Expr | None) -> str | None:
    """The text of a literal; `None` for everything else."""
    return str(node.this) if isinstance(node, exp.Literal) else None
