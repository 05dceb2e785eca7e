"""Bringing a kept publication back, as a publication of its own: no query, one write that acquires and commits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from athena_assets import errors
from athena_assets.core import keys, policy, register
from athena_assets.core.answers import describe
from athena_assets.core.chain import find
from athena_assets.core.commit import removals, write_once
from athena_assets.core.contents import not_ours, read_manifest, survey
from athena_assets.core.effects import DrawId, Effects, ListObjects, Report, perform
from athena_assets.core.first_use import check_not_lost
from athena_assets.core.manifest import Manifest, ManifestFile, RemovedFile, planned_files
from athena_assets.core.pointer import check_table, difference
from athena_assets.core.register import Kept, Owner, Publication, PublishSettings, Register, State
from athena_assets.core.slot import Slot
from athena_assets.core.swap import project
from athena_assets.core.tenure import LeaseLost, Seen, Tenure, answered, look, write

RESTORE = 0  # the attempt number of a publication that no attempt made


def restore(slot: Slot, *, fence: int, owner: Owner, lease: float, may_be_retry: bool = True) -> Effects[Publication]:
    """Publishes the kept result whose fence was `fence`; the present one is kept in its stead.

    Calling it again with the same request id finds what the first call did. `may_be_retry`: there may be a first call.

    Raises:
        NotKept: no such result is kept, or not all of its files are there.
        ModeChanged: it was published in another mode than the present one.
        TableNotOurs: see there.
        SlotBusy: somebody holds the slot, or has just changed it.
        LocationNotEmpty: foreign objects lie under the location.
        ChainBroken: nothing tells whether a first call has published.
        RegisterVanished: there were publications, and the register is lost.
    """
    seen = yield from look(slot)
    found = seen.register
    if found is None:
        yield from check_not_lost(slot, None, 1)
    if found is not None and found.state is State.FREE and may_be_retry:
        done = yield from find(slot, found.remembered, owner.request, above=0)
        if done is not None:
            if done.lost:
                raise _lost(slot)
            return done
    if found is not None and found.state is State.BLOCKED and found.failure is not None:
        raise policy.failure_error(slot, found.failure)
    if found is not None and found.state is not State.FREE:
        raise _busy(slot, found)
    kept = _kept(slot, found, fence)
    assert found is not None
    in_place = kept.publication.directory is not None
    try:
        plan = yield from (_in_its_directory if in_place else _from_backup)(slot, found, kept)
    except errors.AthenaAssetsError:
        if (yield from look(slot)).etag != seen.etag:
            raise _overtaken(slot) from None  # what was found belongs to what another has published meanwhile
        raise
    key = keys.restore_manifest_key(slot.location, found.fence + 1, (yield from perform(DrawId())))
    publication = again(kept.publication, owner, fence=found.fence + 1, manifest=key, at=seen.date)
    manifest = Manifest(
        slot=str(slot),
        publication=publication,
        staging=plan.staging,
        files=plan.files,
        removes=plan.removes,
        replaces=found.remembered[: register.HISTORY],
        settings=plan.settings,
    )
    yield from write_once(slot, key, manifest)
    taken = yield from _commit(slot, seen, owner, lease, publication, plan.backup)
    yield from perform(Report("committed", f"the result of fence {fence} again, as fence {publication.fence}"))
    try:
        whole = yield from project(Tenure(slot, taken))
    except LeaseLost:
        raise errors.SlotBusy(
            slot,
            "another caller took the slot over while the files were copied, and finishes the restore.",
            owner="unknown",
            query_id=None,
            next_step="Look at the status; the same request id finds what was done.",
        ) from None
    if not whole:
        raise _lost(slot)
    return publication


def again(old: Publication, owner: Owner, *, fence: int, manifest: str, at: float) -> Publication:
    """An old result as a publication of its own. `at` is S3's clock."""
    return replace(
        old,
        request=owner.request,
        run=owner.run,
        fence=fence,
        attempt=RESTORE,
        manifest=manifest,
        at=at,
        restored=old.fence,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of the files. `backup`: where the present result is kept."""

    staging: str
    files: tuple[ManifestFile, ...]
    removes: tuple[RemovedFile, ...]
    settings: PublishSettings
    backup: str | None


def _from_backup(slot: Slot, found: Register, kept: Kept) -> Effects[_Plan]:
    """The kept files are copied to the location, in place of the present ones."""
    if found.publication is not None and found.publication.directory is not None:
        raise _other_mode(slot, kept)
    files = yield from answered(ListObjects(kept.backup), slot)
    if (len(files), sum(each.size for each in files)) != (kept.publication.files, kept.publication.bytes):
        raise errors.NotKept(
            slot,
            f"of {kept.publication.files} kept files under s3://{slot.bucket}/{kept.backup} {len(files)} are there.",
            not_done="Nothing was published or deleted.",
            next_step="Publish the target again instead.",
        )
    contents = yield from survey(slot, found.publication)
    for other in contents.foreign + contents.neighbours:
        raise not_ours(slot, other.key)
    keep = len(found.kept)  # one leaves, one comes
    removes, backup = removals(slot, found.publication, contents.current, contents.stray, keep)
    moved = planned_files(files, slot.location, kept.backup, found.fence + 1, RESTORE)
    current = None if found.publication is None else (yield from read_manifest(slot, found.publication))
    glue = None if current is None else current.settings.glue
    return _Plan(kept.backup, moved, removes, PublishSettings(keep_previous=keep, glue=glue), backup)


def _in_its_directory(slot: Slot, found: Register, kept: Kept) -> Effects[_Plan]:
    """Pointer mode: the kept files are where they were, and readers are sent there again."""
    present = found.publication
    if present is None or present.directory is None:
        raise _other_mode(slot, kept)
    old = yield from read_manifest(slot, kept.publication)
    why = yield from difference(slot, kept.publication, old)
    if old is None or why is not None:
        raise errors.NotKept(
            slot,
            f"the kept result is not whole: {why}.",
            not_done="Nothing was published or deleted.",
            next_step="Publish the target again instead.",
        )
    current = yield from read_manifest(slot, present)
    settings = replace((current or old).settings, keep_previous=len(found.kept))  # one leaves, one comes
    yield from check_table(slot, settings.glue, found.fence)
    return _Plan(old.staging, old.files, (), settings, None if present.lost else present.directory)


def _other_mode(slot: Slot, kept: Kept) -> errors.ModeChanged:
    return errors.ModeChanged(
        slot,
        f"the kept result of fence {kept.publication.fence} and the present one were published in different modes.",
        not_done="Nothing was published or deleted.",
        next_step="Publish the target again instead.",
    )


def _kept(slot: Slot, found: Register | None, fence: int) -> Kept:
    available = () if found is None else found.kept
    for each in available:
        if each.publication.fence == fence:
            return each
    fences = ", ".join(str(each.publication.fence) for each in available) or "none"
    raise errors.NotKept(
        slot,
        f"no result with fence {fence} is kept (kept: {fences}).",
        not_done="Nothing was changed.",
        next_step="Choose one of those; the target's keep_previous says how many there are.",
    )


def _busy(slot: Slot, found: Register) -> errors.SlotBusy:
    query_id = None if found.attempt is None else found.attempt.query_id
    return errors.SlotBusy(
        slot,
        f"the slot is held by {describe(found)}.",
        owner=describe(found),
        query_id=query_id,
        next_step="Restore when it is free; if its owner is dead, the next `unload` (or `takeover`) finishes its work.",
    )


def _commit(
    slot: Slot, seen: Seen, owner: Owner, lease: float, publication: Publication, backup: str | None
) -> Effects[Seen]:
    found = seen.register
    assert found is not None
    write_id = yield from perform(DrawId())
    changed = register.restored(
        found,
        write_id,
        owner=owner,
        lease=lease,
        publication=publication,
        backup=backup,
        freed_at=seen.modified,
    )
    taken = yield from write(slot, seen, changed)
    if taken is None:
        raise _overtaken(slot)
    return taken


def _overtaken(slot: Slot) -> errors.SlotBusy:
    return errors.SlotBusy(
        slot,
        "somebody acquired the slot at the same moment.",
        owner="unknown",
        query_id=None,
        next_step="Look at the status and restore again.",
    )


def _lost(slot: Slot) -> errors.PublicationLost:
    return errors.PublicationLost(
        slot,
        "the kept files vanished while they were copied.",
        not_done="Readers see none, or part, of the result.",
        next_step="Publish the target again: its query runs anew.",
    )
