"""S3, Athena and the upstream tables as one value, on which an effect of the protocol is performed at once.

What AWS does late or twice, or does not say, is not here: whoever drives the world (the explorer, the simulator)
performs an effect later, or performs it and keeps the answer back.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from athena_assets.core import effects, keys
from athena_assets.core.effects import Effect, Pointer, QueryState, QueryStatus
from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.location import Location, parse_location
from athena_assets.core.register import (
    FailureKind,
    GlueTable,
    Register,
    StartParameters,
    State,
    decode_register,
)

RESULTS = "s3://results/"
STRANGERS = "strangers-"  # how the names of strangers' objects in the location begin
STRANGE_KEY = "marts/other/strangers"  # where a stranger keeps rows of his own, outside the location


@dataclass(frozen=True, slots=True)
class Object:
    body: bytes
    metadata: tuple[tuple[str, str], ...] = ()
    modified: float = 0.0

    @property
    def etag(self) -> str:
        return etag(self.body)


@functools.lru_cache(100_000)
def etag(body: bytes) -> str:
    """A hash of the contents, as S3's: equal bytes have equal ETags, whoever wrote them."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Query:
    """One query of Athena's history.

    Args:
        files: the keys that its data manifest names.
        manifest: Athena tells where that manifest is.
        known: False once Athena has forgotten the query.
        foreign: somebody else started it, by hand; what it writes is not ours.
        read: the version of the upstream table that it read; a witness, which no caller is told.
    """

    id: str
    token: str
    parameters: StartParameters
    state: QueryState = QueryState.ACTIVE
    kind: FailureKind | None = None
    files: tuple[str, ...] = ()
    manifest: bool = True
    known: bool = True
    foreign: bool = False
    read: int = field(default=0, repr=False, compare=False)

    @property
    def manifest_uri(self) -> str:
        return f"{RESULTS}{self.id}-manifest.csv"


@dataclass(frozen=True, slots=True)
class Commit:
    """One publication that a register once named, as a witness of its own."""

    slot: str
    request: str
    fence: int
    query_id: str
    restored: bool
    generation: str
    reusable: bool


@dataclass(slots=True)
class World:
    """Mutable; `copy` is cheap and shares nothing that changes.

    Args:
        objects: by key, of the one bucket.
        queries: by id, in the order of their start.
        tokens: token to query id; Athena forgets.
        upstream: the version of the one upstream table that queries read.
        clock: S3's, seconds.
        foreign: what strangers wrote, to be found again.
        commits: every publication in the order of its commit.
        readable: (slot, fence) of publications that readers could once read; with Glue, once it sent them there.
        usurped: the fence under which an owner followed another without raising it.
        lost: (slot, fence) of publications that were given up, because their files had vanished.
        stolen: keys of our own objects that somebody else deleted.
        tables: where Glue sends the readers of a table, or of a partition of it.
        glue: publications are not readable before Glue sends readers there.
        set_back: the fence of a table's pointer that a lower one overwrote.
        crowded: a query that was started while one with its token, or a foreign one, was running.
    """

    objects: dict[str, Object] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    results: dict[str, bytes] = field(default_factory=dict)
    upstream: int = 1
    clock: float = 0.0
    files_per_query: int = 1
    foreign: dict[str, Object] = field(default_factory=dict)
    commits: tuple[Commit, ...] = ()
    readable: frozenset[tuple[str, int]] = frozenset()
    usurped: int | None = None
    lost: frozenset[tuple[str, int]] = frozenset()
    stolen: frozenset[str] = frozenset()
    tables: dict[GlueTable, Pointer] = field(default_factory=dict)
    glue: bool = False
    set_back: int | None = None
    crowded: str | None = None

    def __post_init__(self) -> None:
        if not self.foreign:
            self.intrude(STRANGE_KEY)

    def copy(self) -> World:
        return World(
            dict(self.objects),
            dict(self.queries),
            dict(self.tokens),
            dict(self.results),
            self.upstream,
            self.clock,
            self.files_per_query,
            self.foreign,
            self.commits,
            self.readable,
            self.usurped,
            self.lost,
            self.stolen,
            dict(self.tables),
            self.glue,
            self.set_back,
            self.crowded,
        )

    def perform(self, effect: Effect[Any]) -> Any:
        """The answer of a service that works; what the effect changes is changed."""
        return _PERFORM[type(effect)](self, effect)

    # --- S3 ----------------------------------------------------------------------------------------------------------

    def put(self, key: str, body: bytes, metadata: tuple[tuple[str, str], ...] = ()) -> Object:
        self.objects[key] = written = Object(body, metadata, self.clock)
        return written

    def intrude(self, key: str) -> None:
        """A stranger writes an object, which nobody else may touch."""
        self.foreign = {**self.foreign, key: self.put(key, b"a stranger's rows")}

    def leave(self, key: str) -> None:
        """A stranger takes his object away again."""
        self.foreign = {other: found for other, found in self.foreign.items() if other != key}
        del self.objects[key]

    def steal(self, prefix: str) -> None:
        """Somebody, such as a lifecycle rule, deletes what is ours."""
        doomed = [key for key in self.objects if key.startswith(prefix) and key not in self.foreign]
        for key in doomed:
            del self.objects[key]
        self.stolen |= frozenset(doomed)

    def listing(self, prefix: str) -> tuple[effects.ListedObject, ...]:
        return tuple(
            effects.ListedObject(key, len(found.body), found.etag, found.modified)
            for key, found in sorted(self.objects.items())
            if key.startswith(prefix)
        )

    def _read(self, effect: effects.ReadObject) -> effects.ObjectRead | effects.Absent:
        found = self.objects.get(effect.key)
        if found is None:
            return effects.Absent()
        return effects.ObjectRead(found.body, found.etag, self.clock, self.clock - found.modified)

    def _read_uri(self, effect: effects.ReadUri) -> bytes | effects.Absent:
        return self.results.get(effect.uri, effects.Absent())

    def _write(self, effect: effects.WriteObject) -> effects.Written | effects.Refused:
        found = self.objects.get(effect.key)
        if effect.if_match is None:
            if found is not None:
                return effects.Refused(412, "PreconditionFailed")
        elif found is None:
            return effects.Refused(404, "NoSuchKey")
        elif found.etag != effect.if_match:
            return effects.Refused(412, "PreconditionFailed")
        written = self.put(effect.key, effect.body)
        if effect.key.endswith("/register.json"):
            self._witness(effect.key, found)
        return effects.Written(written.etag, self.clock)

    def _list(self, effect: effects.ListObjects) -> tuple[effects.ListedObject, ...]:
        return self.listing(effect.prefix)

    def _folders(self, effect: effects.ListFolders) -> tuple[str, ...]:
        inside = (key.removeprefix(effect.prefix) for key in self.objects if key.startswith(effect.prefix))
        return tuple(sorted({f"{effect.prefix}{each.partition('/')[0]}/" for each in inside if "/" in each}))

    def _head(self, effect: effects.HeadObject) -> effects.ObjectHead | effects.Absent:
        found = self.objects.get(effect.key)
        if found is None:
            return effects.Absent()
        return effects.ObjectHead(len(found.body), found.etag, dict(found.metadata))

    def _copy(self, effect: effects.CopyObject) -> effects.Done | effects.Absent | effects.Refused:
        source = self.objects.get(effect.source)
        if source is None:
            return effects.Absent()
        if source.etag != effect.source_etag or effect.destination in self.objects:
            return effects.Refused(412, "PreconditionFailed")
        kept = source.metadata if effect.metadata is None else tuple(sorted(effect.metadata.items()))
        self.put(effect.destination, source.body, kept)
        return effects.Done()

    def _delete(self, effect: effects.DeleteObject) -> effects.Done | effects.Refused:
        found = self.objects.get(effect.key)
        if found is None:
            return effects.Done()
        if found.etag != effect.etag:
            return effects.Refused(412, "PreconditionFailed")
        del self.objects[effect.key]
        return effects.Done()

    def _abort(self, effect: effects.AbortUploads) -> effects.Done:
        """Copies are applied at once here: there is nothing unfinished."""
        del effect
        return effects.Done()

    def _at_once(self, effect: effects.AtOnce) -> tuple[Any, ...]:
        return tuple(self.perform(each) for each in effect.effects)

    # --- Glue --------------------------------------------------------------------------------------------------------

    def touch_tables(self) -> None:
        """Somebody changes the tables, though not where they point."""
        for table, found in self.tables.items():
            if found.version is not None:
                self.tables[table] = replace(found, version=str(int(found.version) + 1))

    def _read_pointer(self, effect: effects.ReadPointer) -> Pointer | effects.Absent:
        whole = self.tables.get(replace(effect.table, value=None))
        if whole is None or effect.table.value is None:
            return whole or effects.Absent()
        return self.tables.get(effect.table, Pointer(whole.root, None))

    def _move_pointer(self, effect: effects.MovePointer) -> effects.Done | effects.Refused:
        """A table has a version, which the caller must know; a partition has none."""
        table = replace(effect.table, value=None)
        found = self.tables.get(table)
        moved = Pointer(table.root, effect.location, "1", effect.slot, effect.fence)
        if (found is None) != (effect.expected is None):
            return effects.Refused(409, "AlreadyExistsException" if found else "EntityNotFoundException")
        if found is None and effect.table.value is not None:
            self.tables[table] = Pointer(table.root, table.root, "1")
            return effects.Done()
        if found is None:
            self.tables[table] = moved
        elif effect.table.value is not None:
            self.tables[effect.table] = replace(moved, version=None)
        elif effect.expected is None or effect.expected.version != found.version:
            return effects.Refused(409, "ConcurrentModificationException")
        else:
            if found.fence is not None and found.fence > effect.fence:
                self.set_back = found.fence
            self.tables[table] = replace(moved, version=str(int(found.version or 0) + 1))
        self.readable |= {(_prefix_of(effect.slot), effect.fence)}
        return effects.Done()

    # --- Athena ------------------------------------------------------------------------------------------------------

    def _start(self, effect: effects.StartQuery) -> effects.QueryStarted | effects.TokenMismatch:
        known = self.tokens.get(effect.token)
        if known is not None:
            same = self.queries[known].parameters == effect.parameters
            return effects.QueryStarted(known) if same else effects.TokenMismatch()
        query = Query(f"{len(self.queries) + 1:020x}", effect.token, effect.parameters)
        if any(each.token == effect.token or each.foreign for each in self.active()):
            self.crowded = query.id
        if self.listing(effect.parameters.staging):  # checked once, here; the writes come later
            query = replace(query, state=QueryState.FAILED, kind=FailureKind.DESTINATION_EXISTS)
        self.queries[query.id] = query
        self.tokens[effect.token] = query.id
        return effects.QueryStarted(query.id)

    def _poll(self, effect: effects.PollQuery) -> QueryStatus | effects.QueryMissing:
        query = self.queries.get(effect.query_id)
        if query is None or not query.known:
            return effects.QueryMissing()
        if query.state is QueryState.SUCCEEDED:
            return QueryStatus(query.state, data_manifest=query.manifest_uri if query.manifest else None)
        return QueryStatus(query.state, query.kind, "" if query.kind is None else f"it ended as {query.kind}")

    def _stop(self, effect: effects.StopQuery) -> effects.Done:
        query = self.queries.get(effect.query_id)
        if query is not None and query.state is QueryState.ACTIVE:
            self.queries[query.id] = replace(query, state=QueryState.FAILED, kind=FailureKind.CANCELLED)
        return effects.Done()

    def _look(self, effect: effects.LookForQueries) -> effects.QueriesFound:
        """Also queries that `GetQueryExecution` no longer knows: the list does not forget with it."""
        found = [
            effects.RunningQuery(
                each.id,
                each.parameters.workgroup or "primary",
                each.parameters.query,
                each.parameters.catalog,
                each.parameters.database,
                each.parameters.output_location or "",
                "RUNNING",
                float(number),
            )
            for number, each in enumerate(self.queries.values())
            if each.state is QueryState.ACTIVE and (each.parameters.workgroup or "primary") == effect.workgroup
        ]
        return effects.QueriesFound(tuple(reversed(found)))

    def by_hand(self, text: str, destination: str, **changes: str) -> None:
        """Somebody starts a query that is not ours."""
        fields = {"catalog": "AwsDataCatalog", "database": "default", "workgroup": "primary", **changes}
        parameters = StartParameters(query=text, staging=destination, output_location=None, **fields)
        query = Query(f"{len(self.queries) + 1:020x}", "", parameters, foreign=True)
        self.queries[query.id] = query

    def _count(self, effect: effects.CountRows) -> int:
        return len(self.queries[effect.query_id].files)

    def _resolve(self, effect: effects.ResolveUpstreams) -> tuple[UpstreamVersion, ...]:
        return tuple(UpstreamVersion(str(table), f"v{self.upstream}") for table in effect.tables)

    def active(self) -> Iterator[Query]:
        return (query for query in self.queries.values() if query.state is QueryState.ACTIVE)

    def succeed(
        self,
        query: Query,
        *,
        orphan: bool = False,
        foreign: str | None = None,
        manifest: bool = True,
        files: int | None = None,
        read: int | None = None,
    ) -> None:
        """The query writes its rows, and ends.

        Args:
            orphan: an internal restart leaves a file that no manifest names.
            foreign: a key that the data manifest names although the query did not write it.
            manifest: Athena tells where the data manifest is.
            files: how many the query writes, if not as many as every other.
            read: the version of the upstream table that it read; None: the present one.
        """
        version = self.upstream if read is None else read
        count = self.files_per_query if files is None else files
        names = [f"{query.parameters.staging}{query.id}-{index}" for index in range(count)]
        for name in names:
            self._emit(query, name, version)
        if orphan:
            self._emit(query, f"{query.parameters.staging}{query.id}-orphan", version)
        if foreign is not None:
            names.append(foreign)
        self.queries[query.id] = replace(
            query, state=QueryState.SUCCEEDED, files=tuple(names), manifest=manifest, read=version
        )
        self.results[query.manifest_uri] = "".join(f"s3://lake/{name}\n" for name in names).encode()

    def fail(self, query: Query, kind: FailureKind, *, partial: bool) -> None:
        if partial:
            self._emit(query, f"{query.parameters.staging}{query.id}-0", self.upstream)
        self.queries[query.id] = replace(query, state=QueryState.FAILED, kind=kind)

    def _emit(self, query: Query, name: str, version: int) -> None:
        if query.foreign:
            self.intrude(name)
        else:
            self.put(name, rows(name, version))

    # --- witnesses ---------------------------------------------------------------------------------------------------

    def register(self, location: Location) -> Register | None:
        found = self.objects.get(keys.register_key(location))
        return None if found is None else decoded(found.body)

    def _witness(self, key: str, before: Object | None) -> None:
        """Notes commits and changes of owner, by comparing what the register says with what it said."""
        after = decoded(self.objects[key].body)
        earlier = None
        if before is not None:
            said = decoded(before.body)
            earlier = said.publication
            others = after.owner is not None and (said.owner is None or said.owner.session != after.owner.session)
            if others and after.fence <= said.fence:
                self.usurped = after.fence
        named = after.publication
        if named is None:
            return
        slot = key.removesuffix("register.json")
        if earlier is None or (earlier.fence, earlier.request) != (named.fence, named.request):
            self.commits += (
                Commit(
                    slot,
                    named.request,
                    named.fence,
                    named.query_id,
                    named.restored is not None,
                    named.generation,
                    named.reusable,
                ),
            )
        if named.lost:
            self.lost |= {(slot, named.fence)}
        elif after.state is not State.PUBLISHING and (not self.glue or (not named.files and not self._pointed(slot))):
            self.readable |= {(slot, named.fence)}

    def _pointed(self, slot: str) -> bool:
        """Glue sends readers somewhere in the slot; before that, an empty result needs no table."""
        return any(each.slot is not None and _prefix_of(each.slot) == slot for each in self.tables.values())


def rows(name: str, upstream: int) -> bytes:
    """What a query writes into one file: unlike every other file of every other query."""
    return f"rows of {name.rpartition('/')[2]}, upstream v{upstream}".encode()


def _prefix_of(slot: str) -> str:
    return keys.slot_prefix(parse_location(slot))


@functools.lru_cache(20_000)
def decoded(body: bytes) -> Register:
    return decode_register(body)


_PERFORM: dict[type[Effect[Any]], Any] = {
    effects.ReadObject: World._read,
    effects.ReadUri: World._read_uri,
    effects.WriteObject: World._write,
    effects.ListObjects: World._list,
    effects.ListFolders: World._folders,
    effects.AbortUploads: World._abort,
    effects.AtOnce: World._at_once,
    effects.HeadObject: World._head,
    effects.CopyObject: World._copy,
    effects.DeleteObject: World._delete,
    effects.StartQuery: World._start,
    effects.PollQuery: World._poll,
    effects.StopQuery: World._stop,
    effects.LookForQueries: World._look,
    effects.CountRows: World._count,
    effects.ResolveUpstreams: World._resolve,
    effects.ReadPointer: World._read_pointer,
    effects.MovePointer: World._move_pointer,
}
