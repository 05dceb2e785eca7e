"""One schedule: the load, the chores, and the moment from which on nothing goes wrong.

Load comes as sensors bring it (the upstream table changes, and several want the new result at once) and as backfills do
(one process, every slot). Trouble comes as the weather of the schedule has it, until everything is well; then everybody
must come to an end, and a last caller for each slot must get a result.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from functools import partial
from typing import Any

from athena_assets import errors
from athena_assets.core.abandon import abandon
from athena_assets.core.collect import collect
from athena_assets.core.effects import Effects
from athena_assets.core.protocol import Caller
from athena_assets.core.register import Mode, Owner, State
from athena_assets.core.request import Outcome
from athena_assets.core.restore import restore
from athena_assets.core.scrub import ScrubReport, repair, scrub
from athena_assets.core.slot import Slot
from athena_assets.core.target import Guard
from athena_assets_tests.simulation import load
from athena_assets_tests.simulation.accidents import strike
from athena_assets_tests.simulation.invariants import Violation, rows_once, written
from athena_assets_tests.simulation.ledger import Ledger, Wish
from athena_assets_tests.simulation.load import Size, Wanted, Way
from athena_assets_tests.simulation.readers import read_by_glue, read_by_manifest, read_location
from athena_assets_tests.simulation.timeline import Process, Protocol, Task, Timeline
from athena_assets_tests.simulation.weather import Chance, Trouble, draw_weather
from athena_assets_tests.simulation.words import say
from athena_assets_tests.simulation.world import World

BOUND = 12 * load.HOUR  # until all have ended once nothing goes wrong any more; the longest wait is 6 hours
TOLD = 80  # last steps in the story of a violation

# In direct mode a query that the register has given up may still write into the location, and no condition can stop it:
# the promise holds as long as Athena remembers tokens and queries, and does not refuse what it has accepted.
# With partitions S3's clock must not make a grace period shorter than a call may be late.
_GLUE = frozenset({Trouble.GLUE_OUTAGE, Trouble.TABLE_CHANGED})
EXCLUDED = {
    Way.STAGED: _GLUE,
    Way.DIRECT: _GLUE | {Trouble.TOKENS_FORGOTTEN, Trouble.REJECTED, Trouble.STAGING_LOST, Trouble.BACKUP_LOST},
    Way.POINTER: _GLUE,
    Way.TABLE: frozenset[Trouble](),
    Way.PARTITION: frozenset({Trouble.S3_CLOCK_STEP}),
}
LATEST = 16  # lease durations between a look at Glue and the latest effect of what it led to


class Simulation:
    """One schedule. Everything that is drawn comes from `chance`."""

    def __init__(self, chance: Chance, way: Way, size: Size | None = None, guard: Guard = Guard.OFF) -> None:
        self.chance = chance
        self.way = way
        self.mode = way.mode
        self.size = size or load.draw_size(chance)
        self.lease = load.pick(chance, (0.5, 20.0), (0.75, 5.0), (1.0, 60.0))
        self.world = World(files_per_query=load.pick(chance, (0.5, 2), (0.8, 1), (1.0, 3)), glue=way.glue)
        late = (LATEST + 4) * self.lease
        grace = late if way is Way.PARTITION else load.pick(chance, (0.4, 30.0), (0.7, 0.0), (1.0, late))
        self.readers_time = grace - (LATEST * self.lease if way is Way.PARTITION else 0.0) - 1.0  # S3 counts seconds
        self.patient = Wanted(way, grace, guard=guard)
        weather = draw_weather(chance, EXCLUDED[way])
        # In direct mode what a query left can't be told from what a stranger left: whoever lets it be cleaned up must
        # keep strangers away.
        strangers = Trouble.STRANGER in weather.times
        self.cleans = way is Way.DIRECT and not strangers and chance.random() < 0.5
        self.quiet = False
        self.timeline = Timeline(chance, self.world, weather, self.lease, lambda key: self.ledger.changed(key))
        self._number = itertools.count(1)
        self.partitions = [str(number) for number in range(1, self.size.slots + 1)]
        locations = [load.location(partition) for partition in self.partitions]
        self.ledger = Ledger(self.world, self.mode, locations, self.timeline.counts)
        self.world.intrude("marts/daily/day=1_old/rows")  # a sibling whose name begins with a slot's

    # --- the schedule ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Lets it all happen.

        Raises:
            Violation: with the story of the last steps as its note, as has every other exception.
        """
        try:
            self._prepare()
            self._drain()
            for partition in self.partitions:
                self._last(partition)
            self.ledger.finally_()
        except Exception as error:
            error.add_note(self.story())
            raise

    def _prepare(self) -> None:
        draw, seconds = self.chance.random, self.size.seconds
        for _ in range(self.size.bursts):
            burst = load.pick(self.chance, (0.3, self._single), (0.75, self._sensors), (1.0, self._backfill))
            self.timeline.at(draw() * seconds, burst)
            chore = load.pick(
                self.chance,
                (0.3, self._read),
                (0.5, self._collect),
                (0.75, self._restore),
                (0.85, self._scrub),
                (1.0, self._take_over),
            )
            self.timeline.at(draw() * seconds, chore)
        for trouble, times in self.timeline.weather.times.items():
            for _ in range(times):
                location = load.location(self._partition())
                self.timeline.at(
                    draw() * seconds,
                    partial(strike, trouble, self.timeline, mode=self.mode, lease=self.lease, location=location),
                )
        self.timeline.at(seconds, self._calm_down)

    def _drain(self) -> None:
        limit = self.size.seconds + BOUND + self.timeline.now
        while self.timeline.turn():
            if self.timeline.now > limit:
                alive = [task.name for each in self.timeline.processes for task in each.tasks]
                raise Violation("I4", f"{alive} have not ended {BOUND:.0f} s after the last trouble")

    def _calm_down(self) -> None:
        self.quiet = True
        weather = self.timeline.weather
        weather.rates.clear()
        self.timeline.s3_back = self.timeline.athena_back = self.timeline.glue_back = 0.0
        self.timeline.tell("the world", "nothing goes wrong from now on")

    def _last(self, partition: str) -> None:
        """From whatever is left, a caller to whom nothing happens gets a result."""
        wish = self._wish("last", partition, self.patient)
        self._drain()
        if self._state(partition) is State.BLOCKED:  # by what was left, which only a person may delete
            self._repair(partition)
            self._drain()
            wish = self._wish("last", partition, self.patient)
            self._drain()
        if self.way is Way.PARTITION:  # of which Glue can't tell that a late call is too late
            self._repair(partition)
            self._drain()
        self.ledger.last(wish)

    # --- load --------------------------------------------------------------------------------------------------------

    def _partition(self) -> str:
        return self.partitions[int(self.chance.random() * len(self.partitions))]

    def _wanted(self) -> Wanted:
        return load.draw_wanted(self.chance, self.patient, cleans=self.cleans)

    def _single(self) -> None:
        self._wish("single", self._partition(), self._wanted())

    def _sensors(self) -> None:
        """The upstream table has changed, and every sensor that watches it asks."""
        if self.mode is not Mode.DIRECT or not self.world.queries:
            self.world.upstream += 1
            self.timeline.tell("the upstream table", f"is at v{self.world.upstream}")
        partition = self._partition()
        for _ in range(1 + int(self.chance.random() * 4)):
            delay = self.timeline.draw(0, 20)
            self._wish("sensor", partition, self._wanted(), delay=delay)

    def _backfill(self) -> None:
        """One process publishes every slot."""
        process = self.timeline.process(f"backfill {next(self._number)}")
        wanted = self._wanted()
        for partition in self.partitions:
            self._wish("backfill", partition, wanted, process=process)

    def _wish(
        self, kind: str, partition: str, wanted: Wanted, *, delay: float = 0.0, process: Process | None = None
    ) -> Wish:
        force = not self.quiet and self.chance.random() > 0.9
        return self._enter(
            Wish(load.request(f"{kind}-{next(self._number)}", wanted, partition, self.lease, force=force), kind),
            delay,
            process,
        )

    def _enter(
        self, wish: Wish, delay: float = 0.0, process: Process | None = None, *, take_over: bool = False
    ) -> Wish:
        self.ledger.enter(wish)
        self._try(wish, delay, process, take_over=take_over)
        return wish

    def _try(self, wish: Wish, delay: float, process: Process | None = None, *, take_over: bool = False) -> None:
        process = process or self.timeline.process(wish.request.id)
        request = replace(wish.request, may_be_retry=wish.runs > 0)
        caller = Caller(request, process.name, 1, take_over=take_over)
        wish.runs += 1
        began = self.world.upstream

        def publish() -> Effects[Outcome]:
            nonlocal began
            began = self.world.upstream
            if wish.began is None:
                wish.began = began
            return (yield from caller.publish())

        task = Task(
            wish.request.id if wish.runs == 1 else f"{wish.request.id}, run {wish.runs}",
            process,
            publish(),
            lambda task, outcome: self._ended(wish, began, outcome),
            interrupted=lambda: abandon(caller.slot, caller.session),
        )
        self.timeline.run(task, delay)

    def _ended(self, wish: Wish, began: int, outcome: Any) -> None:
        if outcome is None:
            if self.quiet or self.chance.random() < 0.8:
                self.ledger.counts["retry after a crash"] += 1
                self._try(wish, self.timeline.draw(1, 4 * self.lease))
            return
        self.ledger.told(wish, began, outcome)
        if isinstance(outcome, errors.AthenaAssetsError) and wish.runs < 4 and self.chance.random() < 0.5:
            self.ledger.counts["retry after an error"] += 1
            self._try(wish, self.timeline.draw(1, 4 * self.lease))

    # --- chores ------------------------------------------------------------------------------------------------------

    def _slot(self, partition: str, caller: str) -> Slot:
        return Slot(load.location(partition), caller, 5 * self.lease)

    def _state(self, partition: str) -> State | None:
        register = self.world.register(load.location(partition))
        return None if register is None else register.state

    def _chore(self, name: str, steps: Protocol, ended: Any) -> None:
        self.ledger.counts[name] += 1

        def told(task: Task, outcome: Any) -> None:
            if isinstance(outcome, errors.AthenaAssetsError | AssertionError):
                self.ledger.explain(task.name, outcome)
            elif outcome is not None:
                ended(outcome)

        name = f"{name} {next(self._number)}"
        self.timeline.run(Task(name, self.timeline.process(name), steps, told))

    def _read(self) -> None:
        partition = self._partition()
        slot = self._slot(partition, "reader")
        if self.mode is not Mode.POINTER:
            self._chore("read", read_location(slot), lambda rows: rows_once(rows, mixed=self.way is Way.DIRECT))
            return
        began = 0.0
        s3_clock = 0.0

        def reader() -> Effects[tuple[str, list[bytes]] | None]:
            nonlocal began, s3_clock
            began, s3_clock = self.timeline.now, self.timeline.s3_clock
            table = load.target(self.patient, partition).publish_settings(partition).glue
            return (yield from read_by_manifest(slot) if table is None else read_by_glue(slot, table, self.world))

        def ended(found: tuple[str, list[bytes]]) -> None:
            query, rows = self.world.queries[found[0]], found[1]
            if self.timeline.now - began > self.readers_time or s3_clock != self.timeline.s3_clock:
                self.ledger.counts["read for longer than the grace period"] += 1
            elif not any(key.startswith(query.parameters.staging) for key in self.world.stolen):
                self.ledger.counts["read, whole"] += 1
                if sorted(rows) != written(query):
                    raise Violation("I3", f"a reader of query {query.id} found {sorted(rows)}")

        self._chore("read", reader(), ended)

    def _collect(self) -> None:
        def ended(garbage: Any) -> None:
            self.ledger.counts["objects collected"] += len(garbage.objects)

        self._chore("collect", collect(self._slot(self._partition(), "collect"), delete=True), ended)

    def _scrub(self) -> None:
        def ended(report: ScrubReport) -> None:
            self.ledger.counts["scrub found it clean"] += report.clean

        self._chore("scrub", scrub(self._slot(self._partition(), "scrub")), ended)

    def _restore(self) -> None:
        """A person saw what is kept, and asks for one of the results; a crash or an error makes him ask again."""
        partition = self._partition()
        register = self.world.register(load.location(partition))
        if register is None or not register.kept:
            return
        fence = register.kept[int(self.chance.random() * len(register.kept))].publication.fence
        request = f"restore-{next(self._number)}"

        def again() -> None:
            owner = Owner(f"{next(self._number):08x}", "host", 1, request)
            steps = restore(self._slot(partition, request), fence=fence, owner=owner, lease=self.lease)
            self._chore("restore", steps, lambda found: self.ledger.restored(load.location(partition), request, found))

        again()
        if self.chance.random() > 0.5:
            self.timeline.at(self.timeline.draw(1, 4 * self.lease), again)

    def _repair(self, partition: str) -> None:
        """A person empties the location of a blocked slot, of all but what strangers have there."""

        def steps() -> Effects[Any]:
            slot = self._slot(partition, "repair")
            found = yield from repair(slot)
            return (yield from repair(slot, delete=tuple(each for each in found if each.key not in self.world.foreign)))

        self._chore("repair", steps(), lambda _: None)

    def _take_over(self) -> None:
        """A person believes that the owner is dead; often he is wrong."""
        partition = self._partition()
        if self._state(partition) is State.BLOCKED:
            self._repair(partition)
        elif self._state(partition) not in (None, State.FREE):
            wish = load.request(f"takeover-{next(self._number)}", self.patient, partition, self.lease)
            self._enter(Wish(wish, "takeover"), take_over=True)

    # --- what happened -----------------------------------------------------------------------------------------------

    def story(self, last: int = TOLD) -> str:
        """The last steps, for people."""
        lines = []
        for when, who, what, more in self.timeline.story[-last:]:
            told = "" if more is None else f" -> {say(more)}"
            lines.append(f"  {when:10.2f}  {who}: {say(what)}{told}")
        return "\n".join(lines)

    def digest(self) -> str:
        """Of everything that happened, in order."""
        found = hashlib.blake2b(digest_size=16)
        for step in self.timeline.story:
            found.update(repr(step).encode())
        return found.hexdigest()
