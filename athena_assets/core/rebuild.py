"""Making a lost or damaged register anew, from the manifests and from what lies at the location.

The new register's ETag and write_id are new, so that no write of an old owner can match it, and its fence lies above
every one that left a trace. A publication is named only if something proves it (see evidence.py), or if a person
chooses it. Naming it is not the end: the swap is rolled forward as after any crash, or the publication is said to be
lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from athena_assets import errors
from athena_assets.core import keys
from athena_assets.core.chain import readable
from athena_assets.core.codec import NewerSchema, UnreadableRegister
from athena_assets.core.commit import write_once
from athena_assets.core.contents import decode_manifest, survey
from athena_assets.core.effects import (
    Absent,
    DrawId,
    Effects,
    ListedObject,
    ListObjects,
    ObjectRead,
    ReadClock,
    ReadObject,
    Report,
    perform,
)
from athena_assets.core.evidence import Candidate, candidates, changed, newest_manifests, not_rebuilt
from athena_assets.core.register import (
    HISTORY,
    Kept,
    Mode,
    Owner,
    Publication,
    Retired,
    decode_register,
    rebuilt,
)
from athena_assets.core.remains import backups, directories
from athena_assets.core.restore import again
from athena_assets.core.slot import Slot
from athena_assets.core.swap import project
from athena_assets.core.tenure import LeaseLost, Seen, Tenure, answered, create_once, write

LEAP = 1000  # fences that are left out: an owner whose query has written nothing yet left no trace of its own


@dataclass(frozen=True, slots=True)
class Findings:
    """What is left of a slot whose register is lost.

    Args:
        register: what is the matter with it.
        fence: of the register that would be written.
        candidates: newest first; empty if nothing was ever published.
        chosen: the one that the register would name. None, and candidates: it can't be told.
        history: publications before the chosen one, newest first.
        kept, retired, unnamed: see Remains.
    """

    register: str
    fence: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    history: tuple[Publication, ...]
    kept: tuple[Kept, ...]
    retired: tuple[Retired, ...]
    unnamed: tuple[str, ...]

    @property
    def goes_back(self) -> bool:
        """Whether there is a newer candidate than the chosen one."""
        return self.chosen is not None and self.chosen.publication.fence < self.candidates[0].publication.fence

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
    there = yield from answered(ListObjects(slot.location.prefix), slot)
    newest = [each.key for each in listed if keys.manifest_fence(slot.location, each.key) is not None]
    top = max((keys.manifest_fence(slot.location, key) or 0 for key in newest), default=0)
    newest = [key for key in newest if keys.manifest_fence(slot.location, key) == top]
    seen, matter, noted = _register(slot, found, newest, top, asked)
    if not newest:
        yield from _check_nothing_published(slot, there)
        if found is None and not listed:
            raise not_rebuilt(
                slot,
                "there is no register and no trace of one: nothing was ever published here.",
                "Check the location, or publish: the first caller makes the register.",
            )
    manifests = yield from newest_manifests(slot, newest)
    possible = yield from candidates(slot, manifests, there)
    chosen = _choose(slot, possible, name)
    history = () if not manifests else manifests[0].replaces
    if chosen is not None:
        history = tuple(each for each in history if each.fence < chosen.publication.fence)
    plan = next((each for each in manifests if chosen is not None and each.publication == chosen.publication), None)
    left = backups(slot, listed, history, plan)
    if chosen is not None and chosen.mode is Mode.POINTER:
        current = plan or (yield from readable(slot, chosen.publication.manifest))
        keep = 0 if current is None else current.settings.keep_previous
        left = yield from directories(slot, listed, there, history, chosen.publication, keep)
    fence = 1 + LEAP + max(noted, *(keys.any_fence(slot.location, each.key) or 0 for each in listed + there), 0)
    damaged = found.body if found is not None and seen.register is None else None
    return Findings(matter, fence, possible, chosen, history, left.kept, left.retired, left.unnamed), seen, damaged


def rebuild(slot: Slot, owner: Owner, lease: float, *, name: str | None) -> Effects[Findings]:
    """Writes the register anew and finishes the swap of the publication that it names.

    A damaged register is copied aside first. A lost reply is resolved as for every write of a register.

    Raises:
        NotRebuilt: there is nothing to rebuild, or nothing proves which publication is current.
        SlotBusy: somebody else wrote the register meanwhile.
        PublicationLost: the slot is free; files of the publication are nowhere.
        TableNotOurs: as PublicationLost; the table was left as it is.
    """
    findings, seen, damaged = yield from examine(slot, name)
    if not findings.told:
        raise _untold(slot, findings.candidates)
    if damaged is not None and seen.etag is not None:
        aside = keys.damaged_register_key(slot.location, seen.etag)
        yield from create_once(slot, aside, damaged)
        yield from perform(Report("kept aside", f"the damaged register: {aside}"))
    chosen, history = findings.chosen, findings.history
    publication = None if chosen is None else chosen.publication
    if chosen is not None and chosen.mode is Mode.DIRECT and not chosen.whole:
        publication = replace(chosen.publication, lost=True)  # Athena wrote it in place: there is nothing to copy again
    if chosen is not None and chosen.mode is Mode.POINTER and chosen.whole and findings.goes_back:
        publication = yield from _publish_again(slot, owner, findings, chosen.publication)
        history = (chosen.publication, *history)[:HISTORY]
    register = rebuilt(
        (yield from perform(DrawId())),
        fence=findings.fence,
        owner=owner,
        lease=lease,
        publication=publication,
        history=history,
        kept=findings.kept,
        retired=findings.retired,
    )
    taken = yield from write(slot, seen, register)
    if taken is None:
        raise changed(slot)
    yield from perform(Report("rebuilt", f"fence {findings.fence}, naming {chosen or 'no publication'}"))
    whole = publication is None or not publication.lost
    if publication is not None and whole:
        try:
            whole = yield from project(Tenure(slot, taken))
        except LeaseLost:
            raise changed(slot) from None
    if not whole:
        raise errors.PublicationLost(
            slot,
            f"the register was rebuilt, and files of {chosen} are neither in staging nor at the location.",
            not_done="Readers see none, or part, of the result.",
            next_step="Publish again: the query runs anew.",
        )
    return findings


def _publish_again(slot: Slot, owner: Owner, findings: Findings, old: Publication) -> Effects[Publication]:
    """Pointer mode: the older result as a publication of its own, with the new fence; written before it is committed.

    The newer one may have been committed, and its owner may be about to point Glue at it: only a higher fence there
    stops that owner.
    """
    read = yield from answered(ReadObject(old.manifest), slot)
    if isinstance(read, Absent):
        raise changed(slot)
    key = keys.restore_manifest_key(slot.location, findings.fence, (yield from perform(DrawId())))
    publication = again(old, owner, fence=findings.fence, manifest=key, at=read.date)
    before = (old, *findings.history)[:HISTORY]
    yield from write_once(
        slot, key, replace(decode_manifest(slot, old.manifest, read.body), publication=publication, replaces=before)
    )
    return publication


def _check_nothing_published(slot: Slot, there: tuple[ListedObject, ...]) -> Effects[None]:
    """Raises NotRebuilt if something of this system lies at the location: there was a manifest, or may have been."""
    directory = next((each.key for each in there if keys.directory_of(slot.location, each.key)), None)
    if directory is not None:
        raise not_rebuilt(
            slot,
            f"there is no manifest, and s3://{slot.bucket}/{directory} may be of a published result or of a failed "
            "attempt.",
            "Bring the manifests back, or move that directory away if nobody reads it.",
        )
    contents = yield from survey(slot, None)
    if contents.stray:
        raise not_rebuilt(
            slot,
            f"{len(contents.stray)} files of this system lie at the location and no manifest names them.",
            "Move them away, or bring the manifests back.",
        )


def _register(
    slot: Slot, found: ObjectRead | None, manifests: list[str], top: int, asked: float
) -> tuple[Seen, str, int]:
    """What stands there to be replaced, what is the matter with it, and the fence that it still tells."""
    if found is None:
        return Seen(None, None, asked, asked), "it is gone", 0
    try:
        register = decode_register(found.body)
    except NewerSchema as error:
        raise not_rebuilt(
            slot, f"the register is whole and of a newer version: {error}.", "Upgrade athena_assets."
        ) from error
    except UnreadableRegister as error:
        seen = Seen(None, found.etag, asked, asked, found.date, found.age)
        return seen, f"it can't be read: {error}", _noted_fence(found.body)
    # A restore writes its manifest before its fence is won.
    if not any(top > register.fence and not keys.is_restored(key) for key in manifests):
        raise not_rebuilt(slot, "the register is there and can be read.", "Publish: the next caller goes on from it.")
    seen = Seen(register, found.etag, asked, asked, found.date, found.age)
    return seen, f"its fence is {register.fence} and a manifest's is {top}: it is an old one, or began again", 0


def _noted_fence(body: bytes) -> int:
    """The fence in a register that is otherwise damaged."""
    try:
        noted = json.loads(body)["fence"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return noted if type(noted) is int and 0 < noted < 10**7 else 0


def _choose(slot: Slot, possible: tuple[Candidate, ...], name: str | None) -> Candidate | None:
    if name is None:
        proved = [each for each in possible if each.proved]
        return proved[0] if len(proved) == 1 else None
    for each in possible:
        if each.name == name:
            return each
    raise not_rebuilt(
        slot,
        f"{name!r} is not among those that may be current: {', '.join(map(str, possible)) or 'there is none'}.",
        "Name one of those.",
    )


def _untold(slot: Slot, possible: tuple[Candidate, ...]) -> errors.NotRebuilt:
    return not_rebuilt(
        slot,
        f"nothing at the location proves which publication is current: {', or '.join(map(str, possible))}.",
        "Look at both manifests, then name the one that readers shall see (`athena-assets rebuild --publication`).",
    )
