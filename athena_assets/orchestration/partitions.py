"""Which partitions an asset may have, so that each key means to Dagster what it means to the query."""

from collections.abc import Sequence
from datetime import datetime

import dagster as dg

from athena_assets.core.partition import Grain, join_key, split_key, window
from athena_assets.core.target import Target

_SCHEDULES = {Grain.HOUR: "HOURLY", Grain.DAY: "DAILY", Grain.WEEK: "WEEKLY", Grain.MONTH: "MONTHLY"}


def check_partitions(target: Target, partitions_def: dg.PartitionsDefinition | None) -> None:
    """Refuses, at load, what can be seen there: whether there are partitions, their names, length, and one or all keys.

    Partitions of several dimensions go with a target that names the same ones; or with `${partition}`, which is then
    the whole key.

    Raises:
        InvalidTarget: target and partitions go against each other.
    """
    if target.partitioned and partitions_def is None:
        field, has = ("dimensions", "they are given") if target.dimensions else ("location", "it has ${partition}")
        raise target.invalid(field, f"{has}, and the asset has no partitions.", "Give the asset a partitions_def.")
    if partitions_def is None:
        return
    if not target.partitioned:
        raise target.invalid(
            "location",
            "the asset has partitions, and the location no ${partition}: each would replace the one before.",
            "Put ${partition} into the location, or give dimensions, or leave partitions_def out.",
        )
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        for each in _dimensions(partitions_def).values():
            _check_end(target, each)
    _check_end(target, partitions_def)
    if target.dimensions:
        keys = _multi_samples(target, _check_dimensions(target, partitions_def))
    else:
        if target.grain is not None:
            _check_schedule(target, Grain(target.grain), partitions_def)
        keys = _samples(partitions_def)
    for key in keys:
        check_key(target, partitions_def, key)


def check_key(target: Target, partitions_def: dg.PartitionsDefinition, key: str) -> None:
    """Refuses a key that does not fit into the location, or whose time is another one for Dagster than for the query.

    Compared as wall-clock time of the partitions' zone, which is what the query is given. Where the clock is put
    forward a window may end at a time that does not exist, and means the moment after. Where it is put back, an hour's
    wall-clock time means two hours: neither of the two hourly partitions is one that a query could tell by it.

    Raises:
        InvalidTarget: as said.
    """
    target.location_for(key)
    time = key
    if target.dimensions and isinstance(partitions_def, dg.MultiPartitionsDefinition):
        time = split_key(target.dimensions, key)[target.dimensions[0]]
        partitions_def = _dimensions(partitions_def)[target.dimensions[0]]
    if target.grain is None or not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return
    ours = window(Grain(target.grain), time)
    theirs = partitions_def.time_window_for_partition_key(time)
    if not (_is(ours[0], theirs.start) and _is(ours[1], theirs.end)):
        raise target.invalid(
            "grain",
            f"the partition {time!r} is {ours[0]} to {ours[1]} by the grain {target.grain}, and {theirs.start} to "
            f"{theirs.end} by the asset's partitions.",
            "Leave out the offset and use Dagster's own keys, or leave out grain and use the keys alone.",
        )


def _check_dimensions(target: Target, partitions_def: dg.PartitionsDefinition) -> dg.MultiPartitionsDefinition:
    names = ", ".join(sorted(target.dimensions))
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        raise target.invalid(
            "dimensions",
            f"they are {names}, and the partitions of the asset have no dimensions: {partitions_def}.",
            "Give it a MultiPartitionsDefinition, or leave dimensions out and use ${partition}.",
        )
    theirs = _dimensions(partitions_def)
    if theirs.keys() != set(target.dimensions):
        raise target.invalid(
            "dimensions",
            f"they are {names}, and those of the asset's partitions are {', '.join(sorted(theirs))}.",
            "Name the same ones in both.",
        )
    if target.grain is not None:
        _check_schedule(target, Grain(target.grain), theirs[target.dimensions[0]])
    return partitions_def


def _multi_samples(target: Target, partitions_def: dg.MultiPartitionsDefinition) -> Sequence[str]:
    """Each known key of each dimension, with the first key of the others."""
    parts = {name: _samples(each) or ["0"] for name, each in _dimensions(partitions_def).items()}
    first = {name: keys[0] for name, keys in parts.items()}
    try:
        return [join_key({**first, name: key}) for name, keys in parts.items() for key in keys]
    except ValueError as error:
        raise target.invalid("dimensions", f"{error}.", "Give that dimension other keys.") from error


def _dimensions(partitions_def: dg.MultiPartitionsDefinition) -> dict[str, dg.PartitionsDefinition]:
    return {each.name: each.partitions_def for each in partitions_def.partitions_defs}


def _samples(partitions_def: dg.PartitionsDefinition) -> Sequence[str]:
    """Keys that can be known at load: all static ones, the first one in time, none of dynamic ones."""
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        start = partitions_def.start.strftime(partitions_def.fmt)
        # The first window, also if it lies in the future; the start itself may lie within the one before.
        first = partitions_def.time_window_for_partition_key(start).start
        return [first.strftime(partitions_def.fmt)]
    return partitions_def.get_partition_keys() if isinstance(partitions_def, dg.StaticPartitionsDefinition) else []


def _check_schedule(target: Target, grain: Grain, partitions_def: dg.PartitionsDefinition) -> None:
    schedule = partitions_def.schedule_type if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) else None
    if schedule is None or schedule.name != _SCHEDULES[grain]:
        raise target.invalid(
            "grain",
            f"it is {grain}, and the partitions of the asset are others: {partitions_def}.",
            f"Use Dagster's {_SCHEDULES[grain].capitalize()}PartitionsDefinition, or leave grain out."
            + (" Or name its dimensions." if isinstance(partitions_def, dg.MultiPartitionsDefinition) else ""),
        )


def _check_end(target: Target, partitions_def: dg.PartitionsDefinition) -> None:
    """Refuses time partitions that begin at their end or after it: there will never be one."""
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) or partitions_def.end is None:
        return
    if partitions_def.end <= partitions_def.start:
        raise target.invalid(
            "partitions",
            f"they end at {partitions_def.end}, and begin at {partitions_def.start}: there is none.",
            "Give an end, which is exclusive, after the start.",
        )


def _is(ours: datetime, theirs: datetime) -> bool:
    as_told = ours.replace(tzinfo=theirs.tzinfo)
    return theirs.replace(tzinfo=None) == ours or as_told.timestamp() == theirs.timestamp()
