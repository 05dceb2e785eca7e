"""Who wants what: the slots, targets and requests of simulations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from athena_assets.core.generation import UpstreamVersion, generation_fingerprint
from athena_assets.core.location import Location
from athena_assets.core.register import Mode
from athena_assets.core.request import Request
from athena_assets.core.target import OnConflict, Reuse, Target, UpstreamTable
from athena_assets_tests.simulation.weather import Chance

V = TypeVar("V")

TABLE = UpstreamTable("sales", "orders")
UNKNOWN = 0  # the number of an upstream version that nobody tells
VERSIONS = range(1, 60)
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens in one schedule: `bursts` of load and as many chores, over `seconds`."""

    slots: int
    bursts: int
    seconds: float


SHORT, MIDDLE, LONG = Size(1, 3, 200.0), Size(2, 6, 600.0), Size(4, 14, 2400.0)


def draw_size(chance: Chance) -> Size:
    """Most faults need few callers; some need a long history."""
    return pick(chance, (0.7, SHORT), (0.93, MIDDLE), (1.0, LONG))


def pick(chance: Chance, *options: tuple[float, V]) -> V:
    """One of the options, each with the upper limit of its share. A chance of 0 picks the first."""
    drawn = chance.random()
    return next(value for limit, value in options if drawn < limit)


def draw_target(chance: Chance, mode: Mode, *, cleans: bool, glue: bool) -> Target:
    """Two targets share the locations; their definitions differ, and so may what their callers want of them."""
    return _target(
        mode,
        pick(chance, (0.8, 0), (1.0, 1)),
        pick(
            chance,
            (0.7, OnConflict.JOIN),
            (0.8, OnConflict.QUEUE),
            (0.9, OnConflict.SKIP),
            (1.0, OnConflict.FAIL),
        ),
        pick(chance, (0.8, Reuse.AUTO), (0.9, Reuse.ALWAYS), (1.0, Reuse.NEVER)),
        pick(chance, (0.5, 1), (0.75, 0), (1.0, 2)),
        pick(chance, (0.5, 2), (0.75, 1), (1.0, 0)),
        pick(chance, (0.9, False), (1.0, True)),
        cleans,
        glue,
    )


@functools.cache
def _target(
    mode: Mode,
    variant: int,
    policy: OnConflict,
    reuse: Reuse,
    keep: int,
    retries: int,
    hasty: bool,
    cleans: bool,
    glue: bool,
) -> Target:
    return Target(
        name=f"daily_{variant}",
        query=f"SELECT n, {variant} FROM sales.orders WHERE day = ${{partition}}",
        location="s3://lake/marts/daily/day=${partition}",
        on_conflict=policy,
        reuse=reuse,
        mode=mode,
        keep_previous=keep,
        retries=retries,
        timeout=40.0 if hasty else HOUR,
        wait_timeout=60.0 if hasty else 6 * HOUR,
        clean_after_failure=cleans,
        glue_table="marts.daily" if glue else None,
    )


def last_target(mode: Mode, *, glue: bool = False) -> Target:
    """What is asked for when all is over: by a caller that nothing hurries."""
    return _target(mode, 0, OnConflict.JOIN, Reuse.AUTO, 1, 2, False, False, glue)


@functools.cache
def location(partition: str) -> Location:
    return last_target(Mode.STAGED).location_for(partition)


def request(name: str, target: Target, partition: str, lease: float, *, force: bool = False) -> Request:
    return Request(
        id=name,
        target=target,
        location=location(partition),
        query=target.query_for(partition),
        partition=partition,
        upstreams=(TABLE,),
        given=(),
        deterministic=True,
        workgroup="primary",
        output_location=None,
        force=force,
        lease=lease,
        patience=5 * lease,
    )


@functools.cache
def generations(definition: str) -> Mapping[str, int]:
    """The generations of a definition, and the upstream version of each."""
    found = {
        generation_fingerprint(definition, (UpstreamVersion(str(TABLE), f"v{version}"),)): version
        for version in VERSIONS
    }
    return {**found, generation_fingerprint(definition, (UpstreamVersion(str(TABLE), None),)): UNKNOWN}
