"""Who meets whom, with which faults: the bounds within which the protocol is explored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena_assets import errors
from athena_assets.core.effects import DrawId
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


def scenario(
    name: str,
    *wishes: Request,
    mode: Mode = Mode.STAGED,
    files: int = 1,
    world: World | None = None,
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
        invariants=Invariants(
            LOCATION, mode, {wish.id: wish.id for wish in wishes}, generations, selects, queries, HARMLESS, ERRORS
        ),
    )


def published_before(wish: Request, files: int = 1) -> World:
    """A world in which a request has published, and the upstream table has changed since."""
    world = World(files_per_query=files)
    program = caller(wish)
    local = program.initial
    number = 0xF00
    while not local.ended:
        for query in tuple(world.active()):
            world.succeed(query)
        if isinstance(local.effect, DrawId):
            number += 1
            local = program.step(local, Answer(f"{number:016x}"))
        else:
            assert local.effect is not None
            local = program.step(local, Answer(world.perform(local.effect)))
    assert isinstance(local.outcome, Published)
    world.upstream += 1
    return world
