"""Every S3 key that this system writes. The control prefix is fixed: callers who derive other keys exclude nobody."""

from __future__ import annotations

from athena_assets.core.location import Location

CONTROL_PREFIX = "_athena_assets/v1/"


def slot_prefix(location: Location) -> str:
    """Where the register, manifests and staging of one slot lie, in the location's own bucket."""
    return f"{CONTROL_PREFIX}{location.quoted}/"


def register_key(location: Location) -> str:
    return f"{slot_prefix(location)}register.json"


def manifest_key(location: Location, fence: int, attempt: int) -> str:
    return f"{slot_prefix(location)}manifests/{fence:08d}-{attempt:02d}.json"


def staging_prefix(location: Location, fence: int, attempt: int, nonce: str) -> str:
    """Private to one attempt of one owner. The nonce keeps it fresh even after a register was lost."""
    return f"{slot_prefix(location)}staging/{fence:08d}-{attempt:02d}-{nonce}/"


def published_key(location: Location, fence: int, attempt: int, index: int, staged_path: str) -> str:
    """The destination of one staged file.

    Fence and attempt make the name unlike that of every other publication; directories of the staged path (Hive
    partitions) and the suffixes by which readers know a compression (`.gz`) are kept.
    """
    directory, _, name = staged_path.rpartition("/")
    suffix = name[name.index(".") :] if "." in name else ""
    return f"{location.prefix}{directory}{'/' if directory else ''}{fence:08d}-{attempt:02d}-{index:05d}{suffix}"
