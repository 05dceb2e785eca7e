"""Making a lost or damaged register anew, from the manifests and from what lies at the location.

The new register's ETag and write_id are new, so that no write of an old owner can match it, and its fence lies above
every one that left a trace. A manifest alone proves nothing: it is written before the commit. Who copied a file into
the location had committed; a publication is named only if such a file proves it, or if a person chooses it. Naming it
is not the end: the swap is rolled forward as after any crash, or the publication is said to be lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from athena_assets import errors
from athena_assets.core import keys
from athena_assets.core.codec import NewerSchema, UnreadableRegister
from athena_assets.core.contents import decode_manifest, survey
from athena_assets.core.effects import (
    Absent,
    DrawId,
    Effects,
    HeadObject,
    ListedObject,
    ListObjects,
    ObjectRead,
    ReadClock,
    ReadObject,
    Report,
    perform,
)
from athena_assets.core.manifest import Manifest
from athena_assets.core.register import Kept, Mode, Owner, Publication, decode_register, rebuilt
from athena_assets.core.slot import Slot
from athena_assets.core.swap import project
from athena_assets.core.tenure import LeaseLost, Seen, Tenure, answered, create_once, write

LEAP = 1000  # fences that are left out: an owner whose query has written nothing yet left no trace of its own


@dataclass(frozen=True, slots=True)
class Candidate:
    """A publication that may be the current one. `present` of its files lie at the location, as it published them.

    `proved`: what lies there can't be explained otherwise. `name` is that of its manifest.
    """

    name: str
    publication: Publication
    mode: Mode
    present: int
    proved: bool

    def __str__(self) -> str:
        own = self.publication
        return f"{self.name} (query {own.query_id} of request {own.request}, {self.present} of {own.files} files there)"


@dataclass(frozen=True, slots=True)
class Findings:
    """What is left of a slot whose register is lost.

    Args:
        register: what is the matter with it.
        fence: of the register that would be written.
        candidates: newest first; empty if nothing was ever published.
        chosen: the one that the register would name. None, and candidates: it can't be told.
        history: publications before the chosen one, newest first.
        kept: the replaced results of which files are still kept.
    """

    register: str
    fence: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    history: tuple[Publication, ...]
    kept: tuple[Kept, ...]

    @property
    def told(self) -> bool:
        return self.chosen is not None or not self.candidates


def examine(slot: Slot, name: str | None) -> Effects[tuple[Findings, Seen, bytes | None]]:
    """Looks; changes nothing. `name`: the candidate that a person chooses.

    Returns the findings, what stands at the register's key, and its bytes if they are damaged.

    Raises:
        NotRebuilt: there is nothing to rebuild, or it can't be done by this version.
    """
    asked = yield from perform(ReadClock())
    read = yield from answered(ReadObject(keys.register_key(slot.location)), slot)
    found = None if isinstance(read, Absent) else read
    listed = yield from answered(ListObjects(keys.slot_prefix(slot.location)), slot)
    newest = [each.key for each in listed if keys.manifest_fence(slot.location, each.key) is not None]
    top = max((keys.manifest_fence(slot.location, key) or 0 for key in newest), default=0)
    newest = [key for key in newest if keys.manifest_fence(slot.location, key) == top]
    seen, matter, noted = _register(slot, found, newest, top, asked)
    manifests = yield from _manifests(slot, newest)
    candidates = yield from _candidates(slot, manifests)
    chosen = _choose(slot, candidates, name)
    history = () if not manifests else manifests[0].replaces
    if chosen is not None:
        history = tuple(each for each in history if each.fence < chosen.publication.fence)
    fence = 1 + LEAP + max(noted, *(keys.any_fence(slot.location, each.key) or 0 for each in listed), 0)
    plan = next((each for each in manifests if chosen is not None and each.publication == chosen.publication), None)
    kept = _kept(slot, listed, history, plan)
    damaged = found.body if found is not None and seen.register is None else None
    return Findings(matter, fence, candidates, chosen, history, kept), seen, damaged


def rebuild(slot: Slot, owner: Owner, lease: float, *, name: str | None) -> Effects[Findings]:
    """Writes the register anew and finishes the swap of the publication that it names.

    A damaged register is copied aside first. A lost reply is resolved as for every write of a register.

    Raises:
        NotRebuilt: there is nothing to rebuild, or nothing proves which publication is current.
        SlotBusy: somebody else wrote the register meanwhile.
        PublicationLost: the slot is free; files of the publication are nowhere.
    """
    findings, seen, damaged = yield from examine(slot, name)
    if not findings.told:
        raise _untold(slot, findings.candidates)
    if damaged is not None and seen.etag is not None:
        aside = keys.damaged_register_key(slot.location, seen.etag)
        yield from create_once(slot, aside, damaged)
        yield from perform(Report("kept aside", f"the damaged register: {aside}"))
    chosen = findings.chosen
    publication = None if chosen is None else chosen.publication
    if chosen is not None and chosen.mode is Mode.DIRECT and chosen.present < chosen.publication.files:
        publication = replace(chosen.publication, lost=True)  # Athena wrote it in place: there is nothing to copy again
    register = rebuilt(
        (yield from perform(DrawId())),
        fence=findings.fence,
        owner=owner,
        lease=lease,
        publication=publication,
        history=findings.history,
        kept=findings.kept,
    )
    taken = yield from write(slot, seen, register)
    if taken is None:
        raise _changed(slot)
    yield from perform(Report("rebuilt", f"fence {findings.fence}, naming {chosen or 'no publication'}"))
    whole = publication is None or not publication.lost
    if publication is not None and whole:
        try:
            whole = yield from project(Tenure(slot, taken))
        except LeaseLost:
            raise _changed(slot) from None
    if not whole:
        raise errors.PublicationLost(
            slot,
            f"the register was rebuilt, and files of {chosen} are neither in staging nor at the location.",
            not_done="Readers see none, or part, of the result.",
            next_step="Publish again: the query runs anew.",
        )
    return findings


def _register(
    slot: Slot, found: ObjectRead | None, manifests: list[str], top: int, asked: float
) -> tuple[Seen, str, int]:
    """What stands there to be replaced, what is the matter with it, and the fence that it still tells."""
    if found is None:
        return Seen(None, None, asked, asked), "it is gone", 0
    try:
        register = decode_register(found.body)
    except NewerSchema as error:
        raise _not_rebuilt(
            slot, f"the register is whole and of a newer version: {error}.", "Upgrade athena_assets."
        ) from error
    except UnreadableRegister as error:
        seen = Seen(None, found.etag, asked, asked, found.date, found.age)
        return seen, f"it can't be read: {error}", _noted_fence(found.body)
    # A restore writes its manifest before its fence is won.
    if not any(top > register.fence and not keys.is_restored(key) for key in manifests):
        raise _not_rebuilt(slot, "the register is there and can be read.", "Publish: the next caller goes on from it.")
    seen = Seen(register, found.etag, asked, asked, found.date, found.age)
    return seen, f"its fence is {register.fence} and a manifest's is {top}: it is an old one, or began again", 0


def _noted_fence(body: bytes) -> int:
    """The fence in a register that is otherwise damaged."""
    try:
        noted = json.loads(body)["fence"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return noted if type(noted) is int and 0 < noted < 10**7 else 0


def _manifests(slot: Slot, listed: list[str]) -> Effects[tuple[Manifest, ...]]:
    found: tuple[Manifest, ...] = ()
    for key in listed:
        read = yield from answered(ReadObject(key), slot)
        if isinstance(read, Absent):
            raise _changed(slot)
        found += (decode_manifest(slot, key, read.body),)
    return found


def _candidates(slot: Slot, newest: tuple[Manifest, ...]) -> Effects[tuple[Candidate, ...]]:
    """The newest manifests, which may never have been committed, and the publication that they would replace.

    A manifest below those was replaced, or lost against one that is in their line: its owner's fence was over.
    """
    listing = yield from answered(ListObjects(slot.location.prefix), slot)
    there = {each.key: each for each in listing}
    before: Candidate | None = None
    for previous in () if not newest else newest[0].replaces[:1]:
        read = yield from answered(ReadObject(previous.manifest), slot)
        if isinstance(read, Absent):
            before = Candidate(_name(previous.manifest), previous, Mode.STAGED, 0, proved=False)
        else:
            manifest = decode_manifest(slot, previous.manifest, read.body)
            present = yield from _present(slot, manifest, there)
            before = Candidate(_name(previous.manifest), previous, manifest.settings.mode, present, proved=False)
    found = []
    for manifest in newest:
        own, mode = manifest.publication, manifest.settings.mode
        present = yield from _present(slot, manifest, there)
        if own.files == 0:
            proved = before is not None and before.publication.files > 0 and before.present == 0
        elif manifest.files[0].source != manifest.files[0].key:
            proved = present > 0  # nobody copies before the commit
        else:
            proved = mode is Mode.DIRECT and present == own.files
        found.append(Candidate(_name(own.manifest), own, mode, present, proved))
    if not newest:
        contents = yield from survey(slot, None)
        if contents.stray:
            raise _not_rebuilt(
                slot,
                f"{len(contents.stray)} files of this system lie at the location and no manifest names them.",
                "Move them away, or bring the manifests back.",
            )
    return tuple(found) if before is None else (*found, before)


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


def _choose(slot: Slot, candidates: tuple[Candidate, ...], name: str | None) -> Candidate | None:
    if name is None:
        proved = [each for each in candidates if each.proved]
        return proved[0] if len(proved) == 1 else None
    for each in candidates:
        if each.name == name:
            return each
    raise _not_rebuilt(
        slot,
        f"{name!r} is not among those that may be current: {', '.join(map(str, candidates)) or 'there is none'}.",
        "Name one of those.",
    )


def _kept(
    slot: Slot, listed: tuple[ListedObject, ...], history: tuple[Publication, ...], plan: Manifest | None
) -> tuple[Kept, ...]:
    """The backups that are there, or that the plan is about to fill. Whether one is whole is restore's to say."""
    held = {keys.fence_below(keys.backup_root(slot.location), each.key) for each in listed}
    if plan is not None:
        planned = (each.backup for each in plan.removes if each.backup is not None)
        held |= {keys.fence_below(keys.backup_root(slot.location), each) for each in planned}
        held.discard(plan.publication.restored)  # the plan moves it back
    return tuple(Kept(each, keys.backup_prefix(slot.location, each.fence)) for each in history if each.fence in held)


def _name(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(".json")


def _not_rebuilt(slot: Slot, what: str, next_step: str) -> errors.NotRebuilt:
    return errors.NotRebuilt(slot, what, not_done="Nothing was written.", next_step=next_step)


def _untold(slot: Slot, candidates: tuple[Candidate, ...]) -> errors.NotRebuilt:
    return _not_rebuilt(
        slot,
        f"nothing at the location proves which publication is current: {', or '.join(map(str, candidates))}.",
        "Look at both manifests, then name the one that readers shall see (`athena-assets rebuild --publication`).",
    )


def _changed(slot: Slot) -> errors.SlotBusy:
    return errors.SlotBusy(
        slot,
        "the slot changed meanwhile.",
        owner="unknown",
        query_id=None,
        next_step="Look at the status, and rebuild again if it still has no register.",
    )
