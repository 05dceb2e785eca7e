"""Which partitions an asset may have, so that each key means to Dagster what it means to the query."""

from datetime import datetime

import dagster as dg

from athena_assets.core.partition import Grain, window
from athena_assets.core.target import Target

_SCHEDULES = {Grain.HOUR: "HOURLY", Grain.DAY: "DAILY", Grain.WEEK: "WEEKLY", Grain.MONTH: "MONTHLY"}


def check_partitions(target: Target, partitions_def: dg.PartitionsDefinition | None) -> None:
    """Refuses, at load, what can be seen there: whether there are partitions, their length, and one or all keys.

    Raises:
        InvalidTarget: target and partitions go against each other.
    """
    if target.partitioned and partitions_def is None:
        raise target.invalid(
            "location", "it has ${partition}, and the asset has no partitions.", "Give the asset a partitions_def."
        )
    if partitions_def is None:
        return
    if not target.partitioned:
        raise target.invalid(
            "location",
            "the asset has partitions, and the location no ${partition}: each would replace the one before.",
            "Put ${partition} into the location, or leave partitions_def out.",
        )
    if target.grain is not None:
        _check_schedule(target, Grain(target.grain), partitions_def)
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        start = partitions_def.start.strftime(partitions_def.fmt)
        # The first window, also if it lies in the future; the start itself may lie within the one before.
        first = partitions_def.time_window_for_partition_key(start).start
        check_key(target, partitions_def, first.strftime(partitions_def.fmt))
    elif isinstance(partitions_def, dg.StaticPartitionsDefinition):
        for key in partitions_def.get_partition_keys():
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
    if target.grain is None or not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return
    ours = window(Grain(target.grain), key)
    theirs = partitions_def.time_window_for_partition_key(key)
    if not (_is(ours[0], theirs.start) and _is(ours[1], theirs.end)):
        raise target.invalid(
            "grain",
            f"the partition {key!r} is {ours[0]} to {ours[1]} by the grain {target.grain}, and {theirs.start} to "
            f"{theirs.end} by the asset's partitions.",
            "Leave out the offset and use Dagster's own keys, or leave out grain and use ${partition} alone.",
        )


def _check_schedule(target: Target, grain: Grain, partitions_def: dg.PartitionsDefinition) -> None:
    schedule = partitions_def.schedule_type if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) else None
    if schedule is None or schedule.name != _SCHEDULES[grain]:
        raise target.invalid(
            "grain",
            f"it is {grain}, and the partitions of the asset are others: {partitions_def}.",
            f"Use Dagster's {_SCHEDULES[grain].capitalize()}PartitionsDefinition, or leave grain out.",
        )


def _is(ours: datetime, theirs: datetime) -> bool:
    as_told = ours.replace(tzinfo=theirs.tzinfo)
    return theirs.replace(tzinfo=None) == ours or as_told.timestamp() == theirs.timestamp()
