"""The shortest stories: callers that are taken on by hand, effect by effect, over one world."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any, TypeVar

from athena_assets.core import effects
from athena_assets.core.effects import Effect
from athena_assets.core.register import FailureKind, State
from athena_assets_tests.simulation.scenarios import LOCATION
from athena_assets_tests.simulation.world import World

E = TypeVar("E", bound=Effect[Any])
Steps = Generator[Effect[Any], Any, Any]


class Story:
    """Callers that are taken on by hand, over one world. Time passes while they sleep."""

    def __init__(self) -> None:
        self.world = World()
        self.cancels = (
            False  # whether somebody cancels each query, in the queue, before it has looked at its destination
        )
        self.throttled = False  # whether Athena accepts no query
        self.endless: set[str] = set()  # queries that do not end because somebody polls them
        self._clock = 0.0
        self._ids = itertools.count(1)
        self._stands: dict[Steps, Effect[Any]] = {}

    @property
    def state(self) -> State | None:
        """Of the slot's register."""
        register = self.world.register(LOCATION)
        return None if register is None else register.state

    def pass_by(self, seconds: float) -> None:
        self._clock += seconds

    def step(self, steps: Steps) -> Effect[Any]:
        """One step: returns the effect before which the caller then stands. Raises StopIteration at its end."""
        effect = self._stands.pop(steps, None)
        stands = next(steps) if effect is None else steps.send(self._answer(effect))
        self._stands[steps] = stands
        return stands

    def tell(self, steps: Steps, answer: object) -> Effect[Any]:
        """One step with this answer instead of the world's."""
        del self._stands[steps]
        self._stands[steps] = stands = steps.send(answer)
        return stands

    def until(self, steps: Steps, kind: type[E]) -> E:
        """Goes on until the caller stands before an effect of that kind, which is returned."""
        while not isinstance(effect := self.step(steps), kind):
            continue
        return effect

    def end(self, steps: Steps) -> Any:
        """Goes on to the outcome."""
        while True:
            try:
                self.step(steps)
            except StopIteration as stop:
                return stop.value

    def _answer(self, effect: Effect[Any]) -> Any:
        match effect:
            case effects.ReadClock():
                return self._clock
            case effects.Sleep(seconds):
                self._clock += seconds
                return None
            case effects.DrawId():
                return f"{next(self._ids):016x}"
            case effects.DrawFraction():
                return 0.5
            case effects.Report():
                return None
            case effects.StartQuery() if self.throttled:
                return effects.StartThrottled("TooManyRequestsException")
            case effects.PollQuery():
                query = self.world.queries[effect.query_id]
                if self.cancels:
                    self.world.fail(query, FailureKind.CANCELLED, partial=False)
                elif query.state is effects.QueryState.ACTIVE and query.id not in self.endless:
                    self.world.succeed(query)
        return self.world.perform(effect)
