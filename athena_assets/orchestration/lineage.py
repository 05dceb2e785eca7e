"""Which Dagster assets the upstream tables are."""

import dagster as dg

from athena_assets.core.target import UpstreamTable

GLUE_CATALOG = "awsdatacatalog"  # the account's own


def upstream_key(table: UpstreamTable) -> dg.AssetKey:
    """[database, table] in lower case, with the data catalog in front if it is not the account's own."""
    names = [table.database, table.name]
    if table.catalog.lower() != GLUE_CATALOG:
        names.insert(0, table.catalog)
    return dg.AssetKey([name.lower() for name in names])
