"""The commit: the plan of the swap is written once, then one conditional write names it in the register."""

from __future__ import annotations

from athena_assets import errors
from athena_assets.core import keys, register
from athena_assets.core.codec import encode
from athena_assets.core.contents import Contents, decode_manifest, not_ours, survey
from athena_assets.core.effects import (
    Absent,
    CountRows,
    Effects,
    ListedObject,
    ListObjects,
    QueryStatus,
    ReadClock,
    ReadObject,
    Report,
    ResolveUpstreams,
    WriteObject,
    Written,
    perform,
)
from athena_assets.core.manifest import MAX_COPY_BYTES, Manifest, ManifestFile, RemovedFile, planned_files
from athena_assets.core.register import Attempt, Mode, Publication, PublishSettings, Register
from athena_assets.core.slot import Slot
from athena_assets.core.target import UpstreamTable
from athena_assets.core.tenure import Tenure, answered, send_again


def check_before_acquiring(slot: Slot, previous: Publication | None, settings: PublishSettings) -> Effects[None]:
    """Refuses a location whose objects a publication could not replace, before a query is paid for.

    Whoever takes an attempt over may start its query at once, and clean up after it: so no attempt is recorded before
    this. The conditional write that records it fails if another owner has published in between.

    Raises:
        LocationNotEmpty: foreign objects (staged), or any object at all (direct).
    """
    if settings.mode is Mode.STAGED:
        yield from _replaced(slot, previous, settings)
        return
    listing = yield from answered(ListObjects(slot.location.prefix), slot)
    if listing:
        raise errors.LocationNotEmpty(
            slot,
            f"direct mode publishes into an empty location only, and s3://{slot.bucket}/{listing[0].key} is there.",
            not_done="No query was started and nothing was touched.",
            next_step="Empty the location, or use mode 'staged', which replaces its own files.",
        )


def _replaced(slot: Slot, previous: Publication | None, settings: PublishSettings) -> Effects[Contents]:
    """What lies at the location; all of it may be replaced."""
    contents = yield from survey(slot, previous)
    adopts = settings.adopt_existing and previous is None
    if contents.neighbours:
        raise not_ours(slot, contents.neighbours[0].key)
    for found in contents.foreign:
        if not adopts or found.size > MAX_COPY_BYTES:
            raise not_ours(slot, found.key)
    return contents


def _planned_removals(slot: Slot, before: Register) -> Effects[tuple[tuple[RemovedFile, ...], str | None]]:
    """The removals of the plan, and where the current publication is kept, if it is."""
    settings, previous = before.current.settings, before.publication
    contents = yield from _replaced(slot, previous, settings)
    removes, backup = removals(slot, previous, contents.current, contents.stray, settings.keep_previous)
    root = keys.adopted_prefix(slot.location, before.fence)
    moved = tuple(_removed(each, slot, root) for each in contents.foreign)
    return removes + moved, backup


def removals(
    slot: Slot,
    previous: Publication | None,
    current: tuple[ListedObject, ...],
    stray: tuple[ListedObject, ...],
    keep: int,
) -> tuple[tuple[RemovedFile, ...], str | None]:
    """The removals for what we wrote. Strays are never kept, nor a result that is not whole or can't be copied."""
    backup = None
    whole = previous is not None and not previous.lost and len(current) == previous.files
    if previous is not None and whole and keep > 0 and all(each.size <= MAX_COPY_BYTES for each in current):
        backup = keys.backup_prefix(slot.location, previous.fence)
    return (
        *(_removed(each, slot, backup) for each in current),
        *(_removed(each, slot, None) for each in stray),
    ), backup


def _removed(found: ListedObject, slot: Slot, backup: str | None) -> RemovedFile:
    relative = found.key.removeprefix(slot.location.prefix)
    return RemovedFile(found.key, found.etag, found.size, None if backup is None else backup + relative)


def commit(tenure: Tenure, status: QueryStatus, staged: tuple[ListedObject, ...]) -> Effects[None]:
    """Writes the manifest once, then names it in the register: that write is the commit.

    Raises:
        LocationNotEmpty: foreign objects appeared while the query ran; nothing was committed.
        LeaseLost: another owner holds the slot, or has already committed this very query.
    """
    slot, attempt, before = tenure.slot, tenure.register.current, tenure.register
    direct = attempt.settings.mode is Mode.DIRECT
    removes, backup = ((), None) if direct else (yield from _planned_removals(slot, before))
    manifest = Manifest(
        slot=str(slot),
        generation=attempt.generation,
        request=attempt.request,
        query_id=attempt.accepted_query,
        fence=before.fence,
        attempt=attempt.number,
        staging=attempt.staging,
        files=tuple(ManifestFile(each.key, each.etag, each.size, each.key) for each in staged)
        if direct
        else planned_files(staged, slot.location, attempt.staging, before.fence, attempt.number),
        removes=removes,
        replaces=None if before.publication is None else before.publication.manifest,
        settings=attempt.settings,
    )
    key = keys.manifest_key(slot.location, before.fence, attempt.number)
    rows = yield from perform(CountRows(attempt.accepted_query))
    reusable = yield from _still_reusable(attempt)
    yield from tenure.keep()
    yield from write_once(slot, key, manifest)
    publication = Publication(
        generation=attempt.generation,
        definition=attempt.definition,
        request=attempt.request,
        run=attempt.run,
        query_id=attempt.accepted_query,
        fence=before.fence,
        attempt=attempt.number,
        manifest=key,
        files=len(manifest.files),
        bytes=sum(file.size for file in manifest.files),
        rows=rows,
        at=tenure.date,
        reusable=reusable,
        statistics=status.statistics,
        workgroup=attempt.starts[0].workgroup,
    )
    if direct and attempt.settings.glue is None:
        yield from tenure.change(register.committed_in_place, publication=publication)
    else:
        yield from tenure.change(register.committed, publication=publication, backup=backup)
    yield from perform(Report("committed", f"{publication.files} file(s), {publication.bytes} bytes, manifest {key}"))


def _still_reusable(attempt: Attempt) -> Effects[bool]:
    """Known before the query and unchanged after it: only then do the upstream versions say what the query read."""
    if not attempt.reusable:
        return False
    before = tuple(each for each in attempt.upstreams if not each.given)
    if not before:
        return True
    tables = []
    for each in before:
        catalog, database, name = each.table.split(".", 2)
        tables.append(UpstreamTable(database, name, catalog))
    return (yield from perform(ResolveUpstreams(tuple(tables)))) == before


def write_once(slot: Slot, key: str, manifest: Manifest) -> Effects[None]:
    """Creates the manifest. Lost reply or 412: read it back; it must be the very same."""
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        answer = yield from perform(WriteObject(key, encode(manifest), None))
        if isinstance(answer, Written):
            return
        stored = yield from answered(ReadObject(key), slot)
        if not isinstance(stored, Absent):
            if decode_manifest(slot, key, stored.body) == manifest:
                return
            raise errors.RegisterUnreadable(
                slot,
                f"the manifest s3://{slot.bucket}/{key} exists and is another's, under our own fence.",
                not_done="It was left as it is and nothing was published.",
                next_step="This happens after a register was deleted or restored: publish again for a new fence.",
            )
        yield from send_again(slot, f"writing {key}", answer, started, tries)
        tries += 1
