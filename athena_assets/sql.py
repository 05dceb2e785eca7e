"""Reads the SELECT with sqlglot: its upstream tables and its functions of time or chance. Its output is never sent."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.scope import traverse_scope

from athena_assets.core.statement import check_query, render_query
from athena_assets.core.target import Target, UpstreamTable

# Functions whose value differs between two runs over the same data (Trino reference: date and time, random, UUID,
# session). TABLESAMPLE is one as well. Order-dependent aggregates (arbitrary, array_agg without ORDER BY) give one of
# several right answers and are not counted.
_NONDETERMINISTIC = frozenset(
    {
        "current_catalog",
        "current_groups",
        "current_date",
        "current_path",
        "current_datetime",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_timezone",
        "current_user",
        "current_version",
        "localtime",
        "localtimestamp",
        "now",
        "rand",
        "random",
        "randn",
        "secure_rand",
        "secure_random",
        "shuffle",
        "unixtimestamp",
        "uuid",
        "version",
    }
)

# Those that are written without parentheses and that sqlglot takes for columns.
_NILADIC = frozenset({"current_catalog", "current_path", "current_schema"})

_DIALECT = "athena"
# sqlglot loads a dialect when it is first named, and two threads that name it at one moment find half of it.
sqlglot.parse_one("SELECT 1", read=_DIALECT)

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns about syntax that it keeps as an opaque command


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """What could be read from a query.

    Args:
        tables: the tables that it reads, sorted; None if the text could not be read (Athena may still run it).
        nondeterministic: functions of time or chance in it, sorted.
    """

    tables: tuple[UpstreamTable, ...] | None
    nondeterministic: tuple[str, ...]

    @property
    def deterministic(self) -> bool:
        """Known to give the same rows from the same data."""
        return self.tables is not None and not self.nondeterministic


def inspect_query(target: Target) -> QueryFacts:
    """Reads the target's query as Trino SQL, with sample values for its placeholders.

    Raises:
        InvalidTarget: if it reads as something else than one query.
    """
    values = dict.fromkeys((*target.parameters, *target.key_placeholders), "x")
    try:
        parsed = sqlglot.parse(render_query(check_query(target.query), values), read=_DIALECT)
    except (SqlglotError, RecursionError):
        return QueryFacts(None, ())
    statements = [each for each in parsed if each is not None]
    if len(statements) > 1:
        raise target.invalid("query", "it holds several statements.", "Give each statement a target of its own.")
    if not statements or isinstance(statements[0], exp.Command):
        return QueryFacts(None, ())
    root = statements[0].unnest()
    if not isinstance(root, exp.Query | exp.Values):
        raise target.invalid("query", f"it is {root.key.upper()}, which is not a query.", "Begin with SELECT or WITH.")
    return QueryFacts(_tables(root, target), _nondeterministic(root))


def _tables(root: exp.Expr, target: Target) -> tuple[UpstreamTable, ...] | None:
    """None where a table may be read that we would not see: a wrong answer would reuse stale results."""
    root = normalize_identifiers(root.copy(), dialect=_DIALECT)
    if any(isinstance(node, exp.Anonymous) and node.name.lower() == "table" for node in root.walk()):
        return None  # a table function's TABLE(...) argument
    try:
        scopes = traverse_scope(root)
    except SqlglotError:
        return None
    found = {
        id(source): source for scope in scopes for source in scope.sources.values() if isinstance(source, exp.Table)
    }
    if any(not isinstance(table.this, exp.Identifier) for table in found.values()):
        return None  # a function in FROM
    common = {cte.alias_or_name for cte in root.find_all(exp.CTE)}
    for table in root.find_all(exp.Table):
        if id(table) not in found and (table.db or table.name not in common):
            return None
    tables = {
        UpstreamTable(
            database=(table.db or target.database).lower(),
            name=table.name.lower(),
            catalog=(table.catalog or target.catalog).lower(),
        )
        for table in found.values()
    }
    return tuple(sorted(tables, key=str))


def _nondeterministic(root: exp.Expr) -> tuple[str, ...]:
    found = set()
    for node in root.walk():
        if isinstance(node, exp.TableSample):
            found.add("tablesample")
        elif isinstance(node, exp.Func):
            names = [node.name] if isinstance(node, exp.Anonymous) else [node.sql_name(), type(node).__name__]
            found |= {name.lower().replace("_", "") for name in names} & _FOLDED
        elif isinstance(node, exp.Column) and not node.table and not node.this.args.get("quoted"):
            found |= {node.name.lower()} & _NILADIC
    return tuple(sorted(found))


_FOLDED = frozenset(name.replace("_", "") for name in _NONDETERMINISTIC)
