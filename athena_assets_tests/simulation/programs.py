"""Callers as automata: what a protocol generator does next depends on its state alone, and its state can be compared.

A generator can't be copied, but it can be run again: a state is known by the code it stands in and all that its frames
hold, and remembers the answers that led there. Two histories that lead to equal states are one state; wherever that
happens, the next step of both is compared, so that a difference that the comparison overlooks would be an error here.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from athena_assets.core import effects
from athena_assets.core.effects import Effect
from athena_assets.core.manifest import Manifest
from athena_assets.core.protocol import Caller
from athena_assets.core.register import Register
from athena_assets.core.request import Request
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import Tenure
from athena_assets.errors import AthenaAssetsError

Protocol = Generator[Effect[Any], Any, Any]
Start = Callable[[], tuple[Caller | str, Protocol]]
"""A fresh run: its Caller, or else the session in whose name it acts, and its generator."""

GoOn = Callable[[Caller], tuple[Caller, Protocol] | None]
"""What goes on in the place of a caller that waits or is superseded; None: nothing does."""

STEPS = 2
"""Of one run; then it waits on. Each raises the fence, so that there would be states without end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a caller is told, and how far its own clock has gone on meanwhile."""

    value: Any
    elapsed: float = 0.0


@dataclass(slots=True, eq=False)
class Local:
    """One state of one program. Compared by identity: equal states are the same object.

    Args:
        effect: what it asks for next; None once it has ended.
        outcome: what it ended with: its value, or the error that it raised.
        session: the owner session that it writes into registers; "" before it has drawn one.
    """

    program: Program
    text: str
    effect: Effect[Any] | None
    outcome: Any
    session: str
    clock: float
    history: tuple[Answer, ...]
    next: dict[Any, Local] = field(default_factory=dict)
    twin: tuple[Answer, ...] | None = None
    running: Run | None = None

    @property
    def ended(self) -> bool:
        return self.effect is None


class Program:
    """All states of one caller that have been seen.

    `on_interrupt` makes what runs in its place once it has been interrupted, given its session. With `go_on` it runs in
    steps.
    """

    def __init__(
        self,
        name: str,
        start: Start,
        on_interrupt: Callable[[str], Protocol] | None = None,
        go_on: GoOn | None = None,
    ) -> None:
        self.name = name
        self._go_on = go_on
        self._on_interrupt = on_interrupt
        self._interrupted: dict[str, Program] = {}
        self._start = start
        self._known: dict[str, Local] = {}
        self.initial = self._arrive(Run(start, go_on), ())

    def step(self, local: Local, answer: Answer) -> Local:
        """The state after an answer to `local.effect`."""
        key = (type(answer.value), answer.value, answer.elapsed) if _hashable(answer.value) else repr(answer)
        found = local.next.get(key)
        if found is None:
            run, local.running = local.running, None
            if run is None:
                run = self._replayed(local.history)
            run.resume(answer)
            found = local.next[key] = self._arrive(run, (*local.history, answer))
            if local.twin is not None:
                other = self._replayed(local.twin)
                other.resume(answer)
                assert f"{self.name} {_text(other)}" == found.text, (
                    f"{self.name}: two histories of one state differ afterwards"
                )
                local.twin = None
        return found

    def interrupted(self, local: Local) -> Local | None:
        """The first state of the clean-up after an interruption; None if there is nothing to clean up."""
        make, session = self._on_interrupt, local.session
        if make is None or not session:
            return None
        if session not in self._interrupted:
            self._interrupted[session] = Program(f"{self.name}, interrupted", lambda: (session, make(session)))
        return self._interrupted[session].initial

    def _replayed(self, history: tuple[Answer, ...]) -> Run:
        run = Run(self._start, self._go_on)
        for answer in history:
            run.resume(answer)
        return run

    def _arrive(self, run: Run, history: tuple[Answer, ...]) -> Local:
        text = f"{self.name} {_text(run)}"
        found = self._known.get(text)
        if found is None:
            found = Local(self, text, run.effect, run.outcome, run.session, run.clock, history)
            self._known[text] = found
            if run.effect is not None:
                found.running = run
        elif found.history != history:
            found.twin = history
        return found


class Run:
    """One generator, stepped from one effect that the world must answer to the next."""

    def __init__(self, start: Start, go_on: GoOn | None) -> None:
        self.caller, self.generator = start()
        self._go_on = go_on
        self.steps = 0
        self.clock = 0.0
        self.effect: Effect[Any] | None = None
        self.outcome: Any = None
        self._advance(lambda: next(self.generator))

    def resume(self, answer: Answer) -> None:
        self.clock += answer.elapsed
        value = answer.value
        if isinstance(value, BaseException):
            self._advance(lambda: self.generator.throw(value))
        else:
            self._advance(lambda: self.generator.send(value))

    @property
    def session(self) -> str:
        return self.caller if isinstance(self.caller, str) else self.caller.session

    def _advance(self, move: Callable[[], Effect[Any]]) -> None:
        """Runs on through what no other caller can see."""
        try:
            effect: Effect[Any] | None = move()
            while effect is not None and (told := self._private(effect)) is not None:
                effect = self._next_step() if self._hands_over(effect) else self.generator.send(told[0])
            self.effect = effect
        except StopIteration as stop:
            self.effect, self.outcome = None, stop.value
        except (AthenaAssetsError, AssertionError) as error:
            self.effect, self.outcome = None, error

    def _hands_over(self, effect: Effect[Any]) -> bool:
        if self._go_on is None or self.steps >= STEPS:
            return False
        waits = isinstance(effect, effects.Sleep) and effect.handover
        return waits or (isinstance(effect, effects.Report) and effect.event == "superseded")

    def _next_step(self) -> Effect[Any] | None:
        assert self._go_on is not None
        assert isinstance(self.caller, Caller)
        self.steps += 1
        self.generator.close()
        following = self._go_on(self.caller)
        if following is None:
            return None
        self.caller, self.generator = following
        return next(self.generator)

    def _private(self, effect: Effect[Any]) -> tuple[Any] | None:
        match effect:
            case effects.ReadClock():
                return (self.clock,)
            case effects.DrawFraction():
                return (0.5,)
            case effects.Report() | effects.Sleep():
                return (None,)
        return None


def _hashable(value: Any) -> bool:
    return not isinstance(value, effects.ObjectHead | BaseException)


def _text(run: Run) -> str:
    """Everything that the future of a run depends on."""
    if run.effect is None:
        return f"ended {_canonical(run.outcome)}"
    parts = [repr(run.clock), str(run.steps)]
    generator: Any = run.generator
    while generator is not None:
        frame = generator.gi_frame
        held = [f"{name}={_canonical(value)}" for name, value in sorted(frame.f_locals.items())]
        # The position of a `for` is in an iterator that no local variable names.
        iterators = [_canonical(each) for each in gc.get_referents(generator) if _is_iterator(each)]
        parts.append(f"{generator.gi_code.co_qualname}+{frame.f_lasti} {held} {iterators}")
        generator = generator.gi_yieldfrom
    return "\n".join(parts)


def _is_iterator(value: Any) -> bool:
    return hasattr(type(value), "__next__") and not isinstance(value, Generator)


_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


def _canonical(value: Any) -> str:
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, Request):
        return value.id
    if isinstance(value, Slot):
        return str(value)
    if isinstance(value, Caller | Tenure):
        return f"{type(value).__name__}{[(name, _canonical(held)) for name, held in sorted(vars(value).items())]}"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}({value})"
    if isinstance(value, Generator):
        return "generator"  # it stands in gi_yieldfrom, or has not begun
    if isinstance(value, Iterator):
        return f"{type(value).__name__}{[_canonical(each) for each in value.__reduce__()[1:]]}"
    if callable(value) and not isinstance(value, type):
        cells = [_canonical(cell.cell_contents) for cell in (getattr(value, "__closure__", None) or ())]
        return f"{getattr(value, '__qualname__', value)}{cells}"
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, Register | Manifest | effects.ObjectRead):
        return _remembered(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _of_dataclass(value)
    if isinstance(value, tuple | list):
        return f"({','.join(map(_canonical, value))})"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_canonical(key)}:{_canonical(held)}' for key, held in value.items())}}}"
    return repr(value)


def _of_dataclass(value: Any) -> str:
    return f"{type(value).__name__}{[_canonical(getattr(value, each.name)) for each in fields(value)]}"


_remembered = functools.lru_cache(50_000)(_of_dataclass)
