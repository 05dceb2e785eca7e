"""The versions of upstream tables, as the publisher asks for them."""

from __future__ import annotations

import logging

from athena_assets.aws.glue_catalog import GLUE_CATALOG, CallFailed, one_table
from athena_assets.aws.glue_versions import NoVersion, version_of
from athena_assets.aws.session import AwsClients
from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.target import UpstreamTable
from athena_assets.errors import AccessDenied

logger = logging.getLogger(__name__)


class UpstreamVersions:
    """Tells the version of a table, or None where nothing tells it: such a table's results are never reused.

    - Iceberg: the metadata file, which changes with every commit.
    - Tables over files in S3: a digest of the listing (keys, sizes, ETags) of the table's location and, for partitioned
      tables, of its partitions and their locations.
    - Views, other catalogs, partitions that are projected to other places: unknown.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients

    def resolve(self, tables: tuple[UpstreamTable, ...]) -> tuple[UpstreamVersion, ...]:
        """In the order of `tables`. A refused or unanswered call is logged and makes the version unknown."""
        return tuple(UpstreamVersion(str(table), self._version(table)) for table in tables)

    def _version(self, table: UpstreamTable) -> str | None:
        if table.catalog.lower() != GLUE_CATALOG:
            return None
        try:
            found = version_of(self._clients, table, one_table(self._clients, table.database, table.name))
        except CallFailed as error:
            logger.warning("The version of %s is unknown: %s", table, error)
            return None
        except AccessDenied as error:
            logger.warning("The version of %s is unknown, so its results are not reused: %s", table, error)
            return None
        return None if isinstance(found, NoVersion) else found.version
