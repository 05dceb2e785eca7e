"""Garbage: staging that nobody can publish any more, and kept results over the limit.

Manifests stay: they are small, and the chain of what replaced what leads through them.
"""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets.core import keys, policy
from athena_assets.core.directories import delete_listed
from athena_assets.core.directories import doomed as doomed_directories
from athena_assets.core.directories import sweep as sweep_directories
from athena_assets.core.effects import AtOnce, DeleteObject, Effects, ListedObject, ListObjects, perform
from athena_assets.core.register import Register, State
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import Tenure, answered, look
from athena_assets.errors import InvalidTarget


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a slot no longer needs, as listed. `directories`: what lies in retired directories of pointer mode."""

    staging: tuple[ListedObject, ...]
    backups: tuple[ListedObject, ...]
    directories: tuple[ListedObject, ...] = ()

    @property
    def objects(self) -> tuple[ListedObject, ...]:
        return self.staging + self.backups + self.directories


def sweep(tenure: Tenure, keep: int) -> Effects[None]:
    """An owner's own collection once its swap is complete. One try each; the next owner finds what is left.

    Only the backups that this owner's register drops: one that is named nowhere may be a later owner's, in the making.
    """
    slot, found = tenure.slot, tenure.register
    doomed = yield from staged_up_to(slot, found.fence)
    for dropped in found.kept[keep:]:
        doomed += yield from answered(ListObjects(dropped.backup), slot)
    for batch in policy.batches(doomed):
        yield from tenure.keep()
        yield from perform(AtOnce(tuple(DeleteObject(each.key, each.etag) for each in batch)))


def collect(slot: Slot, *, delete: bool, grace: float | None = None) -> Effects[Garbage]:
    """Finds the garbage of a slot, and deletes it where asked. Nothing is garbage while the slot is held.

    `grace`: seconds for which replaced results of pointer mode stay, instead of what was recorded when each was.
    InvalidTarget is raised for one that is negative or not a number.

    Every object is deleted only as it was listed. An owner that comes meanwhile has a higher fence, and keeps the
    current publication under that one's fence: neither is touched.
    """
    if grace is not None and not grace >= 0:  # so that nan, which is never past, nor ahead, is refused too
        raise InvalidTarget(
            str(slot), "grace", f"{grace} is no number of seconds from 0 on.", "Leave it out for what was recorded."
        )
    seen = yield from look(slot)
    found = seen.register
    if found is None or found.state is not State.FREE:
        return Garbage((), ())
    staging = yield from staged_up_to(slot, found.fence)
    listed = yield from answered(ListObjects(keys.backup_root(slot.location)), slot)
    backups = tuple(each for each in listed if _unnamed(slot, found, each.key))
    directories = yield from doomed_directories(slot, seen, grace)
    if delete:
        yield from delete_listed(staging + backups)
        yield from sweep_directories(slot, seen, directories)
    return Garbage(staging, backups, tuple(found for each in directories for found in each.objects))


def staged_up_to(slot: Slot, fence: int) -> Effects[tuple[ListedObject, ...]]:
    """Staged objects of owners up to this fence: whatever still writes there, nobody will publish it."""
    listed = yield from answered(ListObjects(keys.staging_root(slot.location)), slot)
    return tuple(
        each for each in listed if _at_most(keys.fence_below(keys.staging_root(slot.location), each.key), fence)
    )


def _at_most(found: int | None, fence: int) -> bool:
    return found is not None and found <= fence


def _unnamed(slot: Slot, found: Register, key: str) -> bool:
    current = found.publication
    fence = keys.fence_below(keys.backup_root(slot.location), key)
    older = current is not None and fence is not None and fence < current.fence
    return older and not any(key.startswith(each.backup) for each in found.kept)
