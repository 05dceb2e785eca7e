"""Tables by name, as the `asset_keys` of a component have them."""

from collections.abc import Collection, Sequence
from pathlib import Path

import dagster as dg

from athena_assets.core.target import Target
from athena_assets.orchestration.lineage import GLUE_CATALOG, upstream_key, upstream_tables
from athena_assets.sql import inspect_query


def key_of(name: str) -> dg.AssetKey:
    """The key that `upstream_key` gives the table of a name: database.table, or catalog.database.table."""
    return dg.AssetKey(name.lower().removeprefix(f"{GLUE_CATALOG}.").split("."))


def check_asset_keys(names: Collection[str], targets: Sequence[Target], source: Path) -> None:
    """Refuses what names no table, and a table that no target reads. That only where all that they read is known.

    Raises:
        DagsterInvalidDefinitionError: names the file and the table.
    """
    for name in names:
        if name.count(".") not in (1, 2):
            raise dg.DagsterInvalidDefinitionError(
                f"asset_keys in {source}: {name!r} names no table. Nothing was loaded. "
                "Write database.table, or catalog.database.table."
            )
    if not names or any(each.upstreams is None and inspect_query(each).tables is None for each in targets):
        return
    read = {upstream_key(table) for target in targets for table in upstream_tables(target)}
    for name in names:
        if key_of(name) not in read:
            tables = ", ".join(sorted(".".join(each.path) for each in read)) or "none"
            raise dg.DagsterInvalidDefinitionError(
                f"asset_keys in {source}: no target reads the table {name!r}; they read {tables}. Nothing was loaded. "
                "Write database.table, or catalog.database.table, of one that they read."
            )
