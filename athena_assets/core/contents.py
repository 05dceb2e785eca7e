"""What lies at a location, and whose it is."""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets import errors
from athena_assets.core.codec import UnreadableRegister, decode
from athena_assets.core.effects import Absent, Effects, HeadObject, ListedObject, ListObjects, ReadObject
from athena_assets.core.manifest import Manifest, owner_of
from athena_assets.core.register import Publication
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import answered


@dataclass(frozen=True, slots=True)
class Contents:
    """The objects under a location. A zero-byte object at the prefix itself (a console's "folder") is none of them.

    Args:
        current: files of the current publication, as its manifest lists them.
        stray: other objects that this system wrote, such as the late copy of a paused owner.
        neighbours: what this system wrote for another slot, whose location overlaps this one.
        foreign: everything else.
    """

    current: tuple[ListedObject, ...]
    stray: tuple[ListedObject, ...]
    neighbours: tuple[ListedObject, ...]
    foreign: tuple[ListedObject, ...]


def survey(slot: Slot, publication: Publication | None) -> Effects[Contents]:
    """Lists the location and tells whose each object is: by the manifest (key, ETag, size), else by its metadata."""
    listing = yield from answered(ListObjects(slot.location.prefix), slot)
    known = {}
    if publication is not None:
        manifest = yield from read_manifest(slot, publication)
        if manifest is not None:
            known = {file.key: (file.source_etag, file.size) for file in manifest.files}
    current: list[ListedObject] = []
    stray: list[ListedObject] = []
    neighbours: list[ListedObject] = []
    foreign: list[ListedObject] = []
    for found in listing:
        if found.key == slot.location.prefix and found.size == 0:
            continue
        if known.get(found.key) == (found.etag, found.size):
            current.append(found)
            continue
        head = yield from answered(HeadObject(found.key), slot)
        if isinstance(head, Absent):
            continue
        seen = ListedObject(found.key, head.size, head.etag)
        owner = owner_of(head.metadata, found.key)
        if owner is None:
            foreign.append(seen)
        elif owner != str(slot):
            neighbours.append(seen)
        elif found.key in known:
            current.append(seen)  # its ETag is not the source's: encrypted with KMS, or copied in parts
        else:
            stray.append(seen)
    return Contents(tuple(current), tuple(stray), tuple(neighbours), tuple(foreign))


def read_manifest(slot: Slot, publication: Publication) -> Effects[Manifest | None]:
    """The manifest of a publication; None if it is gone."""
    return (yield from read_manifest_at(slot, publication.manifest))


def read_manifest_at(slot: Slot, key: str) -> Effects[Manifest | None]:
    body = yield from answered(ReadObject(key), slot)
    return None if isinstance(body, Absent) else decode_manifest(slot, key, body.body)


def decode_manifest(slot: Slot, key: str, body: bytes) -> Manifest:
    try:
        return decode(body, Manifest)
    except UnreadableRegister as error:
        raise errors.RegisterUnreadable(
            slot,
            f"the manifest s3://{slot.bucket}/{key} can't be read: {error}.",
            not_done="Nothing was moved or deleted.",
            next_step="Upgrade athena_assets if a newer version wrote it; else restore an earlier object version.",
        ) from error


def not_ours(slot: Slot, key: str) -> errors.LocationNotEmpty:
    """The error for an object that may not be touched."""
    return errors.LocationNotEmpty(
        slot,
        f"s3://{slot.bucket}/{key} was not written by this system.",
        not_done="Nothing there was touched and nothing was published.",
        next_step="Move foreign objects away, give the target a location of its own, or, at its first use, let "
        "adopt_existing move them to the backup.",
    )
