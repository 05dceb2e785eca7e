"""Every step from a state: of each caller with each fate of its effect, of what is under way, and of the world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from athena_assets.core import effects, keys
from athena_assets.core.effects import Effect
from athena_assets.core.register import FailureKind
from athena_assets_tests.simulation.names import Names
from athena_assets_tests.simulation.programs import Answer, Local
from athena_assets_tests.simulation.states import Fate, Fault, Move, Node, Scenario
from athena_assets_tests.simulation.words import say, short
from athena_assets_tests.simulation.world import STRANGE_KEY, STRANGERS, World

T = TypeVar("T")

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


class Steps:
    """The steps of one scenario, whose programs remember what they have seen."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.programs = scenario.programs()
        self.names = Names(scenario.fixed)
        self._register = keys.register_key(scenario.location)

    def start(self) -> Node:
        left = tuple(self.scenario.faults.get(fault, 0) for fault in Fault)
        locals_ = tuple(program.initial for program in self.programs)
        node = Node(self.scenario.world(), locals_, left, self.scenario.pending, ((),) * len(locals_))
        for index in range(len(node.locals)):
            node = self._settled(node, index)
        return node

    def moves(self, node: Node) -> Iterator[Move]:
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
        if isinstance(effect, (*WRITES, effects.ReadObject, effects.PollQuery, effects.LookForQueries)):
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
        if isinstance(effect, effects.LookForQueries):
            short_of_time = Answer(effects.QueriesFound((), "throttled"))
            yield Fate(f"{name} -> throttled", short_of_time, node.world, (Fault.THROTTLE,))
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
        world.intrude(f"{self.scenario.location.prefix}{STRANGERS}{len(world.foreign)}")

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
            yield Move(label, self._begun(paid, index, self.programs[index].initial), faults)

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
                answer: Any = self.names.unused(node)
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
