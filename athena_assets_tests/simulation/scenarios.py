"""Who meets whom, with which faults: the bounds within which the protocol is explored."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from athena_assets import errors
from athena_assets.core.abandon import abandon
from athena_assets.core.collect import collect
from athena_assets.core.effects import AtOnce, CopyObject, DrawId, Effect
from athena_assets.core.generation import UpstreamVersion, generation_fingerprint
from athena_assets.core.location import Location
from athena_assets.core.memory import Memory
from athena_assets.core.protocol import Caller
from athena_assets.core.register import Mode, Owner
from athena_assets.core.request import Published, Request
from athena_assets.core.restore import restore
from athena_assets.core.slot import Slot
from athena_assets.core.target import Target, UpstreamTable
from athena_assets_tests.simulation.invariants import Invariants
from athena_assets_tests.simulation.programs import Answer, Program, Protocol
from athena_assets_tests.simulation.states import Fault, Scenario
from athena_assets_tests.simulation.world import World

LOCATION = Location("lake", "marts/daily/")
TABLE = UpstreamTable("sales", "orders")
VERSIONS = 4

ERRORS: Mapping[Fault | str, tuple[type[errors.AthenaAssetsError], ...]] = {
    Fault.FAIL_FOR_GOOD: (errors.QueryUserError,),
    Fault.PAUSE: (errors.QueryTimedOut,),
    Fault.INTERRUPT: (errors.QueryCancelled,),
    Fault.LIE: (errors.ResultInvalid,),
    Fault.STRANGER: (errors.LocationNotEmpty,),
    "restore": (errors.SlotBusy, errors.NotKept),
}

# In direct mode nobody can tell whose a file at the location is, and a result can't be replaced.
_MIXED = (errors.MixedLocation, errors.DirtyLocation)
DIRECT_ERRORS: Mapping[Fault | str, tuple[type[errors.AthenaAssetsError], ...]] = {
    **ERRORS,
    Fault.LIE: (errors.ResultInvalid, *_MIXED),
    Fault.STRANGER: (errors.LocationNotEmpty, errors.QueryUserError, *_MIXED),  # or Athena refuses the destination
    Fault.UPSTREAM: (errors.LocationNotEmpty,),
}


# Whoever comes next finds the query that was started, by its id or by its token.
HARMLESS = frozenset({Fault.CRASH, Fault.LOST, Fault.LATE, Fault.CONFLICT, Fault.EXPIRY, Fault.PAUSE, Fault.THROTTLE})


def target(**changes: Any) -> Target:
    """Without the guard, unless `changes` has it: nothing that is promised depends on it."""
    fields = {"name": "daily", "query": "SELECT n FROM sales.orders", "location": str(LOCATION), "guard": "off"}
    return Target(**{**fields, **changes})


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

    return Program(wish.id, start, lambda session: abandon(wish.slot, session))


def stepped(wish: Request) -> Program:
    """A caller in steps, as the Lambda function runs it. All of one request have one session; a crash loses memory."""
    return Program(
        wish.id,
        lambda: _step(wish),
        lambda session: abandon(wish.slot, session),
        lambda before: _step(wish, before.memory),
    )


def late_step(wish: Request) -> Program:
    """A step of `wish` that was thought dead, and runs beside the one that was begun in its place."""
    return Program(f"{wish.id}, late", lambda: _step(wish), go_on=lambda _: None)


def _step(wish: Request, memory: Memory | None = None) -> tuple[Caller, Protocol]:
    session = hashlib.sha256(wish.id.encode()).hexdigest()[:16]
    made = Caller(wish, "function", 1, session=session, memory=memory)
    return made, made.publish()


def collector() -> Program:
    """`athena-assets gc`."""
    return Program("gc", lambda: ("", collect(Slot(LOCATION, "gc"), delete=True)))


def restorer() -> Program:
    """`athena-assets restore` of the first publication."""
    owner = Owner("restorer", "host", 1, "restore")
    return Program("restore", lambda: ("restorer", restore(Slot(LOCATION, "restore"), fence=1, owner=owner, lease=60)))


TARGET = target()
OLDER, OLD, A, B, C = (request(name, TARGET) for name in ("older", "old", "a", "b", "c"))
SKIPPING = request("a", target(on_conflict="skip"))
OTHER = request("b", target(query="SELECT m FROM sales.orders"))
DIRECT = tuple(request(name, target(mode="direct")) for name in ("a", "b"))
CLEANED = tuple(request(name, target(mode="direct", clean_after_failure=True)) for name in ("a", "b"))
POINTED = tuple(request(name, target(mode="pointer")) for name in ("a", "b"))
IN_GLUE = tuple(request(name, target(mode="pointer", glue_table="marts.daily")) for name in ("a", "b"))
BY_PARTITION = tuple(
    replace(
        request(name, target(mode="pointer", glue_table="marts.daily", location="s3://lake/marts/${partition}/")),
        partition="daily",
    )
    for name in ("a", "b")
)


def forced(wish: Request) -> Request:
    return replace(wish, force=True)


def scenario(
    name: str,
    *wishes: Request,
    mode: Mode = Mode.STAGED,
    files: int = 1,
    world: World | None = None,
    pending: tuple[Effect[Any], ...] = (),
    beside: Callable[[], Program] | None = None,
    glue: bool = False,
    queries: int | None = 1,
    alone: bool = False,
    in_steps: int = 0,
    twin: bool = False,
    told: tuple[type[errors.AthenaAssetsError], ...] = (),
    **faults: int,
) -> Scenario:
    """Faults by the names of Fault, in lower case.

    The first `in_steps` wishes are each run in steps; with `twin`, a late step of the first runs beside. `told`: errors
    that the callers may end with whatever happens.
    """
    explained = DIRECT_ERRORS if mode is Mode.DIRECT else ERRORS
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
        programs=lambda: (
            *(stepped(wish) if number < in_steps else caller(wish) for number, wish in enumerate(wishes)),
            *((beside(),) if beside is not None else ()),
            *((late_step(wishes[0]),) if twin else ()),
        ),
        world=lambda: (world or World(files_per_query=files, glue=glue)).copy(),
        faults={Fault[fault.upper()]: times for fault, times in faults.items()},
        fixed=frozenset(
            {each for versions in generations.values() for each in versions.values()}
            | {wish.definition for wish in wishes}
        ),
        pending=pending,
        invariants=Invariants(
            LOCATION,
            mode,
            {wish.id: wish.id for wish in wishes} | ({late_step(wishes[0]).name: wishes[0].id} if twin else {}),
            generations | ({late_step(wishes[0]).name: generations[wishes[0].id]} if twin else {}),
            selects,
            queries,
            HARMLESS,
            {**explained, **{wish.id: told for wish in wishes}},
            alone=alone,
        ),
    )


def left_by(wish: Request, world: World, died: Callable[[Effect[Any]], bool] = lambda _: False) -> Effect[Any] | None:
    """Runs a caller alone until it ends or dies with an effect under way, which is returned."""
    local = caller(wish).initial
    ids = itertools.count(0x1000 * len(world.objects))
    while local.effect is not None and not died(local.effect):
        for query in tuple(world.active()):
            world.succeed(query)
        answer = f"{next(ids):016x}" if isinstance(local.effect, DrawId) else world.perform(local.effect)
        local = local.program.step(local, Answer(answer))
    assert local.effect is not None or isinstance(local.outcome, Published)
    return local.effect


def replaced(*wishes: Request, files: int = 1) -> World:
    """A world in which these have published one after the other, and the upstream table has changed after each."""
    world = World(files_per_query=files)
    for wish in wishes or (OLD,):
        left_by(wish, world)
        world.upstream += 1
    return world


def copying() -> Scenario:
    """A dead owner's copy is still under way while its publication is finished and replaced."""
    world = World()
    copies = left_by(A, world, lambda effect: isinstance(effect, AtOnce) and isinstance(effect.effects[0], CopyObject))
    assert isinstance(copies, AtOnce)
    return scenario("a late copy", forced(B), world=world, pending=copies.effects, queries=2)


def _in_mode(name: str, wishes: tuple[Request, ...], mode: Mode) -> dict[str, Callable[[], Scenario]]:
    """The faults that meet all modes alike, each by itself."""
    faults: dict[str, dict[str, Any]] = {
        "an interruption": {"interrupt": 1},
        "conflicts": {"conflict": 1, "throttle": 1},
        "the upstream changes": {"upstream": 1},
        "a stranger": {"stranger": 1},
        "a lie": {"lie": 1},
        "a user error": {"fail_for_good": 1},
    }
    return {
        f"{name}: {what}": partial(scenario, f"{name}: {what}", *wishes, mode=mode, **budget)
        for what, budget in faults.items()
    }


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
    "in steps": lambda: scenario("in steps", A, in_steps=1, crash=1, fail_for_good=1),
    "gc beside a publication": lambda: scenario(
        "gc beside a publication", A, beside=collector, world=replaced(), queries=2
    ),
    "direct": lambda: scenario("direct", *DIRECT, mode=Mode.DIRECT, expiry=1),
    "pointer: a restart inside Athena": lambda: scenario(
        "pointer: a restart inside Athena", POINTED[0], mode=Mode.POINTER, orphan=1
    ),
    "pointer": lambda: scenario("pointer", *POINTED, mode=Mode.POINTER, expiry=1),
    "pointer with Glue": lambda: scenario("pointer with Glue", *IN_GLUE, mode=Mode.POINTER, glue=True, lost=1),
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
    "an interruption": lambda: scenario("an interruption", A, B, interrupt=1),
    "in steps: a late step": lambda: scenario("in steps: a late step", A, in_steps=1, twin=True),
    "in steps: given up beside a late step": lambda: scenario(
        "in steps: given up beside a late step", A, in_steps=1, twin=True, interrupt=1
    ),
    "skipping": lambda: scenario("skipping", SKIPPING, B, expiry=1),
    "skipping, then replaced": lambda: scenario("skipping, then replaced", SKIPPING, forced(B), expiry=1, queries=None),
    "in steps: another caller": lambda: scenario("in steps: another caller", A, B, in_steps=1, crash=1),
    "in steps: both": lambda: scenario("in steps: both", A, B, in_steps=2, expiry=1),
    "in steps: an interruption": lambda: scenario("in steps: an interruption", A, B, in_steps=1, interrupt=1),
    "in steps: pointer": lambda: scenario(
        "in steps: pointer", POINTED[0], mode=Mode.POINTER, in_steps=1, twin=True, fail=1
    ),
    "in steps: direct": lambda: scenario("in steps: direct", *DIRECT, mode=Mode.DIRECT, in_steps=1, crash=1),
    "a restore beside a publication": lambda: scenario(
        "a restore beside a publication", A, beside=restorer, world=replaced(OLDER, OLD), crash=1, queries=3
    ),
    "gc beside a crash": lambda: scenario(
        "gc beside a crash", A, beside=collector, world=replaced(), crash=1, queries=2
    ),
    "pointer: crashes": lambda: scenario("pointer: crashes", *POINTED, mode=Mode.POINTER, crash=1, orphan=1),
    **_in_mode("pointer", POINTED, Mode.POINTER),
    "pointer with Glue: a lease expires": lambda: scenario(
        "pointer with Glue: a lease expires", *map(forced, IN_GLUE), mode=Mode.POINTER, glue=True, expiry=1, queries=2
    ),
    "pointer with Glue: crashes": lambda: scenario(
        "pointer with Glue: crashes", *IN_GLUE, mode=Mode.POINTER, glue=True, crash=1, lost=1
    ),
    "pointer with Glue: late writes": lambda: scenario(
        "pointer with Glue: late writes",
        *map(forced, IN_GLUE),
        mode=Mode.POINTER,
        glue=True,
        late=1,
        expiry=1,
        queries=2,
    ),
    "pointer by partition: late writes": lambda: scenario(
        "pointer by partition: late writes",
        *map(forced, BY_PARTITION),
        mode=Mode.POINTER,
        glue=True,
        late=1,
        expiry=1,
        queries=2,
    ),
    **_in_mode("direct", DIRECT, Mode.DIRECT),
    "direct: crashes": lambda: scenario("direct: crashes", *DIRECT, mode=Mode.DIRECT, crash=1, lost=1),
    "direct: late writes": lambda: scenario("direct: late writes", *DIRECT, mode=Mode.DIRECT, late=1, expiry=1),
    "direct: a query fails": lambda: scenario("direct: a query fails", *CLEANED, mode=Mode.DIRECT, fail=1, expiry=1),
}
"""Explored by `make test-all`, besides."""
