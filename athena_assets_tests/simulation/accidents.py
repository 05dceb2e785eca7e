"""Troubles that come at any time, to whatever is there."""

from __future__ import annotations

from dataclasses import replace

from athena_assets.core import keys
from athena_assets.core.effects import QueryState
from athena_assets.core.location import Location
from athena_assets.core.register import Mode
from athena_assets_tests.simulation.timeline import Timeline
from athena_assets_tests.simulation.weather import Trouble

DAY = 86_400.0


def strike(trouble: Trouble, timeline: Timeline, *, location: Location, mode: Mode, lease: float) -> None:
    """Lets one of `weather.ANY_TIME` happen; what concerns a slot happens to the one at `location`."""
    world, draw = timeline.world, timeline.draw
    timeline.suffer(trouble, "the world")
    match trouble:
        case Trouble.CLOCK_STEP:
            for process in timeline.processes:
                process.clock += DAY if timeline.toss() else 0.0
        case Trouble.S3_CLOCK_STEP:
            timeline.s3_clock += DAY if timeline.toss() else -DAY
        case Trouble.S3_OUTAGE:
            timeline.s3_back = timeline.now + draw(1, 10 * lease)
        case Trouble.ATHENA_OUTAGE:
            timeline.athena_back = timeline.now + draw(1, 10 * lease)
        case Trouble.TOKENS_FORGOTTEN:
            world.tokens.clear()
        case Trouble.QUERIES_FORGOTTEN:
            for query in world.queries.values():
                # In direct mode a query that runs on while nobody knows of it would write into the location.
                if mode is Mode.STAGED or query.state is not QueryState.ACTIVE:
                    world.queries[query.id] = replace(query, known=False)
        case Trouble.CANCELLED:
            for query in tuple(world.active()):
                timeline.cancel(query.id)
        case Trouble.UPSTREAM:
            world.upstream += 1
        case Trouble.STRANGER:
            key = f"{location.prefix}strangers-{len(world.foreign)}"
            world.intrude(key)
            timeline.at(draw(1, 10 * lease), lambda: world.leave(key))
        case Trouble.STAGING_LOST:
            world.steal(keys.staging_root(location))
        case Trouble.BACKUP_LOST:
            world.steal(keys.backup_root(location))
