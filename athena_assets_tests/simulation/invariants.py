"""What must hold: the promises of the protocol as predicates on the world, each under the name of its invariant.

They read objects and queries, and what the world has witnessed; never what a caller believes.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from athena_assets.core import keys
from athena_assets.core.codec import decode
from athena_assets.core.effects import QueryState
from athena_assets.core.location import Location
from athena_assets.core.manifest import Manifest
from athena_assets.core.register import Mode, Publication, State
from athena_assets.core.request import Published, Reused, Skipped
from athena_assets.errors import AthenaAssetsError
from athena_assets_tests.simulation.world import Commit, Query, World, rows


class Violation(Exception):
    """One invariant does not hold; `invariant` is its name."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what


@dataclass(frozen=True, slots=True)
class Invariants:
    """The promises about one slot.

    Args:
        location: the slot.
        mode: how it is published.
        generations: of each caller, by the version of the upstream table.
        requests: the request id of each caller.
        selects: the SELECT of each definition.
        errors: what a caller may end with, by the fault that explains it; and by its name, what it may always.
        queries: how many there are in the end, if all that goes wrong is harmless; None: that depends.
        harmless: faults that cost no query.
        versions: the version of the upstream table that each generation stands for.
        alone: no query is started while another of the same attempt, or a foreign one, runs. The guard can't promise
            it, for its look comes before the start; within what these callers may suffer it holds.
    """

    location: Location
    mode: Mode
    requests: Mapping[str, str]
    generations: Mapping[str, Mapping[int, str]]
    selects: Mapping[str, str]
    queries: int | None
    harmless: frozenset[Any]
    errors: Mapping[Any, tuple[type[AthenaAssetsError], ...]] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    alone: bool = False

    # --- in every state ----------------------------------------------------------------------------------------------

    def always(self, world: World) -> None:
        self._committed_once(world)
        self._fences_rise(world)
        self._strangers_untouched(world)
        self._rows_once(world)
        self._published_whole(world)
        self._nothing_needed_is_gone(world)
        self._sent_to_one_whole_result(world)
        if self.alone and world.crowded is not None:
            raise Violation("Q1", f"query {world.crowded} was started beside one that the guard should have found")

    def commits(self, world: World) -> list[Commit]:
        slot = keys.slot_prefix(self.location)
        return [each for each in world.commits if each.slot == slot]

    def _committed_once(self, world: World) -> None:
        whole = [each for each in self.commits(world) if (each.slot, each.fence) not in world.lost]
        for request, times in Counter(each.request for each in whole).items():
            if times > 1:
                raise Violation("I1", f"request {request} has committed {times} publications")

    def _fences_rise(self, world: World) -> None:
        fences = [each.fence for each in self.commits(world)]
        if any(earlier >= later for earlier, later in itertools.pairwise(fences)):
            raise Violation("I5", f"the fences of successive publications are {fences}")
        if world.usurped is not None:
            raise Violation("I5", f"an owner followed another under the same fence {world.usurped}")

    def _strangers_untouched(self, world: World) -> None:
        for key, found in world.foreign.items():
            if world.objects.get(key) is not found:
                raise Violation("I7", f"{key}, which a stranger wrote, was overwritten or deleted")

    def _rows_once(self, world: World) -> None:
        if self.mode is not Mode.POINTER:  # there nobody lists the location
            rows_once(list(self._visible(world).values()), mixed=self.mode is Mode.DIRECT)

    def _published_whole(self, world: World) -> None:
        register = world.register(self.location)
        publication = None if register is None else register.publication
        if register is None or publication is None or publication.lost:
            return
        query = world.queries.get(publication.query_id)
        if query is None or query.state is not QueryState.SUCCEEDED:
            raise Violation("I2", f"the published query {publication.query_id} has not succeeded")
        select = self.selects.get(publication.definition)
        if select is None or select not in query.parameters.query:
            raise Violation("I2", f"the published query {publication.query_id} is another than the publication says")
        manifest = manifest_of(world, publication)
        if sorted(each.source for each in manifest.files) != sorted(query.files) and not publication.restored:
            raise Violation("I2", "the publication's files are not those of its query's data manifest")
        version = self.versions.get(publication.generation, 0)
        if query.read < version or (publication.reusable and version and query.read != version):
            raise Violation("R1", f"a publication for upstream v{version} has rows of v{query.read}")
        if publication.directory is None and register.state in (State.PUBLISHING, State.BLOCKED):
            return
        if self.mode is Mode.DIRECT and register.state is not State.FREE:
            return  # it publishes into an empty location only: the files have been taken away
        if publication.directory is not None and _stolen(world, publication.directory):
            return
        visible = self._visible(world, publication.directory)
        if visible.keys() != {each.key for each in manifest.files} or sorted(visible.values()) != written(query):
            raise Violation("I8", f"readers find {visible} where {written(query)} are published")

    def _nothing_needed_is_gone(self, world: World) -> None:
        """Whoever collects garbage leaves what may still be published, and the kept results as they were."""
        register = world.register(self.location)
        if register is None:
            return
        if register.state is State.FREE:
            for kept in register.kept:
                found = sorted(self._visible(world, kept.backup).values())
                if not _stolen(world, kept.backup) and found != written(world.queries[kept.publication.query_id]):
                    raise Violation("G1", f"{kept.backup} does not hold the files of fence {kept.publication.fence}")
        if self.mode is Mode.DIRECT:
            return
        needed: tuple[tuple[str, str], ...] = ()
        if register.state is State.RUNNING:
            needed = tuple((key, key) for key in world.queries[register.current.accepted_query].files)
        elif register.state is State.PUBLISHING and register.publication is not None:
            needed = tuple((each.source, each.key) for each in manifest_of(world, register.publication).files)
        for source, destination in needed:
            if not any(key in world.objects or key in world.stolen for key in (source, destination)):
                raise Violation("G1", f"{source} is still needed and neither it nor {destination} is there")

    def _sent_to_one_whole_result(self, world: World) -> None:
        """Pointer mode: whoever asks Glue at this moment is sent to all files of one publication, and to no other."""
        if world.set_back is not None:
            raise Violation("I5", f"a lower fence has overwritten {world.set_back} in Glue")
        queries = {each.query_id for each in self.commits(world)}
        for pointer in world.tables.values():
            if pointer.slot != str(self.location) or pointer.location is None:
                continue
            place = pointer.location.removeprefix(f"s3://{self.location.bucket}/")
            found = sorted(self._visible(world, place).values())
            if not _stolen(world, place) and not any(found == written(world.queries[query]) for query in queries):
                raise Violation("I3", f"Glue sends readers to {pointer.location}, where they find {found}")

    def _visible(self, world: World, prefix: str | None = None) -> dict[str, bytes]:
        """What lies under a prefix, by default the location, less what strangers wrote."""
        return {
            key: found.body
            for key, found in world.objects.items()
            if key.startswith(prefix or self.location.prefix) and key not in world.foreign
        }

    # --- when a caller ends ------------------------------------------------------------------------------------------

    def told(self, world: World, caller: str, outcome: Any) -> None:
        """A caller was answered: with a publication of what it asked for, which readers can read."""
        if isinstance(outcome, AssertionError):
            raise Violation("A0", f"{caller} meets a state that the code holds for impossible") from outcome
        slot = keys.slot_prefix(self.location)
        if isinstance(outcome, Publication) and (slot, outcome.fence) not in world.readable:
            raise Violation("I8", f"{caller} was told of fence {outcome.fence}, which nobody could read yet")
        if not isinstance(outcome, Published | Reused):
            return
        publication = outcome.publication
        if (slot, publication.fence) not in world.readable:
            raise Violation("I8", f"{caller} was told of fence {publication.fence}, which nobody could read yet")
        wanted = self.generations[caller]
        if isinstance(outcome, Published) and not outcome.adopted and publication.request != self.requests[caller]:
            raise Violation("I1", f"{caller} takes the publication of request {publication.request} for its own")
        if publication.generation not in wanted.values():
            raise Violation("I1", f"{caller} was told of another generation than it asked for")

    def finally_(self, world: World, outcomes: Mapping[str, Any], spent: Mapping[Any, int]) -> None:
        """Everybody has ended: whoever ended with an error had a reason, and nothing was run for nothing."""
        explained = tuple(error for fault, times in spent.items() if times for error in self.errors.get(fault, ()))
        for caller, outcome in outcomes.items():
            allowed = (*explained, *self.errors.get(caller, ()))
            if isinstance(outcome, AthenaAssetsError) and not isinstance(outcome, allowed):
                raise Violation("I4", f"{caller} ended with {type(outcome).__name__}: {outcome}")
            if isinstance(outcome, Skipped) and any(
                each.request == self.requests[caller] for each in self.commits(world)
            ):
                raise Violation("I4", f"{caller} was told that it was skipped, and its request has published")
        harmless = all(fault in self.harmless for fault, times in spent.items() if times)
        if harmless and self.queries is not None and len(world.queries) != self.queries:
            raise Violation("I1", f"{len(world.queries)} queries ran where {self.queries} should")


def _stolen(world: World, prefix: str) -> bool:
    return any(key.startswith(prefix) for key in world.stolen)


def rows_once(bodies: list[bytes], *, mixed: bool) -> None:
    """A reader sees no row twice and, unless `mixed`, the rows of one query only."""
    twice = [body.decode() for body, times in Counter(bodies).items() if times > 1]
    if twice:
        raise Violation("I2", f"{twice[0]!r} lies at the location more than once")
    queries = {_query_of(body) for body in bodies}
    if len(queries) > 1 and not mixed:
        raise Violation("I2", f"rows of the queries {sorted(queries)} lie at the location together")


@functools.lru_cache(10_000)
def _decoded(body: bytes) -> Manifest:
    return decode(body, Manifest)


def manifest_of(world: World, publication: Publication) -> Manifest:
    return _decoded(world.objects[publication.manifest].body)


def written(query: Query) -> list[bytes]:
    """What a query wrote into the files that its data manifest names."""
    return sorted(rows(name, query.read) for name in query.files)


def _query_of(body: bytes) -> str:
    """Of a file's rows: the query that wrote them."""
    return body.removeprefix(b"rows of ").partition(b"-")[0].decode()
