"""The version of a table, read from Glue's description of it and, where need be, from its files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import unquote

from athena_assets.aws.glue_catalog import Description, Partition, directory, files_at, partitions_of
from athena_assets.aws.session import AwsClients
from athena_assets.core.target import UpstreamTable

Values = tuple[str, ...]  # of a partition, in the order of the table's partition columns


class VersionKind(StrEnum):
    """What tells that a table has changed."""

    ICEBERG = "iceberg"  # the metadata file, which is another one after each commit
    LISTING = "listing"  # keys, sizes and ETags of all files
    PARTITIONS = "partitions"  # Glue's partitions, without a look at their files
    GLUE = "glue"  # Glue's own version of the table


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The version of a table, and of each of its partitions where it has some that can be told apart.

    Args:
        whole: a change comes by one commit, so that readers never see a half of it.
    """

    version: str
    partitions: Mapping[Values, str] | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class NoVersion:
    """Nothing tells the version of such a table."""

    reason: str


def version_of(
    clients: AwsClients,
    table: UpstreamTable,
    description: Description,
    kind: VersionKind | None = None,
    in_time: Callable[[], bool] = lambda: True,
) -> TableVersion | NoVersion:
    """The version by `kind`; None: `iceberg` for Iceberg tables, `listing` for others.

    Raises:
        CallFailed, AccessDenied: a call that is needed was not answered, or refused.
        OutOfTime: `in_time` became false before the listing ended.
    """
    parameters = _parameters(description)
    is_iceberg = parameters.get("table_type", "").upper() == "ICEBERG"
    match kind or (VersionKind.ICEBERG if is_iceberg else VersionKind.LISTING):
        case VersionKind.ICEBERG:
            location = parameters.get("metadata_location")
            if location is None:
                return NoVersion("it has no metadata_location, as an Iceberg table has")
            return TableVersion(f"iceberg:{location}", whole=True)
        case VersionKind.GLUE:
            times = "/".join(_time(description, name) for name in ("CreateTime", "UpdateTime"))
            return TableVersion(f"glue:{description.get('VersionId')}/{times}")
        case VersionKind.PARTITIONS:
            return _by_partitions(clients, table, description)
        case VersionKind.LISTING:
            return _by_listing(clients, table, description, in_time)


def _by_partitions(clients: AwsClients, table: UpstreamTable, description: Description) -> TableVersion | NoVersion:
    if not description.get("PartitionKeys"):
        return NoVersion("it has no partitions in Glue")
    if _projected(description):
        return NoVersion("its partitions are projected, and not in Glue")
    found = {
        tuple(each["Values"]): _digest([_place(each), _time(each, "CreationTime"), sorted(_parameters(each).items())])
        for each in partitions_of(clients, table.database, table.name)
    }
    return TableVersion(f"partitions:{_digest(sorted(found.items()))}", found)


def _by_listing(
    clients: AwsClients, table: UpstreamTable, description: Description, in_time: Callable[[], bool]
) -> TableVersion | NoVersion:
    location = description.get("StorageDescriptor", {}).get("Location", "")
    if description.get("TableType") == "VIRTUAL_VIEW":
        return NoVersion("it is a view")
    if not location.startswith("s3://"):
        return NoVersion(f"its location is not in S3: {location!r}")
    columns = [each["Name"].lower() for each in description.get("PartitionKeys") or ()]
    digest = hashlib.sha256()
    locations = [location]
    places: dict[str, Values] | None = None
    if columns:
        if "storage.location.template" in _parameters(description):
            return NoVersion("its partitions are projected by storage.location.template")
        if not _projected(description):
            partitions = [
                (tuple(each["Values"]), _place(each)) for each in partitions_of(clients, table.database, table.name)
            ]
            partitions.sort()
            digest.update(repr(partitions).encode())
            locations += [place for _, place in partitions if not place.startswith(directory(location))]
            places = {directory(place): values for values, place in partitions}
    parts = _Parts(location, columns, places)
    for place in locations:
        bucket = place.removeprefix("s3://").partition("/")[0]
        for key, size, etag in files_at(clients, place, in_time):
            line = f"{key}\0{size}\0{etag}\n".encode()
            digest.update(line)
            if columns:
                parts.add(f"s3://{bucket}/{key}", line)
    return TableVersion(f"s3-listing:{digest.hexdigest()}", parts.versions() if columns else None)


class _Parts:
    """A digest for each partition: of its location and the files there.

    `places`: directory to values; None: as Athena lays projected partitions out, `location/column=value/`.
    """

    def __init__(self, location: str, columns: list[str], places: dict[str, Values] | None) -> None:
        self._root = directory(location)
        self._columns = columns
        self._places = places
        self._known: dict[str, Values | None] = {}
        self._digests = {values: hashlib.sha256(place.encode()) for place, values in (places or {}).items()}

    def add(self, uri: str, line: bytes) -> None:
        folder = uri[: uri.rindex("/") + 1]
        if folder not in self._known:
            self._known[folder] = self._projected(folder) if self._places is None else self._registered(folder)
        values = self._known[folder]
        if values is not None:
            self._digests.setdefault(values, hashlib.sha256()).update(line)

    def versions(self) -> dict[Values, str]:
        return {values: digest.hexdigest()[:32] for values, digest in self._digests.items()}

    def _registered(self, folder: str) -> Values | None:
        assert self._places is not None
        while folder.count("/") > 2:  # those of s3://
            if folder in self._places:
                return self._places[folder]
            folder = folder[: folder.rstrip("/").rfind("/") + 1]
        return None

    def _projected(self, folder: str) -> Values | None:
        segments = folder.removeprefix(self._root).split("/")[: len(self._columns)]
        pairs = [each.partition("=") for each in segments]
        if [name.lower() for name, _, _ in pairs] != self._columns:
            return None
        return tuple(unquote(value) for _, _, value in pairs)


def _projected(description: Description) -> bool:
    return _parameters(description).get("projection.enabled", "").lower() == "true"


def _parameters(described: Mapping[str, Any]) -> Mapping[str, str]:
    return described.get("Parameters") or {}


def _time(described: Mapping[str, Any], name: str) -> str:
    """The same wherever it is read: botocore gives it in the machine's own zone."""
    found: datetime | None = described.get(name)
    return "" if found is None else str(found.timestamp())


def _place(partition: Partition) -> str:
    location: str = partition["StorageDescriptor"]["Location"]
    return location


def _digest(content: Iterable[object]) -> str:
    return hashlib.sha256(repr(list(content)).encode()).hexdigest()[:32]
