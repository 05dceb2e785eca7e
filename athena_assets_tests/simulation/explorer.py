"""Every step that the world and the callers can take, from the beginning to the end of a scenario.

States are equal if they differ only in the names of what was drawn at random (ids, tokens, query ids, ETags). What may
go wrong is counted: a scenario has a budget for each kind of fault, and within it every fault strikes at every moment.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from athena_assets.core import effects, keys
from athena_assets.core.effects import Effect
from athena_assets.core.location import Location
from athena_assets.core.register import FailureKind
from athena_assets_tests.simulation.invariants import Invariants, Violation
from athena_assets_tests.simulation.programs import Answer, Local, Program
from athena_assets_tests.simulation.words import say, short
from athena_assets_tests.simulation.world import STRANGE_KEY, Object, World, etag

LONG_AGO = 1_000_000.0  # seconds; any lease has run out

WRITES = (
    effects.WriteObject,
    effects.CopyObject,
    effects.DeleteObject,
    effects.StartQuery,
    effects.StopQuery,
    effects.MovePointer,
    effects.AbortUploads,
    effects.AtOnce,
)
# Their answers can't change once the protocol can ask for them, so that no other order of them is another behaviour.
SETTLED = (effects.CountRows, effects.ReadUri)


class Fault(StrEnum):
    """What may go wrong; `EXPIRY` is a living owner's lease that runs out."""

    CRASH = "crash"
    INTERRUPT = "interrupted"
    LOST = "reply lost, applied"
    LATE = "reply lost, applied later or never"
    CONFLICT = "409"
    EXPIRY = "lease expires"
    PAUSE = "pause"
    THROTTLE = "throttled"
    FAIL = "query fails"
    FAIL_FOR_GOOD = "query has a user error"
    ORPHAN = "query restarted inside Athena"
    LIE = "data manifest names a foreign key"
    FORGET = "token forgotten"
    UPSTREAM = "upstream changes"
    STRANGER = "stranger writes"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is explored.

    Args:
        programs: makes the callers; fresh ones for each exploration.
        world: makes the world that they find.
        faults: how often each kind of fault may strike, over all callers.
        fixed: hashes that are no random names (generations).
        pending: what dead callers sent and S3 or Athena has not done yet.
        pause: seconds that a paused caller's clock jumps on.
        invariants: what must hold, always and at the end.
    """

    name: str
    location: Location
    programs: Callable[[], tuple[Program, ...]]
    world: Callable[[], World]
    faults: Mapping[Fault, int]
    fixed: frozenset[str]
    invariants: Invariants
    pending: tuple[Effect[Any], ...] = ()
    pause: float = 50.0


@dataclass(frozen=True, slots=True)
class Node:
    world: World
    locals: tuple[Local, ...]
    left: tuple[int, ...]  # of each fault, in the order of Fault
    pending: tuple[Effect[Any], ...] = ()
    answered: tuple[tuple[tuple[int, Any], ...], ...] = ()  # for each caller, of the effects that run side by side


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one effect. `pending` is performed later, or never."""

    label: str
    answer: Answer
    world: World
    faults: tuple[Fault, ...] = ()
    pending: Effect[Any] | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One step: what happens, where it leads, and what went wrong on the way."""

    label: str
    node: Node
    faults: tuple[Fault, ...] = ()


STUCK = Violation("I4", "from here the callers can never end")


@dataclass(slots=True)
class Report:
    """What an exploration found. `exhausted`: no state within the budget was left out."""

    scenario: str
    states: int = 0
    steps: int = 0
    depth: int = 0
    finished: int = 0
    exhausted: bool = False
    local_states: int = 0
    violation: Violation | None = None
    trace: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """As plain values."""
        violation = self.violation
        return {
            "scenario": self.scenario,
            "states": self.states,
            "depth": self.depth,
            "exhausted": self.exhausted,
            "invariant": violation and violation.invariant,
            "what": violation and violation.what,
            "trace": list(self.trace),
        }

    def __str__(self) -> str:
        found = "no violation" if self.violation is None else f"VIOLATION {self.violation}"
        whole = "exhausted" if self.exhausted else "not exhausted"
        line = (
            f"{self.scenario}: {self.states} states, {self.steps} steps, depth {self.depth}, {self.finished} ends, "
            f"{whole}, {found}"
        )
        return "\n".join([line, *(f"  {number:3} {step}" for number, step in enumerate(self.trace, 1))])


class Explorer:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._programs = scenario.programs()
        self._register = keys.register_key(scenario.location)
        self._names = Names(scenario.fixed)

    def explore(self, limit: int = 10_000_000) -> Report:
        """Breadth first, so that the trace of a violation is a shortest one. Stops at the first, or at `limit`."""
        report = Report(self.scenario.name)
        start = self._start()
        seen = {self._names.digest(start): 0}
        parents: list[tuple[int, str]] = [(-1, "")]
        easy: list[list[int]] = [[]]  # steps without a fault, backwards
        ends: list[int] = []
        queue = deque([(0, 0, start)])
        report.states = 1
        while queue:
            index, depth, node = queue.popleft()
            report.depth = max(report.depth, depth)
            if all(local.ended for local in node.locals):
                ends.append(index)
            for move in self._moves(node):
                report.steps += 1
                digest = self._names.digest(move.node)
                target = seen.get(digest)
                if target is None:
                    target = seen[digest] = report.states
                    report.states += 1
                    parents.append((index, move.label))
                    easy.append([])
                    try:
                        self._check(node, move)
                    except Violation as violation:
                        return self._failed(report, violation, parents, target)
                    queue.append((target, depth + 1, move.node))
                if not move.faults:
                    easy[target].append(index)
            if report.states >= limit:
                break
        report.finished = len(ends)
        report.exhausted = not queue
        report.local_states = sum(program.size for program in self._programs)
        if report.exhausted:
            stuck = _unreachable(ends, easy)
            if stuck is not None:
                return self._failed(report, STUCK, parents, stuck)
        return report

    def replay(self, labels: tuple[str, ...]) -> Violation | None:
        """Takes the steps of a trace again; what they violate, if they do.

        Raises:
            ValueError: a step can't be taken, so that this is not a trace of this scenario.
        """
        node = self._start()
        for number, label in enumerate(labels, 1):
            for move in self._moves(node):
                if move.label == label:
                    break
            else:
                raise ValueError(f"step {number} is not possible: {label}")
            try:
                self._check(node, move)
            except Violation as violation:
                return violation
            node = move.node
        return None if self._can_end(node) else STUCK

    def _can_end(self, start: Node) -> bool:
        """Whether steps without a fault lead from here to the end of all callers."""
        seen = {self._names.digest(start)}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if all(local.ended for local in node.locals):
                return True
            for move in self._moves(node):
                digest = self._names.digest(move.node)
                if not move.faults and digest not in seen:
                    seen.add(digest)
                    queue.append(move.node)
        return False

    def _failed(self, report: Report, violation: Violation, parents: list[tuple[int, str]], index: int) -> Report:
        report.violation = violation
        steps = []
        while index > 0:
            index, label = parents[index]
            steps.append(label)
        report.trace = tuple(reversed(steps))
        return report

    def _check(self, before: Node, move: Move) -> None:
        invariants, node = self.scenario.invariants, move.node
        invariants.always(node.world)
        for program, earlier, local in zip(self._programs, before.locals, node.locals, strict=True):
            if local.ended and not earlier.ended:
                invariants.told(node.world, program.name, local.outcome)
        if all(local.ended for local in node.locals):
            spent = {
                fault: self.scenario.faults.get(fault, 0) - left for fault, left in zip(Fault, node.left, strict=True)
            }
            outcomes = {program.name: local.outcome for program, local in zip(self._programs, node.locals, strict=True)}
            invariants.finally_(node.world, outcomes, spent)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _start(self) -> Node:
        left = tuple(self.scenario.faults.get(fault, 0) for fault in Fault)
        node = Node(
            self.scenario.world(), tuple(program.initial for program in self._programs), left, self.scenario.pending
        )
        for index in range(len(node.locals)):
            node = self._settled(node, index)
        return node

    def _moves(self, node: Node) -> Iterator[Move]:
        for index, local in enumerate(node.locals):
            if not local.ended:
                yield from self._caller_moves(node, index, local)
        for number, effect in enumerate(node.pending):
            world = node.world.copy()
            answer = world.perform(effect)
            pending = node.pending[:number] + node.pending[number + 1 :]
            yield Move(f"late: {say(effect)} -> {say(answer)}", replace(node, world=world, pending=pending))
        yield from self._world_moves(node)

    def _caller_moves(self, node: Node, index: int, local: Local) -> Iterator[Move]:
        effect = local.effect
        assert effect is not None
        name = f"{local.program.name}: {say(effect)}"
        if isinstance(effect, effects.AtOnce):
            answered = dict(node.answered[index])
            for place, part in enumerate(effect.effects):
                if place not in answered:
                    for fate in self._fates(node, index, part):
                        yield from self._part_answered(node, index, effect, place, fate)
        else:
            for fate in self._fates(node, index, effect):
                yield from self._told(node, index, fate)
        if isinstance(effect, (*WRITES, effects.ReadObject, effects.PollQuery)):
            yield from self._crash(node, index, f"crash before {name}", (Fault.CRASH,))
            yield from self._interrupt(node, index, f"interrupted before {name}")
        if isinstance(effect, WRITES):
            under_way = replace(node, pending=(*node.pending, *self._unanswered(node, index, effect)))
            yield from self._crash(under_way, index, f"crash with {name} under way", (Fault.CRASH, Fault.LATE))

    def _fates(self, node: Node, index: int, effect: Effect[Any]) -> Iterator[Fate]:
        """What can become of one effect: what its caller is told, and what the world is like then."""
        name = f"{node.locals[index].program.name}: {say(effect)}"
        world = node.world.copy()
        answer = world.perform(effect)
        held = self._held(node, index, effect)
        if held is not None:
            expired = Answer(replace(answer, age=LONG_AGO))
            if held:
                yield Fate(f"{name} -> held by a living owner", Answer(answer), world)
                yield Fate(f"{name} -> lease expired", expired, world, (Fault.EXPIRY,))
            else:
                yield Fate(f"{name} -> held by a dead owner", expired, world)
        else:
            yield Fate(f"{name} -> {say(answer)}", Answer(answer), world)
        paused = Answer(answer, self.scenario.pause)
        yield Fate(f"{name} -> {say(answer)}, then a pause", paused, world, (Fault.PAUSE,))
        if isinstance(effect, effects.StartQuery):
            throttled = Answer(effects.StartThrottled("TooManyRequestsException"))
            yield Fate(f"{name} -> throttled", throttled, node.world, (Fault.THROTTLE,))
        if isinstance(effect, effects.PollQuery):
            silent = Answer(effects.Unanswered("ThrottlingException"))
            yield Fate(f"{name} -> throttled", silent, node.world, (Fault.THROTTLE,))
        if isinstance(effect, WRITES):
            lost = Answer(effects.Unanswered("the connection was closed"))
            yield Fate(f"{name} -> applied, reply lost", lost, world, (Fault.LOST,))
            yield Fate(f"{name} -> no reply, under way", lost, node.world, (Fault.LATE,), effect)
        if isinstance(effect, effects.WriteObject):
            conflict = Answer(effects.Refused(409, "ConditionalRequestConflict"))
            yield Fate(f"{name} -> 409", conflict, node.world, (Fault.CONFLICT,))

    def _told(self, node: Node, index: int, fate: Fate) -> Iterator[Move]:
        paid = _paid(node, *fate.faults)
        if paid is not None:
            pending = node.pending if fate.pending is None else (*node.pending, fate.pending)
            paid = replace(paid, world=fate.world, pending=pending)
            yield Move(fate.label, self._stepped(paid, index, fate.answer), fate.faults)

    def _part_answered(self, node: Node, index: int, whole: effects.AtOnce, place: int, fate: Fate) -> Iterator[Move]:
        """One of the effects that run side by side; their caller goes on when all are answered."""
        paid = _paid(node, *fate.faults)
        if paid is None or Fault.PAUSE in fate.faults:
            return
        pending = node.pending if fate.pending is None else (*node.pending, fate.pending)
        answers = tuple(sorted((*node.answered[index], (place, fate.answer.value)), key=lambda each: each[0]))
        paid = replace(paid, world=fate.world, pending=pending, answered=_at(node.answered, index, answers))
        if len(answers) == len(whole.effects):
            paid = self._stepped(paid, index, Answer(tuple(value for _, value in answers)))
        yield Move(fate.label, paid, fate.faults)

    def _unanswered(self, node: Node, index: int, effect: Effect[Any]) -> tuple[Effect[Any], ...]:
        if not isinstance(effect, effects.AtOnce):
            return (effect,)
        answered = dict(node.answered[index])
        return tuple(part for place, part in enumerate(effect.effects) if place not in answered)

    def _interrupt(self, node: Node, index: int, label: str) -> Iterator[Move]:
        """The process is told to end, and cleans up; nothing runs in its stead."""
        paid = _paid(node, Fault.INTERRUPT)
        cleaning = node.locals[index].program.interrupted(node.locals[index])
        if paid is not None and cleaning is not None:
            yield Move(label, self._begun(paid, index, cleaning), (Fault.INTERRUPT,))

    def _held(self, node: Node, index: int, effect: Effect[Any]) -> bool | None:
        """Whether the register that is about to be read is another's, who lives (True) or is dead (False)."""
        if not isinstance(effect, effects.ReadObject) or effect.key != self._register:
            return None
        register = node.world.register(self.scenario.location)
        if register is None or register.owner is None or register.owner.session == node.locals[index].session:
            return None
        return any(local.session == register.owner.session and not local.ended for local in node.locals)

    def _world_moves(self, node: Node) -> Iterator[Move]:
        for query in node.world.active():
            yield self._changed(node, f"{short(query.id)} succeeds", partial(World.succeed, query=query))
            for fault, change in _MISHAPS:
                yield from self._spend_change(node, fault, f"{short(query.id)}: {fault}", partial(change, query=query))
        for token in node.world.tokens:
            forgotten = partial(_forget, token=token)
            yield from self._spend_change(node, Fault.FORGET, f"Athena forgets token {short(token)}", forgotten)
        yield from self._spend_change(node, Fault.UPSTREAM, "the upstream table changes", _change_upstream)
        yield from self._spend_change(node, Fault.STRANGER, "a stranger writes into the location", self._stranger)

    def _stranger(self, world: World) -> None:
        world.intrude(f"{self.scenario.location.prefix}strangers-{len(world.foreign)}")

    def _stepped(self, node: Node, index: int, answer: Answer) -> Node:
        local = node.locals[index].program.step(node.locals[index], answer)
        return self._begun(node, index, local)

    def _begun(self, node: Node, index: int, local: Local) -> Node:
        """A caller stands somewhere else, and nothing that it asked for before is answered to it any more."""
        node = replace(node, locals=_at(node.locals, index, local), answered=_at(node.answered, index, ()))
        return self._settled(node, index)

    def _crash(self, node: Node, index: int, label: str, faults: tuple[Fault, ...]) -> Iterator[Move]:
        """The process dies; another one with the same request begins whenever it likes."""
        paid = _paid(node, *faults)
        if paid is not None:
            yield Move(label, self._begun(paid, index, self._programs[index].initial), faults)

    def _changed(self, node: Node, label: str, change: Callable[[World], Any], *faults: Fault) -> Move:
        world = node.world.copy()
        change(world)
        return Move(label, replace(node, world=world), faults)

    def _spend_change(self, node: Node, fault: Fault, label: str, change: Callable[[World], Any]) -> Iterator[Move]:
        paid = _paid(node, fault)
        if paid is not None:
            yield self._changed(paid, label, change, fault)

    def _settled(self, node: Node, index: int) -> Node:
        """Runs a caller on through what has one answer whenever it is asked."""
        local = node.locals[index]
        while True:
            effect = local.effect
            if isinstance(effect, effects.DrawId):
                answer: Any = self._names.unused(node)
            elif isinstance(effect, SETTLED):
                answer = node.world.perform(effect)
            else:
                return node
            local = local.program.step(local, Answer(answer))
            node = replace(node, locals=_at(node.locals, index, local))


def _paid(node: Node, *faults: Fault) -> Node | None:
    """The same with these faults taken from the budget; None if it has not so many left."""
    left = list(node.left)
    for fault in faults:
        left[_ORDER[fault]] -= 1
    return None if min(left) < 0 else replace(node, left=tuple(left))


def _at(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


_ORDER = {fault: number for number, fault in enumerate(Fault)}


def _change_upstream(world: World) -> None:
    world.upstream += 1


def _forget(world: World, token: str) -> None:
    del world.tokens[token]


_MISHAPS: tuple[tuple[Fault, Callable[..., None]], ...] = (
    (Fault.FAIL, partial(World.fail, kind=FailureKind.INTERNAL, partial=True)),
    (Fault.FAIL_FOR_GOOD, partial(World.fail, kind=FailureKind.USER_ERROR, partial=False)),
    (Fault.ORPHAN, partial(World.succeed, orphan=True)),
    (Fault.LIE, partial(World.succeed, foreign=STRANGE_KEY)),
)


def _unreachable(ends: list[int], easy: list[list[int]]) -> int | None:
    """A state from which no step without a fault leads to an end; None if there is none."""
    reached = bytearray(len(easy))
    queue = list(ends)
    for each in ends:
        reached[each] = 1
    while queue:
        for before in easy[queue.pop()]:
            if not reached[before]:
                reached[before] = 1
                queue.append(before)
    return next((index for index, found in enumerate(reached) if not found), None)


# --- equality of states -----------------------------------------------------------------------------------------------


class Names:
    """What was drawn at random: 16 to 64 hex digits. Renamed in the order in which a state mentions them."""

    _PATTERN = re.compile("[0-9a-f]{16,64}")

    def __init__(self, fixed: frozenset[str]) -> None:
        self._fixed = fixed
        self._split: dict[Any, tuple[int, tuple[str, ...]]] = {}
        self._templates: dict[str, int] = {}

    def digest(self, node: Node) -> bytes:
        renamed: dict[str, int] = {}
        parts: list[Any] = [node.left]
        for template, found in self._components(node):
            parts.append(template)
            parts.extend(renamed.setdefault(name, len(renamed)) for name in found)
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()

    def unused(self, node: Node) -> str:
        """The first id that occurs nowhere."""
        used = {name for _, found in self._components(node) for name in found}
        number = 1
        while (name := f"{number:016x}") in used:
            number += 1
        return name

    def _components(self, node: Node) -> Iterator[tuple[int, tuple[str, ...]]]:
        world = node.world
        for local in node.locals:
            yield self._parted(local)
        yield from sorted(self._parted(item) for item in world.objects.items())
        yield from sorted(self._parted(query) for query in world.queries.values())
        yield from sorted(self._parted(effect) for effect in node.pending)
        yield self._parted(node.answered)
        yield self._parted(tuple(world.tokens.items()))
        yield self._parted(tuple(sorted(world.tables.items(), key=repr)))
        yield self._parted((world.upstream, world.commits, world.readable))

    def _parted(self, value: Any) -> tuple[int, tuple[str, ...]]:
        found = self._split.get(value)
        if found is None:
            found = self._split[value] = self._part(_text(value))
        return found

    def _part(self, text: str) -> tuple[int, tuple[str, ...]]:
        names: dict[str, int] = {}

        def take(match: re.Match[str]) -> str:
            if match[0] in self._fixed:
                return match[0]
            return f"#{names.setdefault(match[0], len(names))}"

        template = self._PATTERN.sub(take, text)
        return self._templates.setdefault(template, len(self._templates)), tuple(names)


def _text(value: Any) -> str:
    match value:
        case Local():
            return value.text
        case (str(key), Object() as found):
            return f"{key}\n{found.body!r}\n{found.etag}\n{found.metadata}"
        case effects.WriteObject():
            return f"{value!r} {etag(value.body)}"
    return repr(value)
