"""Glue: the versions of upstream tables, and the external table over a target."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from athena_assets.aws.replies import Refusal, question
from athena_assets.aws.s3 import S3
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import ListedObject, Unanswered
from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.target import UpstreamTable
from athena_assets.errors import AccessDenied

logger = logging.getLogger(__name__)

GLUE_CATALOG = "awsdatacatalog"


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
            description = self._table(table)
            return None if description is None else self._version_of(table, description)
        except AccessDenied as error:
            logger.warning("The version of %s is unknown, so its results are not reused: %s", table, error)
            return None

    def _table(self, table: UpstreamTable) -> Mapping[str, Any] | None:
        answer = question(
            str(table),
            self._clients.glue.get_table,
            {"DatabaseName": table.database, "Name": table.name},
            expect="Table",
        )
        if isinstance(answer, Refusal | Unanswered):
            logger.warning("The version of %s is unknown: GetTable answered %s", table, answer)
            return None
        return answer["Table"]

    def _version_of(self, table: UpstreamTable, description: Mapping[str, Any]) -> str | None:
        parameters: Mapping[str, str] = description.get("Parameters", {})
        if parameters.get("table_type", "").upper() == "ICEBERG":
            location = parameters.get("metadata_location")
            return None if location is None else f"iceberg:{location}"
        location = description.get("StorageDescriptor", {}).get("Location", "")
        if description.get("TableType") == "VIRTUAL_VIEW" or not location.startswith("s3://"):
            return None
        digest = hashlib.sha256()
        locations = [location]
        if description.get("PartitionKeys"):
            if "storage.location.template" in parameters:
                return None
            if parameters.get("projection.enabled", "").lower() != "true":
                partitions = self._partitions(table)
                if partitions is None:
                    return None
                digest.update(repr(partitions).encode())
                locations += [place for _, place in partitions if not place.startswith(_directory(location))]
        for place in locations:
            listing = self._listing(place)
            if listing is None:
                return None
            for found in listing:
                digest.update(f"{found.key}\0{found.size}\0{found.etag}\n".encode())
        return f"s3-listing:{digest.hexdigest()}"

    def _partitions(self, table: UpstreamTable) -> list[tuple[tuple[str, ...], str]] | None:
        found: list[tuple[tuple[str, ...], str]] = []
        token: str | None = None
        while True:
            answer = question(
                str(table),
                self._clients.glue.get_partitions,
                {"DatabaseName": table.database, "TableName": table.name, "NextToken": token},
                expect="Partitions",
            )
            if isinstance(answer, Refusal | Unanswered):
                logger.warning("The version of %s is unknown: GetPartitions answered %s", table, answer)
                return None
            found += ((tuple(each["Values"]), each["StorageDescriptor"]["Location"]) for each in answer["Partitions"])
            token = answer.get("NextToken")
            if token is None:
                return sorted(found)

    def _listing(self, location: str) -> tuple[ListedObject, ...] | None:
        bucket, _, prefix = _directory(location).removeprefix("s3://").partition("/")
        listing = S3(self._clients, bucket).list_prefix(bucket, prefix)
        if isinstance(listing, Unanswered):
            logger.warning("The listing of %s was not answered: %s", location, listing.reason)
            return None
        return listing


def _directory(location: str) -> str:
    return location if location.endswith("/") else location + "/"
