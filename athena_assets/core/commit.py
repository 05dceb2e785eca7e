"""The commit: the plan of the swap is written once, then one conditional write names it in the register."""

from __future__ import annotations

from athena_assets import errors
from athena_assets.core import keys, pointer, register
from athena_assets.core.codec import encode
from athena_assets.core.contents import Contents, decode_manifest, not_ours, survey
from athena_assets.core.effects import (
    CountRows,
    Effects,
    ListedObject,
    ListObjects,
    QueryStatus,
    Report,
    ResolveUpstreams,
    perform,
)
from athena_assets.core.manifest import Manifest, ManifestFile, RemovedFile, planned_files
from athena_assets.core.register import Attempt, Mode, Publication, PublishSettings, Register
from athena_assets.core.slot import Slot
from athena_assets.core.target import UpstreamTable
from athena_assets.core.tenure import Tenure, answered, create_once, vanished


def check_before_acquiring(slot: Slot, found: Register | None, settings: PublishSettings) -> Effects[None]:
    """Refuses a location whose objects a publication could not replace, before a query is paid for.

    Whoever takes an attempt over may start its query at once, and clean up after it: so no attempt is recorded before
    this. The conditional write that records it fails if another owner has published in between.

    Raises:
        LocationNotEmpty: foreign objects (staged, pointer), or any object at all (direct).
        ModeChanged, TableNotOurs: see there.
        RegisterVanished: the slot's own files lie there, and its register has never published.
    """
    if settings.mode is Mode.POINTER:
        yield from pointer.check_before_acquiring(slot, found, settings.glue)
        return
    yield from pointer.check_fixed_path(slot, found)
    if settings.mode is Mode.STAGED:
        yield from _replaced(slot, None if found is None else found.publication, settings)
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
    if previous is None and contents.stray:
        raise vanished(slot)  # what this slot has published is there, and the register does not know it
    if contents.neighbours:
        raise not_ours(slot, contents.neighbours[0].key)
    for found in contents.foreign:
        if not adopts:
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
    """The removals for what we wrote. Strays are never kept, nor a result that is not whole."""
    backup = None
    whole = previous is not None and not previous.lost and len(current) == previous.files
    if previous is not None and whole and keep > 0:
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
        RegisterVanished: so did files of this slot, which its register does not know.
        LeaseLost: another owner holds the slot, or has already committed this very query.
    """
    slot, attempt, before = tenure.slot, tenure.register.current, tenure.register
    mode = attempt.settings.mode
    in_place = mode is not Mode.STAGED
    removes, backup = ((), _kept_in_place(before)) if in_place else (yield from _planned_removals(slot, before))
    files = (
        tuple(ManifestFile(each.key, each.etag, each.size, each.key) for each in staged)
        if in_place
        else planned_files(staged, slot.location, attempt.staging, before.fence, attempt.number)
    )
    key = keys.manifest_key(slot.location, before.fence, attempt.number)
    rows = yield from perform(CountRows(attempt.accepted_query))
    reusable = yield from _still_reusable(attempt)
    yield from tenure.keep()
    publication = Publication(
        generation=attempt.generation,
        definition=attempt.definition,
        request=attempt.request,
        run=attempt.run,
        query_id=attempt.accepted_query,
        fence=before.fence,
        attempt=attempt.number,
        manifest=key,
        files=len(files),
        bytes=sum(file.size for file in files),
        rows=rows,
        at=tenure.date,
        reusable=reusable,
        statistics=status.statistics,
        workgroup=attempt.starts[0].workgroup,
        directory=attempt.staging if mode is Mode.POINTER else None,
    )
    manifest = Manifest(
        slot=str(slot),
        publication=publication,
        staging=attempt.staging,
        files=files,
        removes=removes,
        replaces=before.remembered[: register.HISTORY],
        settings=attempt.settings,
    )
    yield from write_once(slot, key, manifest)
    if in_place and attempt.settings.glue is None:
        yield from tenure.change(register.committed_in_place, publication=publication, backup=backup)
    else:
        yield from tenure.change(register.committed, publication=publication, backup=backup)
    yield from perform(Report("committed", f"{publication.files} file(s), {publication.bytes} bytes, manifest {key}"))


def _kept_in_place(before: Register) -> str | None:
    """Pointer mode: where the current publication is kept, which is where it is; one that is lost is not."""
    previous = before.publication
    return None if previous is None or previous.lost else previous.directory


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
    """Creates the manifest. Lost reply or 412: what stands there must be the very same."""
    body = encode(manifest)
    stored = yield from create_once(slot, key, body)
    if stored != body and decode_manifest(slot, key, stored) != manifest:
        raise errors.RegisterUnreadable(
            slot,
            f"the manifest s3://{slot.bucket}/{key} exists and is another's, under our own fence.",
            not_done="It was left as it is and nothing was published.",
            next_step="This happens after an old register was brought back: publish again for a new fence, or run "
            "`athena-assets rebuild`.",
        )
