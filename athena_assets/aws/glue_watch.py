"""A look at many tables within a bounded time, for whoever looks again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TypeVar

from athena_assets.aws.glue_catalog import GLUE_CATALOG, CallFailed, Description, OutOfTime, tables_of
from athena_assets.aws.glue_versions import NoVersion, TableVersion, VersionKind, version_of
from athena_assets.aws.session import AwsClients
from athena_assets.core.target import UpstreamTable
from athena_assets.errors import AccessDenied

T = TypeVar("T")

AT_ONCE = 16  # databases, then tables, looked at at one time

VersionOf = Callable[[UpstreamTable], str | None]
"""A way of one's own to tell a table's version; None: nothing tells it now. Called from several threads."""

Chosen = VersionKind | VersionOf


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look found. A table in neither of the first two was not reached in the time there was.

    Args:
        versions: of the tables that could be looked up.
        failed: why others could not.
        unreached: those that come first in the next look, in that order.
    """

    versions: Mapping[UpstreamTable, TableVersion] = field(default_factory=dict)
    failed: Mapping[UpstreamTable, str] = field(default_factory=dict)
    unreached: Sequence[UpstreamTable] = ()


def look_at(
    clients: AwsClients,
    tables: Sequence[UpstreamTable],
    chosen: Mapping[UpstreamTable, Chosen],
    *,
    seconds: float,
    clock: Callable[[], float] = monotonic,
) -> Seen:
    """Looks at the tables, in their order as far as the time goes; returns in time whatever AWS does.

    One GetTables for each database and page of it; then, for tables that need it, GetPartitions and listings. What one
    table's look raises is told in `failed` and ends no other. Calls that are under way at the end of the time are left
    to end by themselves; their answers are not used.
    """
    until = clock() + seconds
    look = _Look(clients, chosen, lambda: max(until - clock(), 0.0))
    look.clients_made()
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="athena_assets_watch")
    try:
        own = [table for table in tables if callable(chosen.get(table)) and not isinstance(chosen[table], VersionKind)]
        others = [table for table in tables if table not in set(own)]
        databases: dict[str, list[UpstreamTable]] = {}
        for table in others:
            if table.catalog.lower() == GLUE_CATALOG:
                databases.setdefault(table.database, []).append(table)
            else:
                look.failed[table] = f"the catalog {table.catalog} is not Glue's"
        described: dict[UpstreamTable, Description] = {}
        for found in look.each(pool, [partial(look.describe, *each) for each in databases.items()]):
            described |= found
        look.each(
            pool,
            [
                partial(look.own, table) if table in set(own) else partial(look.version, table, described[table])
                for table in tables
                if table in described or table in set(own)
            ],
        )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    versions, failed = dict(look.versions), dict(look.failed)
    return Seen(versions, failed, [table for table in tables if table not in versions and table not in failed])


class _Look:
    def __init__(self, clients: AwsClients, chosen: Mapping[UpstreamTable, Chosen], left: Callable[[], float]) -> None:
        self._clients = clients
        self._chosen = chosen
        self._left = left
        self.versions: dict[UpstreamTable, TableVersion] = {}
        self.failed: dict[UpstreamTable, str] = {}

    def clients_made(self) -> None:
        """Here and not in the threads: a session makes one client at a time."""
        _ = self._clients.glue, self._clients.s3

    def each(self, pool: ThreadPoolExecutor, works: Iterable[Callable[[], T]]) -> list[T]:
        """What those gave that ended in time."""
        futures: list[Future[T]] = [pool.submit(work) for work in works]
        wait(futures, self._left())
        for future in futures:
            future.cancel()
        return [future.result() for future in futures if future.done() and not future.cancelled()]

    def describe(self, database: str, tables: Sequence[UpstreamTable]) -> dict[UpstreamTable, Description]:
        if not self._left():
            return {}
        try:
            found = tables_of(self._clients, database, [table.name for table in tables])
        except Exception as error:  # noqa: BLE001 - as below
            self.failed |= dict.fromkeys(tables, _told(error))
            return {}
        missing = [table for table in tables if table.name not in found]
        self.failed |= dict.fromkeys(missing, f"Glue shows no such table in the database {database}")
        return {table: found[table.name] for table in tables if table.name in found}

    def version(self, table: UpstreamTable, description: Description) -> None:
        if not self._left():
            return
        kind = self._chosen.get(table)
        assert kind is None or isinstance(kind, VersionKind)
        try:
            found = version_of(self._clients, table, description, kind, in_time=lambda: self._left() > 0)
        except OutOfTime:
            # It had its share of the time; if it were to come first again, others would wait behind it for ever.
            self.failed[table] = "its listing takes longer than a look may; choose another version_of"
        except Exception as error:  # noqa: BLE001 - a location that no client takes, say: no other table's affair
            self.failed[table] = _told(error)
        else:
            if isinstance(found, NoVersion):
                self.failed[table] = f"{found.reason}: choose a version_of, or the tables under it as upstreams"
            else:
                self.versions[table] = found

    def own(self, table: UpstreamTable) -> None:
        if not self._left():
            return
        tell = self._chosen[table]
        assert not isinstance(tell, VersionKind)
        try:
            version = tell(table)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises is this table's failure alone
            self.failed[table] = f"its version_of raised {type(error).__name__}: {error}"
            return
        if version is None:
            self.failed[table] = "its version_of told nothing"
        else:
            self.versions[table] = TableVersion(f"own:{version}")


def _told(error: Exception) -> str:
    if isinstance(error, AccessDenied):
        return error.what
    return str(error) if isinstance(error, CallFailed) else f"{type(error).__name__}: {error}"
