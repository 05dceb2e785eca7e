"""Runs one request in steps, each of which may be in another process, with a pause in between.

A step ends where the caller would wait. The next one goes on in its place: it has the same session, takes the slot over
at once with a fence of its own, and knows what the last one knew. So a step that crashes is nothing special, and two
that run at the same time (the first was thought dead) meet as any two owners do.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from athena_assets.aws.driver import Driver, Observe, new_caller
from athena_assets.aws.session import AwsClients
from athena_assets.core.codec import SCHEMA
from athena_assets.core.effects import Report, Sleep
from athena_assets.core.memory import Memory
from athena_assets.core.request import Outcome, Request
from athena_assets.errors import AthenaAssetsError

LONGER = 4  # times the wait of a caller that has a process of its own: each step costs a few calls
SHORTEST = 1  # second: Step Functions waits whole seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the next step has to know. `clock`: seconds of the caller's clock, pauses included."""

    memory: Memory
    clock: float
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Pause:
    """The step has ended, the request has not: go on with `progress` after so many seconds."""

    seconds: int
    progress: Progress


def step(
    clients: AwsClients,
    request: Request,
    *,
    session: str,
    host: str,
    progress: Progress | None,
    until: float,
    observe: Observe | None = None,
) -> Outcome | Pause:
    """Goes on with a request until it has to wait, or has its outcome.

    Args:
        session: the same for all steps of one request, and of no other.
        host: who owns the slot, for people.
        progress: what the last step that ended gave; None: there was none.
        until: the monotonic time after which nothing more is begun.
    """
    began, clock = time.monotonic(), 0.0 if progress is None else progress.clock
    caller = new_caller(request, host=host, session=session, memory=None if progress is None else progress.memory)
    # Its clock goes on where the last step's stopped, plus the pause: Step Functions waits no less than it is told. A
    # clock that is slow makes others' leases seem longer, and a query seem younger, than they are.
    driver = Driver(clients, request.slot, observe, clock=lambda: clock + time.monotonic() - began)

    def pause(seconds: float) -> Pause:
        whole = max(SHORTEST, math.floor(seconds))
        return Pause(whole, Progress(memory=caller.memory, clock=clock + time.monotonic() - began + whole))

    steps = caller.publish()
    try:
        effect = next(steps)
        while time.monotonic() < until:
            if isinstance(effect, Sleep) and effect.handover:
                return pause(min(effect.seconds * LONGER, request.lease / 2))
            if isinstance(effect, Report) and effect.event == "superseded":
                driver.perform(effect)
                return pause(SHORTEST)  # whoever stopped this request has freed its slot: no new query is begun here
            try:
                answer = driver.perform(effect)
            except AthenaAssetsError as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome
    finally:
        steps.close()
    return pause(SHORTEST)
