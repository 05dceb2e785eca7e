"""Which publication was the current one, where the register is lost: what may have been, and what is proved.

A manifest alone proves nothing: it is written before the commit. Staged: who copied a file into the location had
committed. Pointer: nothing is copied, and a directory is there before the commit too; but who pointed a Glue table at
it had committed. Without a table a directory proves something only if no other result can be shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from athena_assets import errors
from athena_assets.core import keys
from athena_assets.core.contents import decode_manifest, read_manifest
from athena_assets.core.effects import (
    Absent,
    Effects,
    HeadObject,
    ListedObject,
    Pointer,
    ReadObject,
    ReadPointer,
)
from athena_assets.core.manifest import Manifest
from athena_assets.core.pointer import compare, points_at
from athena_assets.core.register import Mode, Publication
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import answered


@dataclass(frozen=True, slots=True)
class Candidate:
    """A publication that may be the current one. `present` of its files lie where its readers look, as published.

    `whole`: none is missing, and of pointer mode nothing else lies in its directory. `proved`: what is there can't be
    explained otherwise. `name` is that of its manifest.
    """

    name: str
    publication: Publication
    mode: Mode
    present: int
    whole: bool
    proved: bool = False

    def __str__(self) -> str:
        own = self.publication
        return f"{self.name} (query {own.query_id} of request {own.request}, {self.present} of {own.files} files there)"


def newest_manifests(slot: Slot, listed: list[str]) -> Effects[tuple[Manifest, ...]]:
    """The manifests of these keys."""
    found: tuple[Manifest, ...] = ()
    for key in listed:
        read = yield from answered(ReadObject(key), slot)
        if isinstance(read, Absent):
            raise changed(slot)
        found += (decode_manifest(slot, key, read.body),)
    return found


def candidates(
    slot: Slot, newest: tuple[Manifest, ...], listing: tuple[ListedObject, ...]
) -> Effects[tuple[Candidate, ...]]:
    """The newest manifests, which may never have been committed, and the publication that they would replace.

    A manifest below those was replaced, or lost against one that is in their line: its owner's fence was over.
    `listing` is of the location.

    Raises:
        NotRebuilt: a later publication than any of these is shown.
    """
    before: Candidate | None = None
    for previous in () if not newest else newest[0].replaces[:1]:
        manifest = yield from read_manifest(slot, previous)
        if manifest is None:
            mode = Mode.STAGED if previous.directory is None else Mode.POINTER
            before = Candidate(_name(previous), previous, mode, 0, whole=False)
        else:
            before = yield from _candidate(slot, manifest, listing)
            # Its register knew more of it than its manifest: whether it was lost.
            before = replace(before, publication=previous, whole=before.whole and not previous.lost)
    found = []
    for manifest in newest:
        each = yield from _candidate(slot, manifest, listing)
        if each.mode is Mode.POINTER:
            proved = yield from _pointed_at(slot, manifest)
        elif manifest.files and manifest.files[0].source != manifest.files[0].key:
            proved = each.present > 0  # nobody copies before the commit
        elif manifest.files:
            proved = each.whole
        else:
            proved = before is not None and before.publication.files > 0 and before.present == 0
        found.append(replace(each, proved=proved))
    if len(found) == 1 and _only_one(found[0], before):
        found = [replace(found[0], proved=True)]
    return tuple(found) if before is None else (*found, before)


def _only_one(newest: Candidate, before: Candidate | None) -> bool:
    """Whether nothing but this result of pointer mode can be shown to readers.

    If it was not committed yet, its attempt stood `running`, its query had succeeded and its files were verified: any
    taker would have committed it, and its request finds it. A restored one may have lost its fence to somebody who
    knew better.
    """
    possible = newest.mode is Mode.POINTER and newest.whole and not keys.is_restored(newest.publication.manifest)
    return possible and (before is None or not before.whole)


def _pointed_at(slot: Slot, manifest: Manifest) -> Effects[bool]:
    """Glue is written after the commit, and never with a lower fence over a higher one."""
    table, own = manifest.settings.glue, manifest.publication
    if table is None:
        return False
    found = yield from answered(ReadPointer(table), slot)
    if isinstance(found, Absent):
        return False
    if found.slot == str(slot) and (found.fence or 0) > own.fence:
        raise _ahead(slot, found, own)
    return points_at(slot, found, own)


def _candidate(slot: Slot, manifest: Manifest, listing: tuple[ListedObject, ...]) -> Effects[Candidate]:
    own, mode = manifest.publication, manifest.settings.mode
    if own.directory is not None:
        missing, other = compare(manifest, tuple(each for each in listing if each.key.startswith(own.directory)))
        whole = not missing and not other
        return Candidate(_name(own), own, mode, own.files - len(missing), whole)
    present = yield from _present(slot, manifest, {each.key: each for each in listing})
    return Candidate(_name(own), own, mode, present, present == own.files)


def _present(slot: Slot, manifest: Manifest, there: dict[str, ListedObject]) -> Effects[int]:
    present = 0
    for index, file in enumerate(manifest.files):
        found = there.get(file.key)
        if found is None or found.size != file.size:
            continue
        if found.etag == file.source_etag:
            present += 1
            continue
        head = yield from answered(HeadObject(file.key), slot)
        present += not isinstance(head, Absent) and manifest.is_copy(index, head.size, head.metadata)
    return present


def _name(publication: Publication) -> str:
    return publication.manifest.rpartition("/")[2].removesuffix(".json")


def _ahead(slot: Slot, found: Pointer, own: Publication) -> errors.NotRebuilt:
    return not_rebuilt(
        slot,
        f"Glue sends readers to {found.location}, which was published with fence {found.fence}, and the newest "
        f"manifest is of fence {own.fence}.",
        "Bring the later manifest back (bucket versioning), or drop the table or partition if its result is not "
        "needed: it is then created anew.",
    )


def not_rebuilt(slot: Slot, what: str, next_step: str) -> errors.NotRebuilt:
    """The error for a register that is left as it is."""
    return errors.NotRebuilt(slot, what, not_done="Nothing was written.", next_step=next_step)


def changed(slot: Slot) -> errors.SlotBusy:
    """The error for a slot that somebody else writes at the same time."""
    return errors.SlotBusy(
        slot,
        "the slot changed meanwhile.",
        owner="unknown",
        query_id=None,
        next_step="Look at the status, and rebuild again if it still has no register.",
    )
