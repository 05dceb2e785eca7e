"""Whether the columns of a result are those of the publication before it."""

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

MOST_RECORDS = 1_000
"""Materializations that are looked through. A run of several partitions records each of them twice."""

_QUERY = "athena_assets/query_id"
_SCHEMA = "dagster/column_schema"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """`compared`: False if one of the two is not known: the first publication, or a format that tells no types."""

    compared: bool
    changes: tuple[str, ...] = ()


def schema_change(instance: dg.DagsterInstance, asset_key: dg.AssetKey, run_id: str) -> SchemaChange:
    """Compares the columns that this run's materializations recorded with those of the publication before them.

    In a run without a materialization (the check alone) the newest one stands for them. All that name one query are one
    publication, however often it was recorded or reused. Of a partitioned asset the publication before is that of
    whatever partition was recorded last: its partitions should have the same columns.
    """
    recorded = instance.fetch_materializations(asset_key, limit=MOST_RECORDS).records
    known = [
        (record.run_id, materialization.metadata[_QUERY].value, _schema(materialization))
        for record in recorded
        if (materialization := record.asset_materialization) is not None and _QUERY in materialization.metadata
    ]
    ours = [each for each in known if each[0] == run_id] or known[:1]
    queries = {query for _, query, _ in ours}
    older = known[known.index(ours[-1]) + 1 :] if ours else []
    before = next((schema for _, query, schema in older if query not in queries), None)
    if before is None or any(schema is None for _, _, schema in ours):
        return SchemaChange(compared=False)
    told = [line for _, _, schema in ours if schema is not None for line in _changes(before, schema)]
    return SchemaChange(compared=True, changes=tuple(dict.fromkeys(told)))


def _schema(materialization: dg.AssetMaterialization) -> dg.TableSchema | None:
    value = materialization.metadata.get(_SCHEMA)
    return value.schema if isinstance(value, dg.TableSchemaMetadataValue) else None


def _changes(before: dg.TableSchema, after: dg.TableSchema) -> Iterator[str]:
    old = {column.name: column.type for column in before.columns}
    new = {column.name: column.type for column in after.columns}
    yield from (f"{name} {kind} is new" for name, kind in new.items() if name not in old)
    yield from (f"{name} {kind} is gone" for name, kind in old.items() if name not in new)
    yield from (
        f"{name} was {old[name]} and is {kind}" for name, kind in new.items() if name in old and old[name] != kind
    )
    common = [name for name in old if name in new]
    if common != [name for name in new if name in old]:
        yield f"the order was {', '.join(old)} and is {', '.join(new)}"
