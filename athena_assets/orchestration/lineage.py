"""How a target becomes a Dagster asset, and which Dagster assets its upstream tables are."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import dagster as dg

from athena_assets.core.partition import END, START
from athena_assets.core.statement import check_query, query_placeholders, render_query
from athena_assets.core.target import Target, UpstreamTable
from athena_assets.sql import inspect_query

Dependency = dg.AssetKey | dg.AssetDep | dg.AssetSpec | dg.AssetsDefinition | str

GLUE_CATALOG = "awsdatacatalog"  # the account's own


def upstream_key(table: UpstreamTable) -> dg.AssetKey:
    """[database, table] in lower case, with the data catalog in front if it is not the account's own."""
    names = [table.database, table.name]
    if table.catalog.lower() != GLUE_CATALOG:
        names.insert(0, table.catalog)
    return dg.AssetKey([name.lower() for name in names])


def upstream_tables(target: Target) -> Sequence[UpstreamTable]:
    """The tables that the target says it reads, else those that its query reads, less its own `glue_table`.

    A view is one table: what it reads is not known here. A query that can't be read has none.

    Raises:
        InvalidTarget: the text is not one query.
    """
    read = inspect_query(target).tables or ()
    named = read if target.upstreams is None else target.upstreams
    tables = [UpstreamTable(each.database.lower(), each.name.lower(), each.catalog.lower()) for each in named]
    return [table for table in dict.fromkeys(tables) if table != _filled(target)]


class AthenaUnloadTranslator:
    """Says what the asset of a target is, and which asset an upstream table is. Subclass it to say otherwise.

    Whatever it says, the asset publishes its target, in the target's own pool.
    """

    def get_asset_spec(self, target: Target) -> dg.AssetSpec:
        """Key, description, kinds, code version and deps.

        To change some, call this one and then `replace_attributes` or `merge_attributes` of what it returns.

        Raises:
            InvalidTarget: the target's text is not one query.
        """
        key = dg.AssetKey(target.name.split("/"))
        keys = dict.fromkeys(self.get_upstream_key(table) for table in upstream_tables(target))
        return dg.AssetSpec(
            key,
            deps=[each for each in keys if each != key],
            description=f"Published to `{target.location}`:\n\n```sql\n{_readable_query(target)}\n```",
            kinds={"athena", "s3", target.format.format.lower()},
            code_version=code_version(target),
        )

    def get_upstream_key(self, table: UpstreamTable) -> dg.AssetKey:
        """The asset that the table is. Override it for tables that are assets already, such as dbt models."""
        return upstream_key(table)

    def get_upstream_spec(self, table: UpstreamTable) -> dg.AssetSpec | None:
        """The external asset to declare for a table; None where `get_upstream_key` names an asset of its own."""
        key = self.get_upstream_key(table)
        if key != upstream_key(table):
            return None
        ours = table.catalog.lower() == GLUE_CATALOG
        where = "the Glue catalog" if ours else f"the data catalog `{table.catalog}`"
        return dg.AssetSpec(
            key,
            description=f"Table `{table.name}` of the database `{table.database}` in {where}. Not made by Dagster.",
            kinds={"glue", "table"} if ours else {"table"},
            metadata={"dagster/table_name": dg.MetadataValue.text(".".join(key.path))},
        )


def with_attributes(
    spec: dg.AssetSpec,
    *,
    deps: Sequence[Dependency] | None,
    group_name: str | None,
    owners: Sequence[str] | None,
    tags: Mapping[str, str] | None,
    description: str | None,
    automation_condition: dg.AutomationCondition[Any] | None,
    freshness_policy: dg.FreshnessPolicy | None,
    partitions_def: dg.PartitionsDefinition | None,
) -> dg.AssetSpec:
    """The spec with what is given instead of what it says; tags are added, and a description stands before its own."""
    if description is not None:
        description = f"{description.strip()}\n\n{spec.description or ''}".strip()
    given: dict[str, Any] = {
        "deps": deps,
        "group_name": group_name,
        "owners": owners,
        "description": description,
        "automation_condition": automation_condition,
        "freshness_policy": freshness_policy,
        "partitions_def": partitions_def,
    }
    replaced = spec.replace_attributes(**{name: value for name, value in given.items() if value is not None})
    return replaced.merge_attributes(tags=tags or {})


def upstream_specs(
    targets: Sequence[Target], *, translator: AthenaUnloadTranslator | None = None
) -> list[dg.AssetSpec]:
    """External assets for the upstream tables that no target of the list fills, and that no other asset is.

    Without them Dagster shows such tables too, with nothing but their keys.

    Raises:
        InvalidTarget: as `get_asset_spec`.
    """
    translator = translator or AthenaUnloadTranslator()
    return external_specs(targets, translator, {translator.get_asset_spec(target).key for target in targets})


def external_specs(
    targets: Sequence[Target], translator: AthenaUnloadTranslator, taken: AbstractSet[dg.AssetKey]
) -> list[dg.AssetSpec]:
    """The same, for whoever knows the keys of the targets' assets: to ask for a spec is to read a query."""
    filled = {_filled(target) for target in targets}
    tables = dict.fromkeys(table for target in targets for table in upstream_tables(target))
    specs = [translator.get_upstream_spec(table) for table in sorted(tables, key=str) if table not in filled]
    return list({spec.key: spec for spec in specs if spec is not None and spec.key not in taken}.values())


def within_set(targets: Sequence[Target], translator: AthenaUnloadTranslator) -> AthenaUnloadTranslator:
    """The translator that also knows which of the upstream tables the targets themselves fill.

    Raises:
        InvalidTarget: two of them fill one table.
    """
    check_filled(targets)
    keys = {
        upstream_key(table): translator.get_asset_spec(target).key
        for target in targets
        if (table := _filled(target)) is not None
    }
    return _WithinSet(translator, keys) if keys else translator


def check_filled(targets: Sequence[Target]) -> None:
    """Refuses targets of one set that fill one table: it can be over one location only.

    Raises:
        InvalidTarget: names the second target of the pair, and the first in the text.
    """
    names: dict[UpstreamTable, str] = {}
    for target in targets:
        table = _filled(target)
        if table is None:
            continue
        if table in names:
            raise target.invalid(
                "glue_table",
                f"target {names[table]!r} fills {target.glue_table} too.",
                "Give each target a table of its own.",
            )
        names[table] = target.name


class _WithinSet(AthenaUnloadTranslator):
    def __init__(self, translator: AthenaUnloadTranslator, keys: Mapping[dg.AssetKey, dg.AssetKey]) -> None:
        self._translator = translator
        self._keys = keys

    def get_asset_spec(self, target: Target) -> dg.AssetSpec:
        spec = self._translator.get_asset_spec(target)
        return spec.replace_attributes(deps=self._mapped(spec))

    def get_upstream_key(self, table: UpstreamTable) -> dg.AssetKey:
        key = self._translator.get_upstream_key(table)
        return self._keys.get(key, key)

    def get_upstream_spec(self, table: UpstreamTable) -> dg.AssetSpec | None:
        return self._translator.get_upstream_spec(table)

    def _mapped(self, spec: dg.AssetSpec) -> Iterable[dg.AssetDep]:
        """The deps by the keys of their targets; the first of two that become one."""
        deps: dict[dg.AssetKey, dg.AssetDep] = {}
        for dep in spec.deps:
            key = self._keys.get(dep.asset_key, dep.asset_key)
            if key == dep.asset_key:
                deps.setdefault(key, dep)
            elif key != spec.key:
                deps.setdefault(key, dg.AssetDep(key, partition_mapping=dep.partition_mapping))
        return deps.values()


def code_version(target: Target) -> str:
    """Changes with everything that decides which bytes are published, and where: not with how."""
    parts = [
        target.query,
        target.format.properties(),
        dict(target.parameters),
        target.catalog,
        target.database,
        target.location,
    ]
    if query_placeholders(target.query) & {START, END}:
        parts += [str(target.grain), *target.dimensions[:1]]  # the first one is the time
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _filled(target: Target) -> UpstreamTable | None:
    """The table that the target's results are read through."""
    if target.glue_table is None:
        return None
    database, _, name = target.glue_table.partition(".")
    return UpstreamTable(database, name, GLUE_CATALOG)


def _readable_query(target: Target) -> str:
    """The query with its parameters' values; what depends on the partition stays a placeholder."""
    open_ones = {name: f"${{{name}}}" for name in target.key_placeholders}
    text = render_query(check_query(target.query), {**target.parameters, **open_ones})
    for placeholder in open_ones.values():
        text = text.replace(f"'{placeholder}'", placeholder)
    return text.strip()
