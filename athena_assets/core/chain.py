"""The chain of manifests: it leads to the publications that a register has forgotten.

Each manifest names the publications before its own, as many as a register remembers. One that is gone is therefore no
gap: a newer one remembers nearly as much.
"""

from __future__ import annotations

from athena_assets import errors
from athena_assets.core.contents import read_manifest_at
from athena_assets.core.effects import Effects
from athena_assets.core.manifest import Manifest
from athena_assets.core.register import HISTORY, Publication
from athena_assets.core.slot import Slot


def find(slot: Slot, remembered: tuple[Publication, ...], request: str, *, above: int) -> Effects[Publication | None]:
    """The publication of a request, among those that the register remembers and then down the chain.

    Args:
        remembered: newest first.
        above: no publication with this fence or a lower one can be the request's; the search ends there. It reads one
            manifest for each 32 publications, and none if the register remembers enough.

    Raises:
        ChainBroken: what came before can't be told. Publishing now could publish the request a second time.
    """
    known = remembered
    while known:
        for each in known:
            if each.request == request:
                return each
        if len(remembered) <= HISTORY or known[-1].fence <= above + 1:
            return None
        known = yield from _before(slot, known, request)
    return None


def _before(slot: Slot, known: tuple[Publication, ...], request: str) -> Effects[tuple[Publication, ...]]:
    """The publications before the oldest of `known`; none if that was the slot's first."""
    for each in reversed(known):
        manifest = yield from readable(slot, each.manifest)
        if manifest is None:
            continue
        earlier = tuple(older for older in manifest.replaces if older.fence < known[-1].fence)
        if earlier or len(manifest.replaces) < HISTORY:
            return earlier
    raise errors.ChainBroken(
        slot,
        f"whether request {request} has published before fence {known[-1].fence} can't be told: "
        f"s3://{slot.bucket}/{known[-1].manifest} and the manifests after it are gone or unreadable.",
        not_done="No query was started and nothing was published: it could be the second time for this request.",
        next_step="Bring a manifest back (bucket versioning), or use a new request id if the result is wanted anew.",
    )


def readable(slot: Slot, key: str) -> Effects[Manifest | None]:
    """The manifest of this key; None if it is gone or damaged."""
    try:
        return (yield from read_manifest_at(slot, key))
    except errors.RegisterUnreadable:
        return None
