"""What lies under a location against what its register says, and the way out of a blocked slot."""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets import errors
from athena_assets.core import keys
from athena_assets.core.contents import read_manifest, survey
from athena_assets.core.effects import DeleteObject, DrawId, Effects, ListedObject, ListObjects, perform
from athena_assets.core.pointer import astray, catch_up, compare
from athena_assets.core.register import Register, State, repaired
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import answered, look, write


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """A comparison of S3 with the register at one moment.

    Args:
        register: the register; None if there is none.
        missing: keys of the publication that are not there, or not as they were published.
        stray: objects that this system wrote and that belong to no publication: rows that readers see twice.
        foreign: objects that this system did not write.
        staged: objects under the slot's staging prefix, and in pointer mode in directories that nobody reads; garbage,
            unless somebody holds the slot.
        astray: pointer mode: where Glue sends readers, if not to the publication.
    """

    register: Register | None
    missing: tuple[str, ...]
    stray: tuple[ListedObject, ...]
    foreign: tuple[ListedObject, ...]
    staged: tuple[ListedObject, ...]
    astray: str | None = None

    @property
    def settled(self) -> bool:
        """False while somebody holds the slot: then the location may be in the middle of a swap."""
        return self.register is None or self.register.state is State.FREE

    @property
    def clean(self) -> bool:
        """Readers see exactly the publication, and nothing else."""
        return self.settled and not (self.missing or self.stray or self.foreign or self.astray)


def scrub(slot: Slot) -> Effects[ScrubReport]:
    """Compares; changes nothing."""
    found = (yield from look(slot)).register
    if found is not None and (found.directories or found.retired):
        return (yield from _scrub_directories(slot, found))
    publication = None if found is None else found.publication
    contents = yield from survey(slot, publication)
    manifest = None if publication is None else (yield from read_manifest(slot, publication))
    present = {each.key for each in contents.current}
    expected = {file.key for file in manifest.files} if manifest is not None else set()
    if publication is not None and manifest is None:
        expected = {publication.manifest}
    return ScrubReport(
        register=found,
        missing=tuple(sorted(expected - present)),
        stray=contents.stray,
        foreign=contents.foreign + contents.neighbours,
        staged=(yield from answered(ListObjects(keys.staging_root(slot.location)), slot)),
    )


def _scrub_directories(slot: Slot, found: Register) -> Effects[ScrubReport]:
    """Pointer mode: readers read one directory, or what its manifest lists; what lies beside it they do not see."""
    publication = found.publication
    read = None if publication is None else publication.directory
    kept = tuple(each.backup for each in found.kept)
    listing = yield from answered(ListObjects(slot.location.prefix), slot)
    inside = {each.key: keys.directory_of(slot.location, each.key) for each in listing}
    missing: tuple[str, ...] = ()
    other: tuple[ListedObject, ...] = ()
    wrong = None
    if publication is not None and read is not None:
        manifest = yield from read_manifest(slot, publication)
        missing = (publication.manifest,)
        if manifest is not None:
            missing, other = compare(manifest, tuple(each for each in listing if inside[each.key] == read))
            wrong = yield from astray(slot, publication, manifest)
    foreign = (
        each for each in listing if inside[each.key] is None and (each.key, each.size) != (slot.location.prefix, 0)
    )
    return ScrubReport(
        register=found,
        missing=missing,
        stray=(),
        foreign=(*other, *foreign),
        staged=(yield from answered(ListObjects(keys.staging_root(slot.location)), slot))
        + tuple(each for each in listing if inside[each.key] not in (None, read, *kept)),
        astray=wrong,
    )


def repair(slot: Slot, *, delete: tuple[ListedObject, ...] = ()) -> Effects[tuple[ListedObject, ...]]:
    """Frees a blocked slot whose location is empty; `delete` names what to delete first, each only as it was listed.

    In pointer mode, where Glue sends readers elsewhere, they are sent to the publication again.

    Returns what still lies there: nothing means that the slot is free again.

    Raises:
        NotBlocked: the slot needs no repair.
        SlotBusy: the register changed meanwhile.
    """
    seen = yield from look(slot)
    if seen.register is not None and seen.register.state is State.FREE and (yield from catch_up(slot)):
        return ()
    if seen.register is None or seen.register.state is not State.BLOCKED:
        raise errors.NotBlocked(
            slot,
            "the slot is not blocked, and no table of it is astray.",
            not_done="Nothing was changed.",
            next_step="A slot that is held is finished by the next `unload`, or at once by `takeover`.",
        )
    for each in delete:
        if each.key.startswith(slot.location.prefix):
            yield from perform(DeleteObject(each.key, each.etag))
    listing = yield from answered(ListObjects(slot.location.prefix), slot)
    if listing:
        return listing
    if (yield from write(slot, seen, repaired(seen.register, (yield from perform(DrawId()))))) is None:
        raise errors.SlotBusy(
            slot,
            "the register changed meanwhile.",
            owner="unknown",
            query_id=None,
            next_step="Look at the status and repair again.",
        )
    return ()
