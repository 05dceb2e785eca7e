"""The staged swap: the old files out, the new ones in, by a plan that was fixed before the commit.

Order matters. Old files are deleted before new ones are copied: a reader may miss rows for a moment but never sees them
twice. The staging sources are deleted last: a paused owner's late copy then has no source to bring an old file back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from athena_assets.core import pointer, policy, register
from athena_assets.core.collect import staged_up_to, sweep
from athena_assets.core.contents import read_manifest
from athena_assets.core.effects import (
    AbortUploads,
    Absent,
    AtOnce,
    CopyObject,
    DeleteObject,
    Done,
    Effects,
    HeadObject,
    KeepGlueTable,
    ListObjects,
    ObjectHead,
    ReadClock,
    Refused,
    Report,
    Unanswered,
    perform,
)
from athena_assets.core.manifest import Manifest, ManifestFile, RemovedFile
from athena_assets.core.register import ObjectVersion
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import Tenure, answered, send_again
from athena_assets.errors import AthenaAssetsError, LocationNotEmpty

CONFIRMATIONS = 3  # rounds of copying before a destination that won't stay counts as lost


@dataclass(frozen=True, slots=True)
class _Copy:
    """One copy of the plan, and how its destination is known to be ours."""

    effect: CopyObject
    is_ours: Callable[[ObjectHead], bool]


def project(tenure: Tenure) -> Effects[bool]:
    """Rolls the committed publication forward by its manifest and releases the slot. False: it is lost."""
    publication = tenure.register.publication
    assert publication is not None
    if publication.directory is not None:
        return (yield from pointer.project(tenure))
    manifest = yield from read_manifest(tenure.slot, publication)
    if manifest is None:
        return (yield from _lost(tenure, (), (), f"its manifest {publication.manifest} is gone"))
    backups = tuple(_backup_copy(each) for each in manifest.removes if each.backup is not None)
    yield from _copy_all(tenure, backups)
    yield from remove_all(tenure, tuple(ObjectVersion(each.key, each.etag) for each in manifest.removes))
    moved = {file.key: _new_copy(manifest, index) for index, file in enumerate(manifest.files) if _moves(file)}
    copies = (*backups, *moved.values())
    missing = tuple(moved.values())
    for _ in range(CONFIRMATIONS):
        gone = yield from _copy_all(tenure, missing)
        if gone is not None:
            return (yield from _lost(tenure, manifest.files, copies, f"{gone} and its source are both gone"))
        listing = yield from answered(ListObjects(tenure.slot.location.prefix), tenure.slot)
        present = {each.key: each.size for each in listing}
        missing = tuple(each for key, each in moved.items() if present.get(key) != each.effect.size)
        if not missing:
            break
    else:
        gone = missing[0].effect.destination
        return (yield from _lost(tenure, manifest.files, copies, f"{gone} disappeared after it was copied"))
    yield from remove_all(
        tenure, tuple(ObjectVersion(each.effect.source, each.effect.source_etag) for each in moved.values())
    )
    yield from _end_uploads(tenure, copies)
    refused = yield from _keep_glue_table(tenure, manifest)
    yield from sweep(tenure, manifest.settings.keep_previous)
    kept = tenure.register.kept[: manifest.settings.keep_previous]
    yield from tenure.change(register.released, kept=kept)
    yield from perform(Report("published", f"{len(manifest.files)} file(s) at {tenure.slot}"))
    if refused is not None:
        raise refused  # after the release: the files are published, and nobody has to wait for the table
    return True


def _lost(tenure: Tenure, files: tuple[ManifestFile, ...], copies: tuple[_Copy, ...], why: str) -> Effects[bool]:
    """Gives the publication up; its sources go first, so that no late copy can bring one of its files back."""
    sources = {file.source: file.source_etag for file in files if _moves(file)}
    for found in (yield from staged_up_to(tenure.slot, tenure.register.fence)):
        sources.setdefault(found.key, found.etag)
    yield from remove_all(tenure, tuple(ObjectVersion(key, etag) for key, etag in sources.items()))
    yield from _end_uploads(tenure, copies)
    yield from tenure.change(register.marked_lost)
    yield from perform(Report("lost", why))
    return False


def _moves(file: ManifestFile) -> bool:
    return file.source != file.key


def _new_copy(manifest: Manifest, index: int) -> _Copy:
    file = manifest.files[index]
    effect = CopyObject(file.source, file.source_etag, file.size, file.key, manifest.copy_metadata(index))
    return _Copy(effect, lambda head: manifest.is_copy(index, head.size, head.metadata))


def _backup_copy(removed: RemovedFile) -> _Copy:
    """An old file to where the plan keeps it. One that is gone already was retired by another roller."""
    assert removed.backup is not None
    effect = CopyObject(removed.key, removed.etag, removed.size, removed.backup, None)
    return _Copy(effect, lambda head: head.size == removed.size)  # nobody else writes under that prefix


def _copy_all(tenure: Tenure, copies: tuple[_Copy, ...]) -> Effects[str | None]:
    """Copies side by side. The first destination that is gone with its source, if there is one."""
    gone = None
    for batch in policy.batches(copies):
        yield from tenure.keep()
        answers = yield from perform(AtOnce(tuple(each.effect for each in batch)))
        for each, answer in zip(batch, answers, strict=True):
            if not (yield from _copied(tenure, each, answer)):
                gone = gone or each.effect.destination
    return gone


def _copied(tenure: Tenure, copy: _Copy, answer: object) -> Effects[bool]:
    """Whatever the answer, it is the destination that tells: our copy, a stranger's object, or nothing yet.

    False: the source (in this version) and the destination are both gone.
    """
    slot, effect = tenure.slot, copy.effect
    started = yield from perform(ReadClock())
    tries = 0
    while not isinstance(answer, Done):
        head = yield from answered(HeadObject(effect.destination), slot)
        if isinstance(head, ObjectHead):
            if copy.is_ours(head):
                return True
            raise _in_the_way(slot, effect.destination)
        if isinstance(answer, Absent):
            return False
        if isinstance(answer, Refused) and answer.status == 412:
            source = yield from answered(HeadObject(effect.source), slot)
            if isinstance(source, Absent) or source.etag != effect.source_etag:
                return False
        yield from send_again(slot, f"copying to {effect.destination}", answer, started, tries)
        tries += 1
        yield from tenure.keep()
        answer = yield from perform(effect)
    return True


def remove_all(tenure: Tenure, doomed: tuple[ObjectVersion, ...]) -> Effects[None]:
    """Deletes exactly these versions, side by side; gone already is as good.

    Raises:
        LocationNotEmpty: somebody has overwritten one.
    """
    for batch in policy.batches(doomed):
        yield from tenure.keep()
        deletes = tuple(DeleteObject(each.key, each.etag) for each in batch)
        answers = yield from perform(AtOnce(deletes))
        for delete, answer in zip(deletes, answers, strict=True):
            yield from _removed(tenure, delete, answer)


def _removed(tenure: Tenure, effect: DeleteObject, answer: object) -> Effects[None]:
    started = yield from perform(ReadClock())
    tries = 0
    while not isinstance(answer, Done):
        if isinstance(answer, Refused) and answer.status == 412:
            head = yield from answered(HeadObject(effect.key), tenure.slot)
            if isinstance(head, Absent):
                return
            if head.etag != effect.etag:
                raise _in_the_way(tenure.slot, effect.key)
        yield from send_again(tenure.slot, f"deleting {effect.key}", answer, started, tries)
        tries += 1
        yield from tenure.keep()
        answer = yield from perform(effect)


def _in_the_way(slot: Slot, key: str) -> LocationNotEmpty:
    """The error for an object that somebody put over, or in the place of, a file while files were being replaced."""
    return LocationNotEmpty(
        slot,
        f"s3://{slot.bucket}/{key} was not written by this system, and stands where files are being replaced.",
        not_done="It was not touched. Old files may be gone already and new ones may be missing, so that readers see a "
        "part of a result.",
        next_step="Move it away and publish again: the next caller goes on from here.",
    )


def _end_uploads(tenure: Tenure, copies: tuple[_Copy, ...]) -> Effects[None]:
    """Comes after the sources are gone: an upload that is begun later has nothing to copy."""
    effect = AbortUploads(tuple(each.effect for each in copies))
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        yield from tenure.keep()
        answer = yield from perform(effect)
        if isinstance(answer, Done):
            return
        yield from send_again(tenure.slot, "ending unfinished copies", answer, started, tries)
        tries += 1


def _keep_glue_table(tenure: Tenure, manifest: Manifest) -> Effects[AthenaAssetsError | None]:
    """The result is not announced before Athena users can find it. Returns the error if the table can't be kept."""
    table = manifest.settings.glue
    if table is None:
        return None
    sample = manifest.files[0].key if manifest.files else None
    effect = KeepGlueTable(table, str(tenure.slot), sample)
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        yield from tenure.keep()
        try:
            answer = yield from perform(effect)
        except AthenaAssetsError as error:
            return error
        if not isinstance(answer, Unanswered):
            return None
        yield from send_again(tenure.slot, f"updating the table {table}", answer, started, tries)
        tries += 1
