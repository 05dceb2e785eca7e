"""What a lost register knew besides the publication: which replaced results are kept, and what is to be collected."""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets.core import keys
from athena_assets.core.chain import readable
from athena_assets.core.effects import Effects, ListedObject
from athena_assets.core.manifest import Manifest
from athena_assets.core.pointer import compare
from athena_assets.core.register import GRACE_SECONDS, Kept, Publication, Retired
from athena_assets.core.slot import Slot


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left beside the current publication.

    Args:
        kept: the replaced results of which files are still kept, newest first.
        retired: pointer mode: directories that a manifest proves ours and that are not needed.
        unnamed: pointer mode: directories that no manifest names. An attempt's, or a publication's whose manifest
            somebody has deleted: nothing tells which, so that they are left alone.
    """

    kept: tuple[Kept, ...] = ()
    retired: tuple[Retired, ...] = ()
    unnamed: tuple[str, ...] = ()


def backups(
    slot: Slot, listed: tuple[ListedObject, ...], history: tuple[Publication, ...], plan: Manifest | None
) -> Remains:
    """The backups that are there, or that the plan is about to fill. Whether one is whole is restore's to say."""
    held = {keys.fence_below(keys.backup_root(slot.location), each.key) for each in listed}
    if plan is not None:
        planned = (each.backup for each in plan.removes if each.backup is not None)
        held |= {keys.fence_below(keys.backup_root(slot.location), each) for each in planned}
        held.discard(plan.publication.restored)  # the plan moves it back
    kept = (Kept(each, keys.backup_prefix(slot.location, each.fence)) for each in history if each.fence in held)
    return Remains(tuple(kept))


def directories(
    slot: Slot,
    listed: tuple[ListedObject, ...],
    there: tuple[ListedObject, ...],
    history: tuple[Publication, ...],
    current: Publication,
    keep: int,
) -> Effects[Remains]:
    """Pointer mode: of the directories at the location (`there`), those that are not the current publication's.

    At most `keep` replaced results are kept, and only whole ones; one that was restored since is kept once. The others
    stay for a day, whatever the target's grace_period: a person may have chosen wrongly.
    """
    inside: dict[str, list[ListedObject]] = {}
    for each in there:
        inside.setdefault(keys.directory_of(slot.location, each.key) or "", []).append(each)
    kept: list[Kept] = []
    seen = {current.directory}
    for publication in history:
        directory = publication.directory
        if len(kept) == keep:
            break
        if directory is None or directory in seen or publication.lost:
            continue
        seen.add(directory)
        manifest = yield from readable(slot, publication.manifest)
        if manifest is not None and compare(manifest, tuple(inside.get(directory, ()))) == ((), ()):
            kept.append(Kept(publication, directory))
    used = {"", current.directory, *(each.backup for each in kept)}
    proofs = yield from _proofs(slot, listed, inside.keys() - used)
    return Remains(
        tuple(kept),
        tuple(Retired(prefix, proofs[prefix], GRACE_SECONDS) for prefix in sorted(proofs)),
        tuple(sorted(inside.keys() - used - proofs.keys())),
    )


def _proofs(slot: Slot, listed: tuple[ListedObject, ...], wanted: set[str]) -> Effects[dict[str, str]]:
    """Directory -> a manifest that lists its files. Each manifest that is read tells of 32 others."""
    newest_first = [each.key for each in reversed(listed) if keys.manifest_fence(slot.location, each.key) is not None]
    proofs: dict[str, str] = {}
    told: set[str] = set()
    for key in newest_first:
        if wanted == proofs.keys():
            break
        manifest = None if key in told else (yield from readable(slot, key))
        for each in () if manifest is None else (manifest.publication, *manifest.replaces):
            told.add(each.manifest)
            if each.directory in wanted and each.manifest in newest_first:
                proofs.setdefault(each.directory, each.manifest)
    return proofs
