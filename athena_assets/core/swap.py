"""The staged swap: the old files out, the new ones in, by a plan that was fixed before the commit.

Order matters. Old files are deleted before new ones are copied: a reader may miss rows for a moment but never sees them
twice. The staging sources are deleted last: a paused owner's late copy then has no source to bring an old file back.
"""

from __future__ import annotations

from collections.abc import Callable

from athena_assets.core import pointer, register
from athena_assets.core.collect import staged_up_to, sweep
from athena_assets.core.contents import not_ours, read_manifest
from athena_assets.core.effects import (
    Absent,
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
from athena_assets.core.tenure import Tenure, answered, send_again
from athena_assets.errors import AthenaAssetsError

CONFIRMATIONS = 3  # rounds of copying before a destination that won't stay counts as lost


def project(tenure: Tenure) -> Effects[bool]:
    """Rolls the committed publication forward by its manifest and releases the slot. False: it is lost."""
    publication = tenure.register.publication
    assert publication is not None
    if publication.directory is not None:
        return (yield from pointer.project(tenure))
    manifest = yield from read_manifest(tenure.slot, publication)
    if manifest is None:
        return (yield from _lost(tenure, (), f"its manifest {publication.manifest} is gone"))
    for removed in manifest.removes:
        yield from _retire(tenure, removed)
    moved = tuple(index for index, file in enumerate(manifest.files) if file.source != file.key)
    missing = moved
    for _ in range(CONFIRMATIONS):
        for index in missing:
            if not (yield from _publish_file(tenure, manifest, index)):
                gone = manifest.files[index].key
                return (yield from _lost(tenure, manifest.files, f"{gone} and its source are both gone"))
        listing = yield from answered(ListObjects(tenure.slot.location.prefix), tenure.slot)
        present = {each.key: each.size for each in listing}
        missing = tuple(
            index for index in moved if present.get(manifest.files[index].key) != manifest.files[index].size
        )
        if not missing:
            break
    else:
        gone = manifest.files[missing[0]].key
        return (yield from _lost(tenure, manifest.files, f"{gone} disappeared after it was copied"))
    for index in moved:
        file = manifest.files[index]
        yield from remove(tenure, file.source, file.source_etag)
    refused = yield from _keep_glue_table(tenure, manifest)
    yield from sweep(tenure, manifest.settings.keep_previous)
    kept = tenure.register.kept[: manifest.settings.keep_previous]
    yield from tenure.change(register.released, kept=kept)
    yield from perform(Report("published", f"{len(manifest.files)} file(s) at {tenure.slot}"))
    if refused is not None:
        raise refused  # after the release: the files are published, and nobody has to wait for the table
    return True


def _lost(tenure: Tenure, files: tuple[ManifestFile, ...], why: str) -> Effects[bool]:
    """Gives the publication up; its sources go first, so that no late copy can bring one of its files back."""
    sources = {file.source: file.source_etag for file in files if file.source != file.key}
    for found in (yield from staged_up_to(tenure.slot, tenure.register.fence)):
        sources.setdefault(found.key, found.etag)
    for key, etag in sources.items():
        yield from remove(tenure, key, etag)
    yield from tenure.change(register.marked_lost)
    yield from perform(Report("lost", why))
    return False


def _publish_file(tenure: Tenure, manifest: Manifest, index: int) -> Effects[bool]:
    """Copies one new file in; False if neither its source nor its destination is there."""
    file = manifest.files[index]
    effect = CopyObject(file.source, file.source_etag, file.key, manifest.copy_metadata(index))
    return (yield from _copy(tenure, effect, lambda head: manifest.is_copy(index, head.size, head.metadata)))


def _retire(tenure: Tenure, removed: RemovedFile) -> Effects[None]:
    """Keeps an old file where the plan says, and deletes it. One that is gone already was retired by another roller."""
    if removed.backup is not None:
        effect = CopyObject(removed.key, removed.etag, removed.backup, None)
        yield from _copy(tenure, effect, lambda head: head.size == removed.size)  # nobody else writes under that prefix
    yield from remove(tenure, removed.key, removed.etag)


def _copy(tenure: Tenure, effect: CopyObject, is_ours: Callable[[ObjectHead], bool]) -> Effects[bool]:
    """Whatever the answer, it is the destination that tells: our copy, a stranger's object, or nothing yet.

    False: the source (in this version) and the destination are both gone.
    """
    slot = tenure.slot
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        yield from tenure.keep()
        answer = yield from perform(effect)
        if isinstance(answer, Done):
            return True
        head = yield from answered(HeadObject(effect.destination), slot)
        if isinstance(head, ObjectHead):
            if is_ours(head):
                return True
            raise not_ours(slot, effect.destination)
        if isinstance(answer, Absent):
            return False
        if isinstance(answer, Refused) and answer.status == 412:
            source = yield from answered(HeadObject(effect.source), slot)
            if isinstance(source, Absent) or source.etag != effect.source_etag:
                return False
        yield from send_again(slot, f"copying to {effect.destination}", answer, started, tries)
        tries += 1


def remove(tenure: Tenure, key: str, etag: str) -> Effects[None]:
    """Deletes exactly this version of an object; gone already is as good.

    Raises:
        LocationNotEmpty: somebody has overwritten it.
    """
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        yield from tenure.keep()
        answer = yield from perform(DeleteObject(key, etag))
        if isinstance(answer, Done):
            return
        if isinstance(answer, Refused) and answer.status == 412:
            head = yield from answered(HeadObject(key), tenure.slot)
            if isinstance(head, Absent):
                return
            if head.etag != etag:
                raise not_ours(tenure.slot, key)
        yield from send_again(tenure.slot, f"deleting {key}", answer, started, tries)
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
