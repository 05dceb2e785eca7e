"""Who meets whom, with which faults: the bounds within which the protocol is explored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from athena_assets import errors
from athena_assets.core.effects import CopyObject, DrawId, Effect, ReadClock
from athena_assets.core.generation import UpstreamVersion, generation_fingerprint
from athena_assets.core.location import Location
from athena_assets.core.protocol import Caller
from athena_assets.core.register import Mode
from athena_assets.core.request import Published, Request
from athena_assets.core.target import Target, UpstreamTable
from athena_assets_tests.simulation.explorer import Fault, Scenario
from athena_assets_tests.simulation.invariants import Invariants
from athena_assets_tests.simulation.programs import Answer, Program, Protocol
from athena_assets_tests.simulation.world import World

LOCATION = Location("lake", "marts/daily/")
TABLE = UpstreamTable("sales", "orders")
VERSIONS = 3

ERRORS: Mapping[Fault, tuple[type[errors.AthenaAssetsError], ...]] = {
    Fault.FAIL: (errors.QueryInternalError,),
    Fault.FAIL_FOR_GOOD: (errors.QueryUserError,),
    Fault.PAUSE: (errors.QueryTimedOut,),
    Fault.FORGET: (errors.QueryInternalError,),
    Fault.LIE: (errors.ResultInvalid,),
    Fault.STRANGER: (errors.LocationNotEmpty,),
}


# Whoever comes next finds the query that was started, by its id or by its token.
HARMLESS = frozenset({Fault.CRASH, Fault.LOST, Fault.LATE, Fault.CONFLICT, Fault.EXPIRY, Fault.PAUSE, Fault.THROTTLE})


def target(**changes: Any) -> Target:
    return Target(**{"name": "daily", "query": "SELECT n FROM sales.orders", "location": str(LOCATION), **changes})


def request(name: str, wanted: Target, **changes: Any) -> Request:
    fields: dict[str, Any] = {
        "id": name,
        "target": wanted,
        "location": LOCATION,
        "query": wanted.query,
        "partition": None,
        "upstreams": (TABLE,),
        "given": (),
        "deterministic": True,
        "workgroup": "primary",
        "output_location": None,
    }
    return Request(**{**fields, **changes})


def caller(wish: Request) -> Program:
    def start() -> tuple[Caller, Protocol]:
        made = Caller(wish, "host", 1)
        return made, made.publish()

    return Program(wish.id, start)


TARGET = target()
OLD, A, B, C = (request(name, TARGET) for name in ("old", "a", "b", "c"))
OTHER = request("b", target(query="SELECT m FROM sales.orders"))
DIRECT = tuple(request(name, target(mode="direct")) for name in ("a", "b"))
CLEANED = tuple(request(name, target(mode="direct", clean_after_failure=True)) for name in ("a", "b"))


def forced(wish: Request) -> Request:
    return replace(wish, force=True)


def scenario(
    name: str,
    *wishes: Request,
    mode: Mode = Mode.STAGED,
    files: int = 1,
    world: World | None = None,
    pending: tuple[Effect[Any], ...] = (),
    queries: int = 1,
    **faults: int,
) -> Scenario:
    """Faults by the names of Fault, in lower case."""
    generations = {
        wish.id: {
            number: generation_fingerprint(wish.definition, (UpstreamVersion(str(TABLE), f"v{number}"),))
            for number in range(1, VERSIONS + 1)
        }
        for wish in wishes
    }
    selects = {wish.definition: wish.query for wish in wishes}
    return Scenario(
        name=name,
        location=LOCATION,
        programs=lambda: tuple(caller(wish) for wish in wishes),
        world=lambda: (world or World(files_per_query=files)).copy(),
        faults={Fault[fault.upper()]: times for fault, times in faults.items()},
        fixed=frozenset(
            {each for versions in generations.values() for each in versions.values()}
            | {wish.definition for wish in wishes}
        ),
        pending=pending,
        invariants=Invariants(
            LOCATION, mode, {wish.id: wish.id for wish in wishes}, generations, selects, queries, HARMLESS, ERRORS
        ),
    )


def left_by(wish: Request, died: Callable[[Effect[Any]], bool], *, files: int = 1) -> tuple[World, Effect[Any]]:
    """The world when a caller dies with an effect under way, and that effect."""
    world = World(files_per_query=files)
    program = caller(wish)
    local = program.initial
    ids = itertools.count(0xF00)
    while local.effect is not None and not died(local.effect):
        for query in tuple(world.active()):
            world.succeed(query)
        if isinstance(local.effect, DrawId):
            local = program.step(local, Answer(f"{next(ids):016x}"))
        else:
            local = program.step(local, Answer(world.perform(local.effect)))
    assert local.effect is not None or isinstance(local.outcome, Published)
    return world, local.effect or ReadClock()


def replaced(wish: Request = OLD, **changes: Any) -> World:
    """A world in which a request has published, and the upstream table has changed since."""
    world, _ = left_by(wish, lambda _: False, **changes)
    world.upstream += 1
    return world


def copying() -> Scenario:
    """A dead owner's copy is still under way while its publication is finished and replaced."""
    world, copy = left_by(A, lambda effect: isinstance(effect, CopyObject))
    return scenario("a late copy", forced(B), world=world, pending=(copy,), queries=2)


# --- what is explored -------------------------------------------------------------------------------------------------

SMALL: dict[str, Callable[[], Scenario]] = {
    "two callers": lambda: scenario("two callers", A, B),
    "a lost reply": lambda: scenario("a lost reply", A, B, lost=1),
    "one caller, late writes": lambda: scenario("one caller, late writes", A, late=2),
    "one caller, two crashes": lambda: scenario("one caller, two crashes", A, crash=2),
    "a late copy": copying,
    "another query": lambda: scenario("another query", A, OTHER, queries=2),
    "the upstream changes": lambda: scenario("the upstream changes", A, B, upstream=1),
    "a stranger": lambda: scenario("a stranger", A, B, stranger=1, world=replaced(), queries=2),
    "a lie": lambda: scenario("a lie", A, B, lie=1),
    "a timeout": lambda: scenario("a timeout", request("a", target(timeout=20)), pause=1),
    "direct": lambda: scenario("direct", *DIRECT, mode=Mode.DIRECT, expiry=1),
}
"""Explored by `make test`."""

LARGE: dict[str, Callable[[], Scenario]] = {
    "a lease expires": lambda: scenario("a lease expires", A, B, expiry=1),
    "two leases expire": lambda: scenario("two leases expire", A, B, expiry=2),
    "a crash": lambda: scenario("a crash", A, B, crash=1),
    "three callers": lambda: scenario("three callers", A, B, C, expiry=1),
    "a crash, another query": lambda: scenario("a crash, another query", A, OTHER, crash=1, queries=2),
    "a replacement": lambda: scenario("a replacement", A, B, world=replaced(files=2), files=2, expiry=1, queries=2),
    "a replacement, late writes": lambda: scenario(
        "a replacement, late writes", A, world=replaced(), late=2, queries=2
    ),
    "two replacements": lambda: scenario(
        "two replacements", forced(A), forced(B), world=replaced(), expiry=1, queries=3
    ),
    "late writes": lambda: scenario("late writes", A, B, late=1, expiry=1),
    "a crash with a write under way": lambda: scenario("a crash with a write under way", A, B, crash=1, late=1),
    "a pause": lambda: scenario("a pause", A, B, pause=1, expiry=1),
    "conflicts": lambda: scenario("conflicts", A, B, conflict=1, throttle=1),
    "a query fails": lambda: scenario("a query fails", A, B, fail=1, crash=1),
    "a user error": lambda: scenario("a user error", A, B, fail_for_good=1, crash=1),
    "a restart inside Athena": lambda: scenario("a restart inside Athena", A, B, orphan=1, crash=1),
    "a forgotten token": lambda: scenario("a forgotten token", A, B, forget=1, crash=1),
    "direct: crashes": lambda: scenario("direct: crashes", *DIRECT, mode=Mode.DIRECT, crash=1, lost=1),
    "direct: late writes": lambda: scenario("direct: late writes", *DIRECT, mode=Mode.DIRECT, late=1, expiry=1),
    "direct: a query fails": lambda: scenario("direct: a query fails", *CLEANED, mode=Mode.DIRECT, fail=1, expiry=1),
}
"""Explored by `make test-all`, besides."""
