"""Every S3 key that this system writes. The control prefix is fixed: callers who derive other keys exclude nobody."""

from __future__ import annotations

import re
from urllib.parse import unquote

from athena_assets.core.location import Location

CONTROL_PREFIX = "_athena_assets/v1/"
_DIRECTORY = re.compile(r"\d{8}-\d{2}-[0-9a-f]{16}/")


def slot_prefix(location: Location) -> str:
    """Where the register, manifests and staging of one slot lie, in the location's own bucket."""
    return f"{CONTROL_PREFIX}{location.quoted}/"


def register_key(location: Location) -> str:
    return f"{slot_prefix(location)}register.json"


def inner_slots_prefix(location: Location) -> str:
    """How the control prefixes of all slots inside this location begin."""
    return f"{CONTROL_PREFIX}{location.quoted}%2F"


def location_of(bucket: str, folder: str) -> Location:
    """The location of a slot from its control prefix."""
    return Location(bucket, unquote(folder.removeprefix(CONTROL_PREFIX).removesuffix("/")) + "/")


def manifest_key(location: Location, fence: int, attempt: int) -> str:
    return f"{manifest_root(location)}{fence:08d}-{attempt:02d}.json"


def restore_manifest_key(location: Location, fence: int, nonce: str) -> str:
    """Of a restored publication: it is written before the fence is won, so it may not take an owner's key."""
    return f"{manifest_root(location)}{fence:08d}-restore-{nonce}.json"


def manifest_fence(location: Location, key: str) -> int | None:
    """The fence of a manifest's key; None for any other key."""
    return fence_below(manifest_root(location), key)


def is_restored(key: str) -> bool:
    """Whether a manifest is that of a restored publication."""
    return "-restore-" in key.rpartition("/")[2]


def any_fence(location: Location, key: str) -> int | None:
    """The fence of whatever an owner has written under the control prefix, or in a directory below the location.

    None for the register itself, and for any other key.
    """
    if directory_of(location, key) is not None:
        return fence_below(location.prefix, key)
    kind, _, rest = key.removeprefix(slot_prefix(location)).partition("/")
    return fence_below("", rest) if kind in ("manifests", "staging", "backup", "adopted") else None


def damaged_register_key(location: Location, etag: str) -> str:
    """Where a register that can't be read is kept when another takes its place."""
    return f"{slot_prefix(location)}damaged/{etag.strip(chr(34))}.json"


def manifest_root(location: Location) -> str:
    """Above every manifest of the slot."""
    return f"{slot_prefix(location)}manifests/"


def staging_prefix(location: Location, fence: int, attempt: int, nonce: str) -> str:
    """Private to one attempt of one owner. The nonce keeps it fresh even after a register was lost."""
    return f"{staging_root(location)}{fence:08d}-{attempt:02d}-{nonce}/"


def directory_prefix(location: Location, fence: int, attempt: int, nonce: str) -> str:
    """Pointer mode: where one attempt of one owner writes, below the location. The nonce makes it nobody else's."""
    return f"{location.prefix}{fence:08d}-{attempt:02d}-{nonce}/"


def directory_of(location: Location, key: str) -> str | None:
    """The directory of pointer mode that a key below the location lies in; None if it lies in none."""
    found = _DIRECTORY.match(key, len(location.prefix)) if key.startswith(location.prefix) else None
    return None if found is None else location.prefix + found.group()


def staging_root(location: Location) -> str:
    """Above every staging prefix of the slot."""
    return f"{slot_prefix(location)}staging/"


def fence_below(root: str, key: str) -> int | None:
    """The fence at the beginning of what follows `root` in a key that we made; None for any other key."""
    digits = key.removeprefix(root)[:8]
    return int(digits) if key.startswith(root) and len(digits) == 8 and digits.isdecimal() else None


def backup_prefix(location: Location, fence: int) -> str:
    """Where the files of the publication with this fence are kept once they are replaced."""
    return f"{backup_root(location)}{fence:08d}/"


def backup_root(location: Location) -> str:
    """Above every kept publication of the slot."""
    return f"{slot_prefix(location)}backup/"


def adopted_prefix(location: Location, fence: int) -> str:
    """Where the owner with this fence moves foreign objects that it was told to adopt."""
    return f"{slot_prefix(location)}adopted/{fence:08d}/"


def published_key(location: Location, fence: int, attempt: int, index: int, staged_path: str) -> str:
    """The destination of one staged file.

    Fence and attempt make the name unlike that of every other publication; directories of the staged path (Hive
    partitions) and the suffixes by which readers know a compression (`.gz`) are kept.
    """
    directory, _, name = staged_path.rpartition("/")
    suffix = name[name.index(".") :] if "." in name else ""
    return f"{location.prefix}{directory}{'/' if directory else ''}{published_name(fence, attempt, index)}{suffix}"


def published_name(fence: int, attempt: int, index: int) -> str:
    """How the name of a published file begins."""
    return f"{fence:08d}-{attempt:02d}-{index:05d}"
