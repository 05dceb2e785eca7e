"""Pointer mode's garbage: directories that no reader is sent to any more.

The register says which they are and since when. Of a replaced result exactly the files of its manifest are deleted,
each as the manifest has it. Of an attempt that gave no result there is no such list; its directory's name is known to
its query alone, and what was written there before the attempt was given up is deleted as listed. Any other object in
these directories is a stranger's, and stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from athena_assets.core import policy, register
from athena_assets.core.contents import read_manifest_at
from athena_assets.core.effects import (
    AtOnce,
    DeleteObject,
    Done,
    DrawId,
    Effects,
    ListedObject,
    ListObjects,
    Pointer,
    ReadPointer,
    Report,
    perform,
)
from athena_assets.core.register import GlueTable, Retired, State, dated
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import Seen, Tenure, answered, write
from athena_assets.errors import AthenaAssetsError


@dataclass(frozen=True, slots=True)
class Doomed:
    """A retired directory whose grace period is over, and what may be deleted there, as listed."""

    prefix: str
    objects: tuple[ListedObject, ...]


def doomed(slot: Slot, seen: Seen, grace: float | None = None) -> Effects[tuple[Doomed, ...]]:
    """The directories of a free slot that may go. `grace`: seconds instead of what was recorded with each.

    Nobody is answered with a retired directory, so that no owner who comes meanwhile can need it. Glue is read before a
    directory is listed: one that a table names stays, whoever pointed it there.
    """
    found = seen.register
    if found is None or found.state is not State.FREE or not found.retired:
        return ()
    tables: set[GlueTable] = set()
    if found.publication is not None:
        current = yield from read_manifest_at(slot, found.publication.manifest)
        tables |= set() if current is None or current.settings.glue is None else {current.settings.glue}
    result: list[Doomed] = []
    for each in dated(found.retired, seen.modified):
        wait = each.grace if grace is None or each.proof is None else grace
        if each.since is None or seen.date - each.since < wait:
            continue
        manifest = None if each.proof is None else (yield from read_manifest_at(slot, each.proof))
        if manifest is None and each.proof is not None:
            continue  # nothing proves any more what is ours there
        # The table that it was published with, too: the target may have another by now, and readers not.
        former = None if manifest is None else manifest.settings.glue
        if (yield from _named_by(slot, tables | (set() if former is None else {former}), each)):
            continue
        listing = yield from answered(ListObjects(each.prefix), slot)
        if manifest is None:
            # A listing's times are in whole seconds, as `since` is.
            ours = tuple(one for one in listing if math.floor(one.modified) <= each.since)
        else:
            named = {file.key: (file.source_etag, file.size) for file in manifest.files}
            ours = tuple(one for one in listing if named.get(one.key) == (one.etag, one.size))
        result.append(Doomed(each.prefix, ours))
    return tuple(result)


def _named_by(slot: Slot, tables: set[GlueTable], directory: Retired) -> Effects[bool]:
    for table in sorted(tables, key=str):
        found = yield from answered(ReadPointer(table), slot)
        place = found.location if isinstance(found, Pointer) else None
        if place is not None and f"{place.rstrip('/')}/".startswith(f"s3://{slot.bucket}/{directory.prefix}"):
            return True
    return False


def sweep(slot: Slot, seen: Seen, directories: tuple[Doomed, ...]) -> Effects[None]:
    """Deletes, one try each, and takes what is empty of ours out of the register unless somebody has written it since.

    Lost reply to the last write: the directories are still in the register, and the next sweep finds them empty.
    """
    gone: set[str] = set()
    for directory in directories:
        if (yield from delete_listed(directory.objects)):
            gone.add(directory.prefix)
    if gone and seen.register is not None:
        write_id = yield from perform(DrawId())
        after = register.swept(seen.register, write_id, gone=frozenset(gone), freed_at=seen.modified)
        yield from write(slot, seen, after)


def delete_listed(objects: tuple[ListedObject, ...]) -> Effects[bool]:
    """Deletes side by side, one try each, and only what is still as listed. Whether all of it is gone for sure."""
    complete = True
    for batch in policy.batches(objects):
        answers = yield from perform(AtOnce(tuple(DeleteObject(each.key, each.etag) for each in batch)))
        for each, answer in zip(batch, answers, strict=True):
            complete = complete and isinstance(answer, Done)
            yield from perform(Report("deleted" if isinstance(answer, Done) else "not deleted", each.key))
    return complete


def sweep_own(tenure: Tenure) -> Effects[None]:
    """An owner's own collection once its slot is free: whatever goes wrong, its result is published."""
    hurried = replace(tenure.slot, patience=0.0)
    try:
        yield from sweep(hurried, tenure.seen, (yield from doomed(hurried, tenure.seen)))
    except AthenaAssetsError as error:
        yield from perform(Report("garbage is left", str(error)))
