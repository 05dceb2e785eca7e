"""Scenarios with the guard: what it adds within these bounds, and that it takes nothing away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from athena_assets import errors
from athena_assets.core.register import Mode
from athena_assets.core.request import Request
from athena_assets.core.statement import Label, render_unload
from athena_assets.core.target import Guard
from athena_assets_tests.simulation.scenarios import LOCATION, request, scenario, target
from athena_assets_tests.simulation.states import Scenario
from athena_assets_tests.simulation.world import World

# A foreign query leaves files at the location. In direct mode so does one of ours that has ended and whose token is
# forgotten.
_FOUND_FILES = (errors.LocationNotEmpty,)
_IN_DIRECT = (errors.LocationNotEmpty, errors.QueryUserError, errors.MixedLocation, errors.DirtyLocation)


def wishes(mode: Mode, guard: Guard, **changes: Any) -> tuple[Request, Request]:
    wanted = target(mode=mode, guard=guard, **changes)
    return request("a", wanted), request("b", wanted)


def typed_by_hand(destination: str = str(LOCATION)) -> World:
    """A query is running that somebody has typed."""
    world = World()
    text = f"unload (select n from sales.orders) to '{destination}' with (format = 'JSON')"
    world.by_hand(text, destination.removeprefix(f"s3://{LOCATION.bucket}/"))
    return world


def copied(wish: Request) -> World:
    """The text that the first owner of a direct slot will send is running, in another database."""
    world = World()
    text = render_unload(wish.query, LOCATION, wish.target.format, Label(str(LOCATION), 1, 1))
    world.by_hand(text, LOCATION.prefix, database="another")
    return world


def _each(mode: Mode, guard: Guard) -> Iterator[tuple[str, Callable[[], Scenario]]]:
    pair = wishes(mode, guard)
    told = _IN_DIRECT if mode is Mode.DIRECT else ()
    bounds: dict[str, dict[str, Any]] = {
        "a crash": {"crash": 1},
        "a forgotten token": {"crash": 1, "forget": 1, "alone": True, "told": told},
        "a paused owner": {"pause": 1, "expiry": 1},
        "a lease expires": {"expiry": 1, "throttle": 1},
        "a foreign query": {
            "world": typed_by_hand(),
            "queries": None,
            "fail_for_good": 1,
            **({"alone": True} if guard is Guard.ALWAYS else {"crash": 1}),
            "told": told or _FOUND_FILES,
        },
    }
    if guard is Guard.ALWAYS:
        bounds["an interruption beside a foreign query"] = {**bounds["a foreign query"], "interrupt": 1}
    for what, budget in bounds.items():
        name = f"guard {guard}, {mode}: {what}"
        # Who crashes comes back and takes over: that needs no other caller.
        callers = pair[:1] if "world" in budget and guard is Guard.TAKEOVER else pair
        yield name, partial(scenario, name, *callers, mode=mode, **budget)


def _alone(mode: Mode) -> tuple[str, Callable[[], Scenario]]:
    """One caller, which finds its own earlier query."""
    name = f"guard takeover, {mode}: one caller, a forgotten token"
    told = _IN_DIRECT if mode is Mode.DIRECT else ()
    (wish, _) = wishes(mode, Guard.TAKEOVER)
    return name, partial(scenario, name, wish, mode=mode, crash=1, forget=1, alone=True, told=told)


def _copy() -> Scenario:
    (wish, _) = wishes(Mode.DIRECT, Guard.TAKEOVER)
    name = "guard takeover, direct: the same text in another database"
    return scenario(name, wish, mode=Mode.DIRECT, world=copied(wish), queries=None, crash=1, told=_IN_DIRECT)


SMALL: dict[str, Callable[[], Scenario]] = {
    **dict(_alone(mode) for mode in Mode),
    "guard takeover, direct: the same text in another database": _copy,
}
"""Explored by `make test`."""

LARGE: dict[str, Callable[[], Scenario]] = {
    name: make for mode in Mode for guard in (Guard.TAKEOVER, Guard.ALWAYS) for name, make in _each(mode, guard)
}
"""Explored by `make test-all`, besides."""
