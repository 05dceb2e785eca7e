"""Pointer mode: a result stays in the directory that its query wrote, and readers are sent there.

Nothing is copied. The commit names the directory; without Glue that is all. With Glue the table, or the slot's
partition of it, is then pointed at the directory, by whoever holds the slot, and read back before anybody is told.
"""

from __future__ import annotations

from collections.abc import Callable

from athena_assets import errors
from athena_assets.core import keys, register
from athena_assets.core.contents import read_manifest
from athena_assets.core.directories import sweep_own
from athena_assets.core.effects import (
    Absent,
    Done,
    Effects,
    ListedObject,
    ListObjects,
    MovePointer,
    Pointer,
    ReadClock,
    ReadPointer,
    Refused,
    Report,
    Unanswered,
    perform,
)
from athena_assets.core.manifest import Manifest
from athena_assets.core.register import GlueTable, Publication, Register
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import LeaseLost, Tenure, answered, look, send_again

# --- before a query is paid for --------------------------------------------------------------------------------------


def check_before_acquiring(slot: Slot, found: Register | None, table: GlueTable | None) -> Effects[None]:
    """Refuses a location with other objects than directories of ours, and a table that is not ours.

    Raises:
        LocationNotEmpty, ModeChanged, TableNotOurs: see there.
    """
    publication = None if found is None else found.publication
    for each in (yield from answered(ListObjects(slot.location.prefix), slot)):
        if keys.directory_of(slot.location, each.key) or (each.key == slot.location.prefix and each.size == 0):
            continue
        if publication is not None and publication.directory is None:
            raise _mode_changed(slot, each.key, "at the location itself")
        raise errors.LocationNotEmpty(
            slot,
            f"s3://{slot.bucket}/{each.key} was not written by this system.",
            not_done="No query was started and nothing was touched.",
            next_step="Move foreign objects away, or give the target a location of its own.",
        )
    yield from check_table(slot, table, 0 if found is None else found.fence)


def check_table(slot: Slot, table: GlueTable | None, fence: int) -> Effects[None]:
    """Raises TableNotOurs for a table, or partition of it, that is not ours, or names a fence above the register's."""
    pointer = Absent() if table is None else (yield from answered(ReadPointer(table), slot))
    if table is not None and isinstance(pointer, Pointer):
        _check_ours(slot, table, pointer)
        if pointer.fence is not None and pointer.fence > fence:
            raise _ahead(slot, table, pointer.fence, fence)


def check_fixed_path(slot: Slot, found: Register | None) -> Effects[None]:
    """Refuses to publish at the location itself while results of pointer mode lie below it.

    Raises:
        ModeChanged: who lists the location would see the rows of both.
    """
    if found is None or (not found.directories and not found.retired):
        return
    for each in (yield from answered(ListObjects(slot.location.prefix), slot)):
        if keys.directory_of(slot.location, each.key):
            raise _mode_changed(slot, each.key, "in a directory of mode 'pointer'")


def _mode_changed(slot: Slot, key: str, where: str) -> errors.ModeChanged:
    return errors.ModeChanged(
        slot,
        f"another mode's result lies {where}, such as s3://{slot.bucket}/{key}.",
        not_done="No query was started and nothing was touched.",
        next_step="Go back to that mode, or give the target a location of its own and delete the old one's objects "
        "once nobody reads them.",
    )


# --- after the commit ------------------------------------------------------------------------------------------------


def project(tenure: Tenure) -> Effects[bool]:
    """Rolls the committed publication forward by its manifest and frees the slot. False: it is lost.

    Raises:
        AccessDenied, OutcomeUnknown: the slot stays `publishing`, and the next caller goes on from there.
        TableNotOurs: no next caller could; the result is lost, and the slot free for one with another table.
    """
    slot, publication = tenure.slot, tenure.register.publication
    assert publication is not None
    manifest = yield from read_manifest(slot, publication)
    why = yield from difference(slot, publication, manifest)
    if manifest is None or why is not None:
        yield from tenure.change(register.marked_lost)
        yield from perform(Report("lost", why or ""))
        return False
    settings = manifest.settings
    try:
        if settings.glue is not None:
            fence = yield from _point(slot, settings.glue, publication, manifest, tenure.keep)
            if fence > publication.fence:
                yield from tenure.renew()  # the usual case: LeaseLost, because a later owner has pointed it
                raise _ahead(slot, settings.glue, fence, tenure.register.fence)
        kept = tenure.register.kept[: settings.keep_previous]
        yield from tenure.change(register.released, kept=kept, grace=settings.grace_period)
    except errors.TableNotOurs as error:
        yield from tenure.change(register.marked_lost)
        yield from perform(Report("lost", error.what))
        raise
    except LeaseLost:
        # Glue has no version of a partition, so that our last write may have put our directory back over a later one.
        if settings.glue is not None and settings.glue.value is not None:
            yield from catch_up(slot)
        raise
    yield from perform(Report("published", f"{len(manifest.files)} file(s) at {slot}"))
    yield from sweep_own(tenure)
    return True


def difference(slot: Slot, publication: Publication, manifest: Manifest | None) -> Effects[str | None]:
    """Why a directory is not what its manifest says: who reads it lists it, so that one object more counts too."""
    if manifest is None:
        return f"its manifest {publication.manifest} is gone"
    assert publication.directory is not None
    listing = yield from answered(ListObjects(publication.directory), slot)
    missing, other = compare(manifest, listing)
    if missing:
        return f"{missing[0]} is gone or changed"
    return f"{other[0].key} is not one of its files" if other else None


def compare(manifest: Manifest, listing: tuple[ListedObject, ...]) -> tuple[tuple[str, ...], tuple[ListedObject, ...]]:
    """The keys of the manifest that are not there as it says, and the objects that it does not name."""
    found = {each.key: (each.etag, each.size) for each in listing}
    named = {file.key: (file.source_etag, file.size) for file in manifest.files}
    missing = tuple(key for key, version in named.items() if found.get(key) != version)
    return missing, tuple(each for each in listing if each.key not in named)


def catch_up(slot: Slot) -> Effects[bool]:
    """Points Glue at what the register says is published, whoever holds the slot; False if it had to do nothing.

    What is committed is rolled forward by anybody: this never goes back behind the register.
    """
    moved = False
    told: Publication | None = None
    while True:
        found = (yield from look(slot)).register
        publication = None if found is None else found.publication
        if publication is None or publication.directory is None or publication.lost or publication == told:
            return moved
        manifest = yield from read_manifest(slot, publication)
        if manifest is None or manifest.settings.glue is None:
            return moved
        if (yield from difference(slot, publication, manifest)) is not None:
            return moved  # nobody is sent to what is not whole
        table = manifest.settings.glue
        before = yield from answered(ReadPointer(table), slot)
        yield from _point(slot, table, publication, manifest, None)
        moved = moved or not (isinstance(before, Pointer) and points_at(slot, before, publication))
        told = publication


def astray(slot: Slot, publication: Publication, manifest: Manifest) -> Effects[str | None]:
    """Where Glue sends readers, if that is not where they should go."""
    table = manifest.settings.glue
    if table is None:
        return None
    found = yield from answered(ReadPointer(table), slot)
    if isinstance(found, Absent) or found.location is None:
        return f"{table} has no table or partition for it" if manifest.files else None
    return None if points_at(slot, found, publication) else f"{table} is at {found.location}"


def _point(
    slot: Slot,
    table: GlueTable,
    publication: Publication,
    manifest: Manifest,
    keep: Callable[[], Effects[None]] | None,
) -> Effects[int]:
    """Points the table (or partition) at the publication until a read shows that or a later one; returns its fence.

    Lost reply, or a conflict with somebody who changed the table: it is read again, and written again if need be. It is
    given up only after a look: an answer that came too late does not say that the call was not applied.
    """
    assert publication.directory is not None
    sample = manifest.files[0].key if manifest.files else None
    started = yield from perform(ReadClock())
    tries = 0
    answer: Done | Refused | Unanswered | None = None
    while True:
        if keep is not None:
            yield from keep()
        found = yield from answered(ReadPointer(table), slot)
        if isinstance(found, Pointer):
            _check_ours(slot, table, found)
            if points_at(slot, found, publication) or (found.fence or 0) > publication.fence:
                return found.fence or 0
        elif sample is None:
            # An empty result tells no columns: the next one creates the table.
            yield from perform(Report("no table", f"{table} is not there yet, and the result is empty"))
            return publication.fence
        if answer is not None and not (isinstance(answer, Done) and tries == 1):  # one creates the table, one points it
            if isinstance(answer, Refused) and answer.final:
                raise _refused(slot, table, publication, answer)
            yield from send_again(slot, f"pointing {table} at the new result", answer, started, tries)
            answer = None
            continue
        effect = MovePointer(
            table,
            f"s3://{slot.bucket}/{publication.directory}",
            str(slot),
            publication.fence,
            sample,
            found if isinstance(found, Pointer) else None,
        )
        answer = yield from perform(effect)
        tries += 1


def points_at(slot: Slot, found: Pointer, publication: Publication) -> bool:
    """Whether Glue sends readers to this publication, and we have sent them there."""
    location = f"s3://{slot.bucket}/{publication.directory}"
    return found.location == location and (found.slot, found.fence) == (str(slot), publication.fence)


def _refused(slot: Slot, table: GlueTable, publication: Publication, answer: Refused) -> errors.AccessDenied:
    return errors.AccessDenied(
        slot,
        f"Glue refused to point {table} at the new result (HTTP {answer.status} {answer.code}).",
        not_done=f"The result is committed and whole in s3://{slot.bucket}/{publication.directory}; readers of the "
        "table still see what it showed before, and the slot waits for Glue.",
        next_step=f"See that the database {table.database} exists (else create it; it may be dropped once the target "
        "has published with another glue_table) and that glue:CreateTable, UpdateTable, CreatePartition and "
        "UpdatePartition are allowed there; then publish again: the next caller goes on from here, without a query.",
    )


def _check_ours(slot: Slot, table: GlueTable, found: Pointer) -> None:
    """A table or partition is ours by our mark, or if it has none and is where the other modes would have it."""
    place = found.location
    if table.value is not None and not _same(found.root, table.root):
        place = found.root  # another table altogether
    elif place is None or found.slot == str(slot) or (found.slot is None and _same(place, str(slot))):
        return
    which = str(table) if table.value is None else f"{table}, partition {table.value!r},"
    raise errors.TableNotOurs(
        slot,
        f"{which} is at {place} and was not pointed there by this slot.",
        not_done="It was left as it is, and nobody was told of a new result.",
        next_step="Name another glue_table, or drop that one if nobody needs it: it is then created anew.",
    )


def _same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


def _ahead(slot: Slot, table: GlueTable, fence: int, own: int) -> errors.TableNotOurs:
    return errors.TableNotOurs(
        slot,
        f"{table} names fence {fence} of this slot, and the register has come to {own} only: it was put back to an "
        "earlier version.",
        not_done="The table was left as it is: a lower fence never overwrites a higher one.",
        next_step="Run `athena-assets rebuild`, or bring the latest version of the register back.",
    )
