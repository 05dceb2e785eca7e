"""Simulated time: processes that run protocol generators, and calls that take time, fail, and are applied late.

One thread and one queue of events. All that is left to chance comes from one source, so that a run can be repeated.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from athena_assets import errors
from athena_assets.core import effects
from athena_assets.core.effects import Effect, QueryState
from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.location import parse_location
from athena_assets.core.register import FailureKind
from athena_assets_tests.simulation.weather import AT_QUERY, Chance, Trouble, Weather
from athena_assets_tests.simulation.world import STRANGE_KEY, World

Protocol = Generator[Effect[Any], Any, Any]
Reply = Callable[[Any], None]
"""Takes the answer to an effect."""

ATHENA = (effects.StartQuery, effects.PollQuery, effects.StopQuery, effects.LookForQueries)
GLUE = (effects.ReadPointer, effects.MovePointer)
CHANGES = (effects.WriteObject, effects.CopyObject, effects.DeleteObject, effects.MovePointer)
APART = 0.3  # seconds between the first and the last of what is sent side by side
TIMEOUT = 10.0  # seconds until an SDK gives a call up
CLEAN_UP = 3.0  # seconds that an interrupted process has left


@dataclass(slots=True, eq=False)
class Process:
    """What is killed, paused and given a clock together."""

    name: str
    clock: float = 0.0  # how far its clock is ahead
    frozen_until: float = 0.0
    tasks: list[Task] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Task:
    """One generator that a process runs.

    Args:
        ended: is told its outcome: its value, the error that it raised, or None if it was killed.
        interrupted: makes what an interrupted process still does; None: nothing.
    """

    name: str
    process: Process
    steps: Protocol
    ended: Callable[[Task, Any], None]
    interrupted: Callable[[], Protocol] | None = None
    alive: bool = True


class Timeline:
    """What happens, in the order of simulated time.

    Args:
        changed: is called after each change of an object, with its key.
        slow: seconds that make a lease run out.
    """

    def __init__(
        self, chance: Chance, world: World, weather: Weather, slow: float, changed: Callable[[str], None]
    ) -> None:
        self.now = 0.0
        self.world = world
        self.weather = weather
        self.counts: Counter[Trouble] = Counter()
        self.calls: Counter[str] = Counter()  # troubles by the effect that they struck, and looks
        self.story: list[tuple[float, str, Any, Any]] = []
        self.processes: list[Process] = []
        self.s3_clock = 0.0  # how far S3's clock is ahead
        self.s3_back = 0.0  # when the outage ends
        self.athena_back = 0.0
        self.glue_back = 0.0
        self._chance = chance
        self._slow = slow
        self._changed = changed
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._ids = itertools.count(1)

    # --- time --------------------------------------------------------------------------------------------------------

    def at(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), event))

    def turn(self) -> bool:
        """Lets the next event happen; False if there is none."""
        if not self._events:
            return False
        self.now, _, event = heapq.heappop(self._events)
        event()
        return True

    def draw(self, low: float, high: float) -> float:
        """Mostly near `low`."""
        return low + (high - low) * self._chance.random() ** 3

    def toss(self) -> bool:
        return self._chance.random() < 0.5

    def tell(self, who: str, what: Any, more: Any = None) -> None:
        self.story.append((self.now, who, what, more))

    def suffer(self, trouble: Trouble, who: str) -> None:
        self.counts[trouble] += 1
        self.tell(who, trouble)

    # --- processes ---------------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        made = Process(name, clock=self.draw(0, 1000) - self.now)
        self.processes.append(made)
        return made

    def run(self, task: Task, delay: float = 0.0) -> None:
        task.process.tasks.append(task)
        self.at(delay, lambda: self._resume(task, None))

    def kill(self, process: Process) -> None:
        tasks, process.tasks = process.tasks, []
        self.processes = [each for each in self.processes if each is not process]
        for task in tasks:
            task.alive = False
        for task in tasks:
            task.ended(task, None)

    def _interrupt(self, process: Process) -> None:
        """Each caller stops its query, and all is over within seconds."""
        tasks, process.tasks = process.tasks, []
        for task in tasks:
            task.alive = False
            if task.interrupted is not None:
                self.run(Task(f"{task.name}, interrupted", process, task.interrupted(), lambda *_: None))
        self.at(CLEAN_UP, lambda: self.kill(process))
        for task in tasks:
            task.ended(task, None)

    def _freeze(self, process: Process, *, suspended: bool) -> float:
        length = self.draw(0.2 * self._slow, 3 * self._slow)
        process.frozen_until = max(process.frozen_until, self.now + length)
        if suspended:
            process.clock -= length
        return length

    def _awake(self, task: Task, act: Callable[[], None]) -> None:
        """Lets a process act once it is not frozen; not if it is dead by then."""
        if not task.alive:
            return
        if task.process.frozen_until > self.now:
            self.at(task.process.frozen_until - self.now, lambda: self._awake(task, act))
        else:
            act()

    def _resume(self, task: Task, answer: Any) -> None:
        self._awake(task, lambda: self._step(task, answer))

    def _step(self, task: Task, answer: Any) -> None:
        try:
            effect = task.steps.throw(answer) if isinstance(answer, Exception) else task.steps.send(answer)
            while (told := self._private(task, effect)) is not None:
                effect = task.steps.send(told[0])
        except StopIteration as stop:
            self._end(task, stop.value)
        except (errors.AthenaAssetsError, AssertionError) as error:
            self._end(task, error)
        else:
            reply = partial(self._resume, task)
            if isinstance(effect, effects.AtOnce):
                self._side_by_side(task, effect.effects, reply)
            else:
                self._perform(task, effect, reply)

    def _end(self, task: Task, outcome: Any) -> None:
        task.alive = False
        task.process.tasks.remove(task)
        if not task.process.tasks:
            self.processes = [each for each in self.processes if each is not task.process]
        self.tell(task.name, "ended", outcome)
        task.ended(task, outcome)

    def _private(self, task: Task, effect: Effect[Any]) -> tuple[Any] | None:
        match effect:
            case effects.ReadClock():
                return (self.now + task.process.clock,)
            case effects.DrawId():
                return (f"{next(self._ids):016x}",)
            case effects.DrawFraction():
                return (self._chance.random(),)
            case effects.Report(event, detail):
                self.tell(task.name, f"reports {event}: {detail}")
                return (None,)
        return None

    # --- calls -------------------------------------------------------------------------------------------------------

    def _side_by_side(self, task: Task, parts: tuple[Effect[Any], ...], reply: Reply) -> None:
        """Each part has its own fate, and is not begun any more by a dead process; the reply waits for all of them."""
        answers: dict[int, Any] = {}

        def answered(place: int, answer: Any) -> None:
            answers[place] = answer
            if len(answers) == len(parts):
                ordered = [answers[each] for each in range(len(parts))]
                reply(next((each for each in ordered if isinstance(each, Exception)), tuple(ordered)))

        def begin(place: int) -> None:
            self._awake(task, lambda: self._perform(task, parts[place], partial(answered, place)))

        for place in range(len(parts)):
            self.at(self.draw(0, APART), partial(begin, place))

    def _perform(self, task: Task, effect: Effect[Any], reply: Reply) -> None:
        """Sends an effect, and sees to it that its answer comes; or not."""
        trouble = self.weather.at_call(effect, self._chance)
        if trouble is not None:
            self.counts[trouble] += 1
            self.calls[f"{type(effect).__name__}: {trouble}"] += 1
            self.tell(task.name, effect, trouble)
        if isinstance(effect, effects.Sleep):
            self._sleep(task, effect, trouble, reply)
            return
        back = self.s3_back
        if isinstance(effect, ATHENA):
            back = self.athena_back
        elif isinstance(effect, GLUE):
            back = self.glue_back
        if back > self.now and not isinstance(effect, effects.CountRows | effects.ResolveUpstreams):
            self.tell(task.name, effect, "outage")
            if isinstance(effect, CHANGES) and self._chance.random() > 0.7:
                self._send(task, effect, reply, self.draw(0, TIMEOUT))
            self._answer(reply, effects.Unanswered("the service is not available"), self.draw(1, TIMEOUT))
            return
        self._call(task, effect, trouble, reply)

    def _sleep(self, task: Task, effect: effects.Sleep, trouble: Trouble | None, reply: Reply) -> None:
        delay = effect.seconds
        if trouble in (Trouble.KILLED, Trouble.INTERRUPTED):
            self._strike_down(task.process, trouble, self._chance.random() * delay)
        elif trouble in (Trouble.PAUSED, Trouble.SUSPENDED):
            self._freeze(task.process, suspended=trouble is Trouble.SUSPENDED)
        self._answer(reply, None, delay)

    def _call(self, task: Task, effect: Effect[Any], trouble: Trouble | None, reply: Reply) -> None:
        send, answer = partial(self._send, task, effect, reply), partial(self._answer, reply)
        sent = self.draw(0.005, 0.5)
        silent = effects.Unanswered(str(trouble))
        match trouble:
            case None:
                send(sent, answer_after=sent)
            case Trouble.KILLED | Trouble.INTERRUPTED:
                before = self._chance.random() < 0.3
                if not before:
                    send(sent, answer_after=sent)
                self._strike_down(task.process, trouble, 0.0 if before else self._chance.random() * 3 * sent)
            case Trouble.PAUSED | Trouble.SUSPENDED:
                length = self._freeze(task.process, suspended=trouble is Trouble.SUSPENDED)
                if self.toss():
                    sent += length  # it sat between the check and the send
                send(sent, answer_after=sent)
            case Trouble.DENIED:
                why = errors.AccessDenied(
                    task.name, "the credentials have expired.", not_done="Nothing.", next_step="Renew them."
                )
                answer(why, sent)
            case Trouble.REFUSED:
                answer(effects.Refused(403, "AccessDenied"), sent)
            case Trouble.CONFLICT:
                answer(effects.Refused(409, "conflict"), sent)
            case Trouble.REJECTED:
                answer(effects.StartRejected("the statement is refused"), sent)
            case Trouble.THROTTLED if isinstance(effect, effects.StartQuery):
                answer(effects.StartThrottled("TooManyRequestsException"), sent)
            case Trouble.THROTTLED | Trouble.UNSENT:
                answer(silent, sent if trouble is Trouble.THROTTLED else self.draw(1, TIMEOUT))
            case Trouble.LOST:
                send(sent)
                answer(silent, sent + self.draw(0.1, TIMEOUT))
            case Trouble.LATE:
                send(self.draw(1, 10 * self._slow))
                answer(silent, self.draw(0.1, TIMEOUT))
            case Trouble.SLOW:
                send(sent, answer_after=self.draw(1, 2 * self._slow))
            case Trouble.UNKNOWN_VERSION:
                assert isinstance(effect, effects.ResolveUpstreams)
                unknown = tuple(UpstreamVersion(str(table), None) for table in effect.tables)
                answer(unknown, sent)

    def _strike_down(self, process: Process, trouble: Trouble, delay: float) -> None:
        if trouble is Trouble.KILLED:
            self.at(delay, lambda: self.kill(process))
        else:
            self.at(delay, lambda: self._interrupt(process))

    def _answer(self, reply: Reply, answer: Any, delay: float) -> None:
        self.at(delay, partial(reply, answer))

    def _send(
        self, task: Task, effect: Effect[Any], reply: Reply, delay: float, answer_after: float | None = None
    ) -> None:
        def arrive() -> None:
            answer = self._apply(effect)
            self.tell(task.name, effect, answer)
            if isinstance(effect, CHANGES):
                self._changed(_changed_by(effect))
            if answer_after is not None:
                self._answer(reply, answer, answer_after)

        self.at(delay, arrive)

    def _apply(self, effect: Effect[Any]) -> Any:
        world = self.world
        world.clock = float(int(self.now + self.s3_clock))  # its headers carry whole seconds
        if isinstance(effect, effects.StopQuery):
            self.at(self.draw(0, 20), lambda: self.cancel(effect.query_id))
            return effects.Done()
        self.calls["looks at what runs"] += isinstance(effect, effects.LookForQueries)
        known = len(world.queries)
        answer = world.perform(effect)
        if len(world.queries) > known:
            self._begin(next(reversed(world.queries)))
        return answer

    # --- queries -----------------------------------------------------------------------------------------------------

    def _begin(self, query_id: str) -> None:
        trouble = self.weather.at(AT_QUERY, self._chance)
        version = self.world.upstream
        if trouble is not None:
            self.suffer(trouble, f"query {query_id.lstrip('0')}")
        duration = self.draw(20 * self._slow, 60 * self._slow) if trouble is Trouble.TOO_SLOW else self.draw(1, 60)
        self.at(duration, lambda: self._finish(query_id, trouble, version))

    def _finish(self, query_id: str, trouble: Trouble | None, version: int) -> None:
        """The query read its data as of its start or of its end."""
        world, query = self.world, self.world.queries[query_id]
        if query.state is not QueryState.ACTIVE:
            return
        self.tell(f"query {query_id.lstrip('0')}", "ends", trouble)
        read = version if self.toss() else world.upstream
        files = 0 if self._chance.random() > 0.97 else None
        match trouble:
            case Trouble.INTERNAL | Trouble.INTERNAL_PARTIAL:
                world.fail(query, FailureKind.INTERNAL, partial=trouble is Trouble.INTERNAL_PARTIAL)
            case Trouble.USER_ERROR:
                world.fail(query, FailureKind.USER_ERROR, partial=False)
            case _:
                world.succeed(
                    query,
                    orphan=trouble is Trouble.ORPHAN,
                    foreign=STRANGE_KEY if trouble is Trouble.FOREIGN_KEY else None,
                    manifest=trouble is not Trouble.NO_MANIFEST,
                    files=files,
                    read=read,
                )
        self._changed(query.parameters.staging)

    def cancel(self, query_id: str) -> None:
        query = self.world.queries.get(query_id)
        if query is not None and query.state is QueryState.ACTIVE:
            self.tell(f"query {query_id.lstrip('0')}", "is cancelled")
            self.world.fail(query, FailureKind.CANCELLED, partial=self.toss())
            self._changed(query.parameters.staging)


def _changed_by(effect: effects.WriteObject | effects.CopyObject | effects.DeleteObject | effects.MovePointer) -> str:
    """The key of what is changed; of a pointer the place to which it is moved."""
    match effect:
        case effects.CopyObject():
            return effect.destination
        case effects.MovePointer():
            return parse_location(effect.location).prefix
    return effect.key
