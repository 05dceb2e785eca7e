"""Troubles that come at any time, to whatever is there."""

from __future__ import annotations

from dataclasses import replace

from athena_assets.core import keys
from athena_assets.core.effects import QueryState
from athena_assets.core.location import Location
from athena_assets.core.register import Mode, State
from athena_assets_tests.simulation.timeline import Timeline
from athena_assets_tests.simulation.weather import Trouble
from athena_assets_tests.simulation.world import STRANGERS, World

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
        case Trouble.GLUE_OUTAGE:
            timeline.glue_back = timeline.now + draw(1, 10 * lease)
        case Trouble.TABLE_CHANGED:
            world.touch_tables()
        case Trouble.TOKENS_FORGOTTEN:
            running = {query.id for query in world.active()}
            for token, query_id in tuple(world.tokens.items()):
                # In pointer mode the twin of a query that still runs is a window that docs/guarantees.md names.
                if mode is not Mode.POINTER or query_id not in running:
                    del world.tokens[token]
        case Trouble.QUERIES_FORGOTTEN:
            for query in world.queries.values():
                # In direct mode a query that runs on while nobody knows of it would write into the location.
                if mode is not Mode.DIRECT or query.state is not QueryState.ACTIVE:
                    world.queries[query.id] = replace(query, known=False)
        case Trouble.CANCELLED:
            for query in tuple(world.active()):
                timeline.cancel(query.id)
        case Trouble.UPSTREAM:
            world.upstream += 1
        case Trouble.STRANGER:
            # An attempt's directory, like its staging, is known to its query alone; a published one to everybody.
            register = world.register(location)
            published = None if register is None or register.publication is None else register.publication.directory
            place = published if published is not None and timeline.toss() else location.prefix
            key = f"{place}{STRANGERS}{len(world.foreign)}"
            world.intrude(key)
            timeline.at(draw(1, 10 * lease), lambda: world.leave(key))
        case Trouble.STAGING_LOST:
            for prefix in _unfinished(world, location) if mode is Mode.POINTER else (keys.staging_root(location),):
                world.steal(prefix)
        case Trouble.BACKUP_LOST:
            for prefix in _kept(world, location) if mode is Mode.POINTER else (keys.backup_root(location),):
                world.steal(prefix)


def _unfinished(world: World, location: Location) -> tuple[str, ...]:
    """Pointer mode: the directories whose result readers are not sent to yet."""
    register = world.register(location)
    if register is None:
        return ()
    if register.state is State.PUBLISHING and register.publication is not None:
        directory = register.publication.directory
        return () if directory is None else (directory,)
    return () if register.attempt is None else tuple(each.staging for each in register.attempt.starts)


def _kept(world: World, location: Location) -> tuple[str, ...]:
    """Pointer mode: the directories of replaced results that are kept."""
    register = world.register(location)
    return () if register is None else tuple(each.backup for each in register.kept)
