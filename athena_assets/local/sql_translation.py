"""Turns an Athena SELECT into DuckDB's SQL with the same meaning, or refuses it.

sqlglot parses, resolves and types the query; the rules of `sql_rules` decide what may pass. Where DuckDB means
something else, the tree is rewritten: integer division, sums of integers, dates after date arithmetic, `max_by` with
NULL, casts of text and of doubles, averages of decimals, `trim`, `date_diff`, regular expressions.

More lenient than Athena, but not of another meaning: DuckDB lets GROUP BY and WHERE name aliases of the SELECT list,
and finds a common type for CASE, COALESCE and `||` where Trino says TYPE_MISMATCH. NaN equals itself in DuckDB only.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, SqlglotError, TokenError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from athena_assets.local import sql_rules
from athena_assets.local.athena_errors import QueryFailed, RequestRefused, not_supported
from athena_assets.local.sql_rewrites import check_shape, rewrite

# sqlglot loads a dialect when it is first named, and two threads that name it at one moment find half of it.
for _dialect in ("athena", "trino", "hive", "duckdb"):
    sqlglot.parse_one("SELECT 1", read=_dialect).sql(dialect=_dialect)


CATALOG = "awsdatacatalog"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of the Glue catalog; both names lower case."""

    database: str
    table: str


@dataclass(frozen=True, slots=True)
class Translation:
    """DuckDB's SQL over relations named `relations[...]`, and the names of the result's columns."""

    sql: str
    relations: Mapping[TableName, str]
    names: tuple[str, ...]


Schema = Callable[[TableName], Mapping[str, str]]


def parse_select(sql: str) -> exp.Query:
    """`RequestRefused` for text that is no single query: this is what Athena rejects at the start."""
    try:
        trees = [tree for tree in sqlglot.parse(sql, read="trino") if tree is not None]
    except (ParseError, TokenError) as error:
        raise RequestRefused(_first_line(error), "MALFORMED_QUERY") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise RequestRefused("Only one sql statement is allowed, and here it must be a query", "MALFORMED_QUERY")
    if any(not select.expressions for select in trees[0].find_all(exp.Select)):
        raise RequestRefused("mismatched input 'FROM'. Expecting: <select item>", "MALFORMED_QUERY")
    return trees[0]


def _first_line(error: SqlglotError) -> str:
    if isinstance(error, ParseError) and error.errors:
        found = error.errors[0]
        return f"line {found.get('line')}:{found.get('col')}: {found.get('description')}"
    return re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()[0]


def translate(sql: str, database: str | None, schema: Schema) -> Translation:
    """`QueryFailed` names what is unknown, of the wrong type, or not supported.

    `schema` raises it for unknown tables.
    """
    tree = parse_select(sql)
    _check_words(sql, tree)
    check_shape(tree)
    tables = _name_tables(tree, database)
    relations = {name: f"table_{number}" for number, name in enumerate(dict.fromkeys(name for _, name in tables))}
    columns: dict[str, object] = {relations[name]: dict(schema(name)) for name in relations}
    for node, name in tables:
        alias = node.alias or node.name
        node.replace(exp.to_table(relations[name]).as_(alias, table=True))
    _name_outputs(tree)
    try:
        tree = qualify(tree, schema=columns, dialect="trino", quote_identifiers=True, validate_qualify_columns=True)
        tree = annotate_types(tree, schema=columns, dialect="trino")
        tree = rewrite(tree, lambda root: annotate_types(root, schema=columns, dialect="trino"))
    except OptimizeError as error:
        raise QueryFailed(f"COLUMN_NOT_FOUND: {_first_line(error)}") from error
    names = tuple(str(name).lower() for name in tree.named_selects)
    return Translation(tree.sql(dialect="duckdb"), relations, names)


def _check_words(sql: str, tree: exp.Query) -> None:
    """Every name before a parenthesis is a function of Trino's that is known to mean the same here."""
    aliases = {alias.name.lower() for alias in tree.find_all(exp.TableAlias)}
    tokens = sqlglot.tokenize(sql, read="trino")
    for token, following in itertools.pairwise(tokens):
        word = token.text.lower()
        if following.token_type != sqlglot.TokenType.L_PAREN or not re.fullmatch(r"[a-z_][a-z_0-9]*", word):
            continue
        if word not in sql_rules.FUNCTION_NAMES and word not in sql_rules.KEYWORDS and word not in aliases:
            raise not_supported(f"the function {word}")


def _name_tables(tree: exp.Query, database: str | None) -> list[tuple[exp.Table, TableName]]:
    """Every mention, for two mentions of one table are equal but not the same."""
    found: dict[int, tuple[exp.Table, TableName]] = {}
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if not isinstance(source, exp.Table):
                continue
            catalog, schema, table = source.catalog.lower(), source.db.lower(), source.name.lower()
            if not isinstance(source.this, exp.Identifier):
                raise not_supported(f"the table function {source.this.sql(dialect='trino')}")
            if catalog not in ("", CATALOG):
                raise QueryFailed(f"CATALOG_NOT_FOUND: Catalog '{catalog}' not found")
            if not schema and database is None:
                raise QueryFailed("MISSING_SCHEMA_NAME: Schema must be specified when session schema is not set")
            found[id(source)] = (source, TableName(schema or str(database).lower(), table))
    return list(found.values())


def _name_outputs(tree: exp.Query) -> None:
    """Columns without a name are called `_col0`, `_col1` ... as in Athena; sqlglot has its own ways."""
    first: exp.Expr = tree
    while isinstance(first, (exp.SetOperation, exp.Subquery)):
        first = first.this
    if not isinstance(first, exp.Select):
        return
    for number, projection in enumerate(list(first.expressions)):
        inner = projection.unnest() if isinstance(projection, exp.Paren) else projection
        if isinstance(inner, exp.Column) and isinstance(projection, exp.Paren):
            projection.replace(exp.alias_(projection.copy(), inner.name))
        elif not isinstance(projection, (exp.Alias, exp.Column, exp.Star)) and not projection.is_star:
            projection.replace(exp.alias_(projection.copy(), f"_col{number}"))
