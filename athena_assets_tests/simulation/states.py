"""What is explored: a scenario, the states of the world and its callers, and the steps between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from athena_assets.core.effects import Effect
from athena_assets.core.location import Location
from athena_assets_tests.simulation.invariants import Invariants
from athena_assets_tests.simulation.programs import Answer, Local, Program
from athena_assets_tests.simulation.world import World


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
