"""What was wished for in one simulation, what came of it, and whether the promises were kept."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from athena_assets import errors
from athena_assets.core import keys
from athena_assets.core.location import Location
from athena_assets.core.register import FailureKind, Mode, Publication
from athena_assets.core.request import Published, Request, Reused, Skipped
from athena_assets.core.target import OnConflict, Reuse
from athena_assets_tests.simulation import load
from athena_assets_tests.simulation.invariants import Invariants, Violation
from athena_assets_tests.simulation.reasons import REASONS
from athena_assets_tests.simulation.weather import HARMLESS, Trouble
from athena_assets_tests.simulation.world import World


@dataclass(slots=True, eq=False)
class Wish:
    """One request, over all the runs that try to have it granted.

    Args:
        kind: of the load that brought it.
        began: the upstream version when it began; None: it has not.
        outcome: of the last run that ended; None if that one was killed, or none has ended.
    """

    request: Request
    kind: str
    began: int | None = None
    runs: int = 0
    outcome: Any = None

    @property
    def name(self) -> str:
        return self.request.id


class Ledger:
    def __init__(self, world: World, mode: Mode, locations: Sequence[Location], troubles: Counter[Trouble]) -> None:
        self.counts: Counter[str] = Counter()
        self.wishes: dict[str, Wish] = {}
        self._world = world
        self._mode = mode
        self._troubles = troubles
        self._requests: dict[str, str] = {}
        self._generations: dict[str, dict[int, str]] = {}
        self._versions: dict[str, int] = {}
        self._selects: dict[str, str] = {}
        self.slots = {
            location: Invariants(
                location=location,
                mode=mode,
                requests=self._requests,
                generations=self._generations,
                selects=self._selects,
                queries=0,
                harmless=frozenset(),
                versions=self._versions,
            )
            for location in locations
        }

    def enter(self, wish: Wish) -> None:
        name, request = wish.name, wish.request
        versions = load.generations(request.definition)
        self.wishes[name] = wish
        self._requests[name] = name
        self._versions.update(versions)
        self._generations[name] = {version: generation for generation, version in versions.items()}
        self._selects[request.definition] = request.query
        self.counts[wish.kind] += 1
        self.counts[f"on_conflict {request.target.on_conflict}"] += 1
        self.counts[f"reuse {request.target.reuse}"] += 1
        self.counts["force"] += request.force

    def changed(self, key: str) -> None:
        """An object has changed: whatever the promises say about its slot holds, at this moment."""
        for invariants in self.slots.values():
            location = invariants.location
            if key.startswith((location.prefix, keys.slot_prefix(location))):
                invariants.always(self._world)
                directory = keys.directory_of(location, key)
                collected = directory not in (None, key) and key not in self._world.objects
                self.counts["objects in directories collected"] += collected

    # --- outcomes ----------------------------------------------------------------------------------------------------

    def told(self, wish: Wish, began: int, outcome: Any) -> None:
        """A run of a wish has ended. `began`: the upstream version when this run began."""
        wish.outcome = outcome
        invariants = self.slots[wish.request.location]
        invariants.told(self._world, wish.name, outcome)
        if isinstance(outcome, errors.AthenaAssetsError):
            self.explain(wish.name, outcome, wish)
            return
        self._count(outcome)
        if isinstance(outcome, Skipped):
            if wish.request.target.on_conflict is not OnConflict.SKIP:
                raise Violation("P1", f"{wish.name} was skipped against its policy")
            return
        own = outcome.publication.request == wish.name
        if wish.request.force and not own:
            raise Violation("P1", f"{wish.name} was to run anew and got the result of {outcome.publication.request}")
        self._fresh(wish, began, outcome, own)

    def _count(self, outcome: Any) -> None:
        kind = type(outcome).__name__.lower()
        self.counts[kind] += 1
        for quality in ("joined", "adopted", "superseded"):
            self.counts[f"{kind}, {quality}"] += getattr(outcome, quality, False)

    def _fresh(self, wish: Wish, began: int, outcome: Published | Reused, own: bool) -> None:
        """No result is older than the wish for it, unless nothing told how old the data was."""
        publication = outcome.publication
        version = self._versions[publication.generation]
        since = wish.began if own else began
        assert since is not None
        if version != load.UNKNOWN and version < since:
            raise Violation("R1", f"{wish.name} began at upstream v{since} and got a result of v{version}")
        finished = isinstance(outcome, Reused) and not outcome.joined
        if version == load.UNKNOWN and finished and wish.request.reuse is not Reuse.ALWAYS:
            raise Violation("R1", f"{wish.name} got a finished result of nobody knows which version")

    def restored(self, location: Location, request: str, publication: Publication) -> None:
        """A restore has ended well."""
        self.counts["restored"] += 1
        if publication.request != request:
            raise Violation("I1", f"{request} was told of the publication of {publication.request}")
        if (keys.slot_prefix(location), publication.fence) not in self._world.readable:
            raise Violation("I8", f"{request} was told of fence {publication.fence}, which nobody could read yet")

    def explain(self, name: str, error: BaseException, wish: Wish | None = None) -> None:
        """An error has a reason: a trouble that there was, or what the caller itself asked for."""
        if not isinstance(error, errors.AthenaAssetsError):
            raise Violation("A0", f"{name} meets a state that the code holds for impossible: {error!r}") from error
        self.counts[type(error).__name__] += 1
        match error:
            case errors.SlotBusy() | errors.ForeignQueryRunning():
                fine = wish is None or self._impatient(wish)
            case errors.QueryTimedOut() | errors.QueryCancelled():
                # A target may be shorter of time than its queries. Whoever takes over one that was stopped for that
                # finds it cancelled.
                fine = True
            case errors.NotKept() | errors.NotBlocked() | errors.NothingPublished():
                fine = wish is None
            case errors.LocationNotEmpty() | errors.DirtyLocation() if self._mode is Mode.DIRECT:
                fine = True  # it publishes into an empty location only, and no failed query leaves that
            case _:
                reasons = (why for kind in type(error).__mro__ for why in REASONS.get(kind, ()))
                fine = any(self._troubles[why] for why in reasons)
        if not fine:
            raise Violation("I4", f"{name} ended with {type(error).__name__} for no reason: {error}")

    def _impatient(self, wish: Wish) -> bool:
        target = wish.request.target
        deadline_passed = target.wait_timeout < load.HOUR or bool(self._troubles[Trouble.CLOCK_STEP])
        return target.on_conflict is OnConflict.FAIL or deadline_passed

    # --- the end -----------------------------------------------------------------------------------------------------

    def finally_(self) -> None:
        world = self._world
        for invariants in self.slots.values():
            invariants.always(world)
            self._run_once(invariants)
        self.counts["publications"] += len(world.commits)
        self.counts["queries"] += len(world.queries)
        spared = {each.query_id for each in world.commits}
        # One that a target's timeout stopped; whoever takes over after that finds it cancelled, and may try again.
        spared |= {each.id for each in world.queries.values() if each.kind is FailureKind.CANCELLED}
        # The query of a dead owner whose slot nobody had a reason to take over can still be adopted.
        registers = [world.register(each.location) for each in self.slots.values()]
        waiting = {each.attempt.token for each in registers if each is not None and each.attempt is not None}
        unused = [each.id for each in world.queries.values() if each.id not in spared and each.token not in waiting]
        harmless = self._mode is not Mode.DIRECT and HARMLESS.issuperset(+self._troubles)
        if unused and harmless:
            raise Violation("I1", f"the queries {unused} ran for nothing, although nothing went wrong that costs any")

    def last(self, wish: Wish) -> None:
        """The last caller for a slot, to whom nothing happens, has got a result."""
        fine = isinstance(wish.outcome, Published | Reused)
        if self._mode is Mode.DIRECT and isinstance(wish.outcome, errors.LocationNotEmpty):
            return
        if not fine:
            raise Violation("I4", f"{wish.name}, to whom nothing happened, ended with {wish.outcome!r}")
        if self._world.glue:
            self._sent_to_the_last(wish.request.location)

    def _sent_to_the_last(self, location: Location) -> None:
        register = self._world.register(location)
        last = None if register is None else register.publication
        assert last is not None
        sent = [(each.location, each.fence) for each in self._world.tables.values() if each.slot == str(location)]
        if (sent or last.files) and sent != [(f"s3://{location.bucket}/{last.directory}", last.fence)]:
            raise Violation("I8", f"in the end Glue sends readers to {sent}, and fence {last.fence} is published")

    def _run_once(self, invariants: Invariants) -> None:
        """What can be reused is not run again by somebody who would have taken it."""
        for earlier, later in itertools.pairwise(invariants.commits(self._world)):
            wish = self.wishes.get(later.request)
            if wish is None or later.restored or earlier.generation != later.generation:
                continue
            wants = wish.request.reuse is not Reuse.NEVER and wish.request.target.on_conflict is not OnConflict.QUEUE
            finished = (earlier.slot, earlier.fence) in self._world.readable - self._world.lost
            if wants and earlier.reusable and finished:
                raise Violation("I1", f"{later.request} ran again what {earlier.request} had just published")
