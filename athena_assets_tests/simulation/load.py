"""Who wants what: the slots, targets and requests of simulations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from athena_assets.core.generation import UpstreamVersion, generation_fingerprint
from athena_assets.core.location import Location
from athena_assets.core.register import GRACE_SECONDS, Mode
from athena_assets.core.request import Request
from athena_assets.core.target import Guard, OnConflict, Reuse, Target, UpstreamTable
from athena_assets_tests.simulation.weather import Chance

V = TypeVar("V")

TABLE = UpstreamTable("sales", "orders")
UNKNOWN = 0  # the number of an upstream version that nobody tells
VERSIONS = range(1, 60)
HOUR = 3600.0


class Way(StrEnum):
    """How the results of one schedule are published."""

    STAGED = "staged"
    DIRECT = "direct"
    POINTER = "pointer"
    TABLE = "pointer with a Glue table"
    PARTITION = "pointer with Glue partitions"

    @property
    def mode(self) -> Mode:
        return Mode(self.value) if self in (Way.STAGED, Way.DIRECT) else Mode.POINTER

    @property
    def glue(self) -> bool:
        return self in (Way.TABLE, Way.PARTITION)


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


@dataclass(frozen=True, slots=True)
class Wanted:
    """A target, but for its slot.

    Args:
        variant: two definitions share the locations.
        hasty: it waits for neither its query nor others for long.
    """

    way: Way
    grace: float
    variant: int = 0
    on_conflict: OnConflict = OnConflict.JOIN
    reuse: Reuse = Reuse.AUTO
    keep: int = 1
    retries: int = 2
    hasty: bool = False
    cleans: bool = False
    guard: Guard = Guard.OFF


def draw_wanted(chance: Chance, patient: Wanted, *, cleans: bool) -> Wanted:
    """Like `patient`, and not always so."""
    return replace(
        patient,
        variant=pick(chance, (0.8, 0), (1.0, 1)),
        on_conflict=pick(
            chance,
            (0.7, OnConflict.JOIN),
            (0.8, OnConflict.QUEUE),
            (0.9, OnConflict.SKIP),
            (1.0, OnConflict.FAIL),
        ),
        reuse=pick(chance, (0.8, Reuse.AUTO), (0.9, Reuse.ALWAYS), (1.0, Reuse.NEVER)),
        keep=pick(chance, (0.5, 1), (0.75, 0), (1.0, 2)),
        retries=pick(chance, (0.5, 2), (0.75, 1), (1.0, 0)),
        hasty=pick(chance, (0.9, False), (1.0, True)),
        cleans=cleans,
    )


@functools.cache
def target(wanted: Wanted, partition: str) -> Target:
    """A table of its own for each slot needs a target of its own for each."""
    value = partition if wanted.way is Way.TABLE else "${partition}"
    where = f"'{partition}'" if wanted.way is Way.TABLE else "${partition}"
    return Target(
        name=f"daily_{wanted.variant}",
        query=f"SELECT n, {wanted.variant} FROM sales.orders WHERE day = {where}",
        location=f"s3://lake/marts/daily/day={value}",
        on_conflict=wanted.on_conflict,
        guard=wanted.guard,
        reuse=wanted.reuse,
        mode=wanted.way.mode,
        keep_previous=wanted.keep,
        retries=wanted.retries,
        timeout=40.0 if wanted.hasty else HOUR,
        wait_timeout=60.0 if wanted.hasty else 6 * HOUR,
        clean_after_failure=wanted.cleans,
        glue_table={Way.TABLE: f"marts.daily_{partition}", Way.PARTITION: "marts.daily"}.get(wanted.way),
        grace_period=wanted.grace if wanted.way.mode is Mode.POINTER else GRACE_SECONDS,
    )


@functools.cache
def location(partition: str) -> Location:
    return Location("lake", f"marts/daily/day={partition}/")


def request(name: str, wanted: Wanted, partition: str, lease: float, *, force: bool = False) -> Request:
    made = target(wanted, partition)
    value = partition if made.partitioned else None
    return Request(
        id=name,
        target=made,
        location=made.location_for(value),
        query=made.query_for(value),
        partition=value,
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
