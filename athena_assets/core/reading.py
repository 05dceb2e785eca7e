"""For readers without Glue: what is published, as one whole list of files."""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets import errors
from athena_assets.core.answers import describe
from athena_assets.core.contents import read_manifest
from athena_assets.core.effects import Effects
from athena_assets.core.first_use import check_not_lost
from athena_assets.core.register import State
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import look


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One file of a result; `size` in bytes."""

    uri: str
    size: int


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """The files of one publication, and which one it is.

    Args:
        files: all of them, in key order; empty for a result without rows.
        query_id: the Athena query that wrote them.
        fence: higher than that of every earlier publication of the slot.
        generation: the fingerprint of query, format, location and upstream versions.
    """

    files: tuple[PublishedFile, ...]
    query_id: str
    fence: int
    generation: str


def read_published(slot: Slot) -> Effects[PublishedFiles]:
    """The current publication's files.

    Raises:
        NothingPublished: nothing ever was, as far as the register and the manifests say.
        RegisterVanished: something was, and the register is lost.
        PublicationLost: its files, or its manifest, are gone.
        SlotBusy: another result is being copied to the location at this moment (mode `staged`).
    """
    found = (yield from look(slot)).register
    while found is None or (publication := found.publication) is None:
        try:
            yield from check_not_lost(slot, 1 if found is None else found.fence + 1)
        except errors.RegisterVanished:
            # Or the register has come, or gone on, since we looked.
            before, found = found, (yield from look(slot)).register
            if found == before:
                raise
            continue
        raise errors.NothingPublished(
            slot,
            "nothing is published here yet.",
            not_done="There is nothing to read.",
            next_step="Publish the target, or check the location.",
        )
    manifest = None if publication.lost else (yield from read_manifest(slot, publication))
    if manifest is None:
        raise errors.PublicationLost(
            slot,
            f"files, or the manifest, of query {publication.query_id} are gone.",
            not_done="There is no whole result to read.",
            next_step="Publish again: the query runs anew.",
        )
    if found.state is State.PUBLISHING and any(file.source != file.key for file in manifest.files):
        raise errors.SlotBusy(
            slot,
            f"its files are being replaced by {describe(found)}.",
            owner=describe(found),
            query_id=publication.query_id,
            next_step="Read again when the slot is free. In mode 'pointer' there is always a whole result.",
        )
    root = f"s3://{slot.bucket}/"
    return PublishedFiles(
        files=tuple(PublishedFile(root + file.key, file.size) for file in manifest.files),
        query_id=publication.query_id,
        fence=publication.fence,
        generation=publication.generation,
    )
