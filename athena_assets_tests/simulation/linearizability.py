"""Is the register one register? Histories of concurrent clients, checked against a compare-and-swap register.

Every write has an id of its own and names the one that it replaces, so that the order of the writes is forced. What is
left to find is a moment within each operation, such that this order explains every answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from athena_assets import errors
from athena_assets.core.effects import DrawFraction, DrawId, Effects, Sleep, perform
from athena_assets.core.register import Register, State
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import look, write
from athena_assets_tests.simulation import load
from athena_assets_tests.simulation.timeline import Task, Timeline
from athena_assets_tests.simulation.weather import Chance, Trouble, Weather
from athena_assets_tests.simulation.world import World

SLOT = Slot(load.location("1"), "a client", patience=20.0)
CLIENTS = 4
WRITES = 5  # of each client
TROUBLES = {
    Trouble.KILLED: 0.01,
    Trouble.PAUSED: 0.01,
    Trouble.LOST: 0.05,
    Trouble.LATE: 0.05,
    Trouble.UNSENT: 0.05,
    Trouble.SLOW: 0.02,
    Trouble.CONFLICT: 0.05,
    Trouble.REFUSED: 0.01,
}


class NotLinearizable(AssertionError):
    """No order of the operations explains what the clients were told."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A client looked, and was told that the write `found` stands there; None: nothing."""

    began: float
    ended: float
    found: str | None


@dataclass(frozen=True, slots=True)
class Wrote:
    """A client tried to replace `before` by `id`.

    `applied` is what it concluded. True: its write stood there. False: another does, by now. None: it died, or does not
    know; then what it sent may still be applied, and `ended` is never.
    """

    began: float
    before: str | None
    id: str
    ended: float = math.inf
    applied: bool | None = None


def check(history: Sequence[Looked | Wrote]) -> None:
    """Finds an explanation, or there is none.

    Raises:
        NotLinearizable: says what can't be.
    """
    writes = {each.id: each for each in history if isinstance(each, Wrote)}
    looks = [each for each in history if isinstance(each, Looked)]
    order = _order(writes, looks)
    # The earliest moments at which the writes may have happened. Every other bound is an upper one.
    moments: list[float] = []
    for replaced, value in zip((None, *order), order, strict=False):
        stood_before = [each.began for each in looks if each.found == replaced]
        earliest = max([*moments, writes[value].began, *stood_before])
        latest = min([writes[value].ended, *(each.ended for each in looks if each.found == value)])
        if earliest > latest:
            raise NotLinearizable(f"{value} was there by {latest}, and can't have been before {earliest}")
        moments.append(earliest)
    for each in writes.values():
        if each.applied is False:
            after = 0 if each.before is None else order.index(each.before) + 1
            others = [at for value, at in zip(order[after:], moments[after:], strict=True) if value != each.id]
            if not others or others[0] > each.ended:
                raise NotLinearizable(f"the client of {each.id} was told of another write, and there was none")


def _order(writes: dict[str, Wrote], looks: list[Looked]) -> list[str]:
    """The values that the register had, in their order: of every write that somebody saw, or knows to be applied."""
    seen = [each.found for each in looks if each.found is not None]
    seen += [each.before for each in writes.values() if each.before is not None]
    seen += [each.id for each in writes.values() if each.applied]
    following: dict[str | None, str] = {}
    for found in seen:
        if found not in writes:
            raise NotLinearizable(f"{found} was seen and never written")
        before = writes[found].before
        if following.setdefault(before, found) != found:
            raise NotLinearizable(f"{found} and {following[before]} both replaced {before}")
    order: list[str] = []
    value: str | None = None
    while (value := following.get(value)) is not None:
        order.append(value)
    if not set(order).issuperset(seen):
        raise NotLinearizable(f"{sorted(set(seen) - set(order))} do not follow from an empty register")
    return order


class Clients:
    """Clients of one register, with what goes wrong between them and S3; `history` is what they were told."""

    def __init__(self, chance: Chance) -> None:
        self.history: list[Looked | Wrote] = []
        self.timeline = Timeline(chance, World(), Weather(dict(TROUBLES), {}), 20.0, lambda _: None)
        for number in range(CLIENTS):
            self._run(f"client {number}")
        while self.timeline.turn():
            continue

    def _run(self, name: str) -> None:
        def ended(_: Task, outcome: object) -> None:
            if outcome is None:
                self._run(f"{name}+")  # it was killed
            elif isinstance(outcome, Exception):
                raise outcome

        self.timeline.run(Task(name, self.timeline.process(name), self._client(), ended))

    def _client(self) -> Effects[str]:
        for _ in range(WRITES):
            yield from perform(Sleep(3 * (yield from perform(DrawFraction()))))
            try:
                yield from self._look_and_write()
            except (errors.OutcomeUnknown, errors.ServiceUnavailable, errors.AccessDenied) as error:
                self.timeline.tell("a client", "knows nothing", error)
        return "done"

    def _look_and_write(self) -> Effects[None]:
        began = self.timeline.now
        seen = yield from look(SLOT)
        found = seen.register
        self.history.append(Looked(began, self.timeline.now, None if found is None else found.write_id))
        yield from perform(Sleep((yield from perform(DrawFraction()))))
        register = Register((yield from perform(DrawId())), 1 if found is None else found.fence + 1, State.FREE, 60.0)
        wrote = Wrote(self.timeline.now, None if found is None else found.write_id, register.write_id)
        at = len(self.history)
        self.history.append(wrote)
        written = yield from write(SLOT, seen, register)
        self.history[at] = replace(wrote, ended=self.timeline.now, applied=written is not None)
