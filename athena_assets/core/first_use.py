"""What stands between a slot that has never published and its first query.

Each owner looks after its own write to the register, so that of two callers at one moment at least one sees the other.
It is looked again until something is published: an earlier owner may have died, or yielded, in between.
"""

from __future__ import annotations

from athena_assets import errors
from athena_assets.core import keys, policy, register
from athena_assets.core.answers import describe
from athena_assets.core.effects import (
    DrawFraction,
    Effects,
    ListFolders,
    ListObjects,
    ReadClock,
    Report,
    Sleep,
    perform,
)
from athena_assets.core.location import Location
from athena_assets.core.register import Register, State
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import Tenure, answered, look, vanished


def check_not_lost(slot: Slot, found: Register | None, fence: int) -> Effects[None]:
    """A slot without a publication has no manifest of this fence or a later one: one that has had its register lost.

    Unless the register has come, or gone on, since `found` was read.

    Raises:
        RegisterVanished: fences that begin again could let an old owner publish.
    """
    manifests = yield from answered(ListObjects(keys.manifest_root(slot.location)), slot)
    published = any((keys.manifest_fence(slot.location, each.key) or 0) >= fence for each in manifests)
    if published and (yield from look(slot)).register == found:
        raise vanished(slot)


def check_first_use(tenure: Tenure) -> Effects[None]:
    """Goes on, or frees the slot and raises. A slot that is free and has never published stands in nobody's way.

    Raises:
        RegisterVanished: the slot has published before, and another caller's create came after the register was lost.
        LocationOverlaps: a target publishes to a location above this one, or to one inside it.
    """
    try:
        yield from check_not_lost(tenure.slot, tenure.register, tenure.register.fence)
        yield from _check_neighbours(tenure)
    except (errors.RegisterVanished, errors.LocationOverlaps):
        yield from tenure.change(register.released)
        raise


def _check_neighbours(tenure: Tenure) -> Effects[None]:
    own = tenure.slot.location
    for above in own.ancestors:
        found = yield from _in_use(tenure.slot, above)
        if found is not None:
            raise _overlap(tenure.slot, above, found)
    for inside in (yield from _inside(tenure.slot)):
        yield from _let_yield(tenure, inside)


def check_whose(slot: Slot) -> Effects[None]:
    """Names the target to which objects at the location belong, if there is one.

    Raises:
        LocationOverlaps: a target publishes to a location above this one, or to one inside it.
    """
    for other in (*slot.location.ancestors, *(yield from _inside(slot))):
        found = yield from _in_use(slot, other)
        if found is not None:
            raise _overlap(slot, other, found)


def _inside(slot: Slot) -> Effects[tuple[Location, ...]]:
    folders = yield from answered(ListFolders(keys.inner_slots_prefix(slot.location)), slot)
    return tuple(keys.location_of(slot.bucket, folder) for folder in folders)


def _let_yield(tenure: Tenure, inside: Location) -> Effects[None]:
    """The longer location yields if it comes at the same moment: it is given the time in which it would."""
    began = yield from perform(ReadClock())
    waited = 0.0
    while True:
        found = yield from _in_use(tenure.slot, inside)
        if found is None:
            return
        undecided = found.state is State.SUBMITTING and found.publication is None
        if not undecided or waited > policy.expires_after(found.lease):
            raise _overlap(tenure.slot, inside, found)
        yield from perform(Report("waiting", f"{inside} is inside this location and begins at the same moment"))
        yield from tenure.keep()
        yield from perform(Sleep(policy.wait_delay(waited, (yield from perform(DrawFraction())))))
        waited = (yield from perform(ReadClock())) - began


def _in_use(slot: Slot, location: Location) -> Effects[Register | None]:
    """The register of another slot, if that one is held or has published.

    Raises:
        LocationOverlaps: there is one that can't be read; nothing says that it is not in use.
    """
    try:
        seen = yield from look(Slot(location, slot.caller, slot.patience))
    except errors.RegisterUnreadable as error:
        raise _overlap(slot, location, None) from error
    found = seen.register
    if found is None or (found.state is State.FREE and found.publication is None):
        return None
    return found


def _overlap(slot: Slot, other: Location, found: Register | None) -> errors.LocationOverlaps:
    if found is None:
        use = "its register can't be read"
    elif found.state is State.BLOCKED:
        use = "its slot is blocked until somebody has looked there"
    elif found.publication is None:
        use = f"it is held by {describe(found)}"
    else:
        use = f"query {found.publication.query_id} is published there"
    where = "above" if other.contains(slot.location) else "inside"
    return errors.LocationOverlaps(
        slot,
        f"{other} lies {where} this location, and {use}.",
        not_done="This request started no query and published nothing; the slot is free.",
        next_step="Give one of the two targets a location that is neither above nor inside the other's.",
    )
