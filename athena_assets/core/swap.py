"""The commit and the staged swap: the old files out, the new ones in, by a plan that was fixed before the commit.

Order matters. Old files are deleted before new ones are copied: a reader may miss rows for a moment but never sees them
twice. The staging sources are deleted last: a paused owner's late copy then has no source to bring an old file back.
"""

from __future__ import annotations

from athena_assets import errors
from athena_assets.core import keys, policy, register
from athena_assets.core.effects import (
    Absent,
    CopyObject,
    CountRows,
    DeleteObject,
    Done,
    DrawFraction,
    Effects,
    HeadObject,
    ListedObject,
    ListObjects,
    ObjectHead,
    QueryStatus,
    ReadClock,
    ReadObject,
    Refused,
    Report,
    ResolveUpstreams,
    Sleep,
    WriteObject,
    Written,
    perform,
)
from athena_assets.core.manifest import Manifest, RemovedFile, ownership, planned_files
from athena_assets.core.register import Attempt, Publication, UnreadableRegister, decode, encode
from athena_assets.core.request import Request
from athena_assets.core.target import UpstreamTable
from athena_assets.core.tenure import Tenure, answered

CONFIRMATIONS = 3  # rounds of copying before a destination that won't stay counts as lost


def ours_at_location(tenure: Tenure) -> Effects[tuple[RemovedFile, ...]]:
    """Everything under the location, proved to be ours: by the current manifest, else by the object's own metadata.

    Raises:
        LocationNotEmpty: if an object there is not ours. A zero-byte object at the prefix itself (a console's "folder")
            is left alone.
    """
    request = tenure.request
    listing = yield from answered(ListObjects(request.location.prefix), request)
    previous = yield from _previous_manifest(tenure)
    known = {} if previous is None else {file.key: (file.source_etag, file.size) for file in previous.files}
    ours: list[RemovedFile] = []
    for found in listing:
        if found.key == request.location.prefix and found.size == 0:
            continue
        if known.get(found.key) == (found.etag, found.size):
            ours.append(RemovedFile(found.key, found.etag))
            continue
        head = yield from answered(HeadObject(found.key), request)
        if isinstance(head, Absent):
            continue
        if not ownership(request.slot).items() <= head.metadata.items():
            raise _not_ours(request, found.key)
        ours.append(RemovedFile(found.key, head.etag))
    return tuple(ours)


def _previous_manifest(tenure: Tenure) -> Effects[Manifest | None]:
    publication = tenure.register.publication
    if publication is None:
        return None
    body = yield from answered(ReadObject(publication.manifest), tenure.request)
    return None if isinstance(body, Absent) else _decoded(tenure.request, publication.manifest, body.body)


def _decoded(request: Request, key: str, body: bytes) -> Manifest:
    try:
        return decode(body, Manifest)
    except UnreadableRegister as error:
        raise errors.RegisterUnreadable(
            request.slot,
            f"the manifest s3://{request.location.bucket}/{key} can't be read: {error}.",
            not_done="Nothing was moved or deleted.",
            next_step="Upgrade athena_assets if a newer version wrote it; else restore an earlier object version.",
        ) from error


def _not_ours(request: Request, key: str) -> errors.LocationNotEmpty:
    return errors.LocationNotEmpty(
        request.slot,
        f"s3://{request.location.bucket}/{key} was not written by this system.",
        not_done="Nothing there was touched and nothing was published.",
        next_step="Move foreign objects away, or give the target a location of its own.",
    )


def commit(tenure: Tenure, status: QueryStatus, staged: tuple[ListedObject, ...]) -> Effects[None]:
    """Writes the manifest once, then names it in the register: that write is the commit.

    Raises:
        LocationNotEmpty: foreign objects appeared while the query ran; nothing was committed.
        LeaseLost: another owner holds the slot, or has already committed this very query.
    """
    request, attempt = tenure.request, tenure.register.current
    fence, previous = tenure.register.fence, tenure.register.publication
    manifest = Manifest(
        slot=request.slot,
        generation=attempt.generation,
        request=attempt.request,
        query_id=attempt.accepted_query,
        fence=fence,
        attempt=attempt.number,
        staging=attempt.staging,
        files=planned_files(staged, request.location, attempt.staging, fence, attempt.number),
        removes=(yield from ours_at_location(tenure)),
        replaces=None if previous is None else previous.manifest,
    )
    key = keys.manifest_key(request.location, fence, attempt.number)
    rows = yield from perform(CountRows(attempt.accepted_query))
    reusable = yield from _still_reusable(attempt)
    yield from _write_once(tenure, key, manifest)
    publication = Publication(
        generation=attempt.generation,
        definition=attempt.definition,
        request=attempt.request,
        run=attempt.run,
        query_id=attempt.accepted_query,
        fence=fence,
        attempt=attempt.number,
        manifest=key,
        files=len(manifest.files),
        bytes=sum(file.size for file in manifest.files),
        rows=rows,
        at=tenure.date,
        reusable=reusable,
        statistics=status.statistics,
        workgroup=attempt.starts[0].workgroup,
    )
    yield from tenure.change(register.committed, publication=publication)
    yield from perform(Report("committed", f"{publication.files} files, {publication.bytes} bytes, manifest {key}"))


def _still_reusable(attempt: Attempt) -> Effects[bool]:
    """Known before the query and unchanged after it: only then do the upstream versions say what the query read."""
    if not attempt.reusable:
        return False
    before = tuple(each for each in attempt.upstreams if not each.given)
    if not before:
        return True
    tables = []
    for each in before:
        catalog, database, name = each.table.split(".", 2)
        tables.append(UpstreamTable(database, name, catalog))
    return (yield from perform(ResolveUpstreams(tuple(tables)))) == before


def _write_once(tenure: Tenure, key: str, manifest: Manifest) -> Effects[None]:
    """Creates the manifest. Lost reply or 412: read it back; it must list the same files of the same query."""
    request = tenure.request
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        yield from tenure.keep()
        answer = yield from perform(WriteObject(key, encode(manifest), None))
        if isinstance(answer, Written):
            return
        stored = yield from answered(ReadObject(key), request)
        if not isinstance(stored, Absent):
            if _decoded(request, key, stored.body) == manifest:
                return
            raise errors.RegisterUnreadable(
                request.slot,
                f"the manifest s3://{request.location.bucket}/{key} exists and is another's, under our own fence.",
                not_done="It was left as it is and nothing was published.",
                next_step="This happens after a register was deleted or restored: publish again for a new fence.",
            )
        yield from _again(tenure, f"writing {key}", answer, started, tries)
        tries += 1


def project(tenure: Tenure) -> Effects[bool]:
    """Rolls the committed publication forward by its manifest and releases the slot. False: it is lost."""
    request, publication = tenure.request, tenure.register.publication
    assert publication is not None
    body = yield from answered(ReadObject(publication.manifest), request)
    if isinstance(body, Absent):
        return (yield from _lost(tenure, f"its manifest {publication.manifest} is gone"))
    manifest = _decoded(request, publication.manifest, body.body)
    for removed in manifest.removes:
        yield from _remove(tenure, removed.key, removed.etag, f"old file {removed.key}")
    missing = tuple(range(len(manifest.files)))
    for _ in range(CONFIRMATIONS):
        for index in missing:
            if not (yield from _copy(tenure, manifest, index)):
                return (yield from _lost(tenure, f"{manifest.files[index].key} and its staged source are both gone"))
        present = {each.key: each.size for each in (yield from answered(ListObjects(request.location.prefix), request))}
        missing = tuple(i for i, file in enumerate(manifest.files) if present.get(file.key) != file.size)
        if not missing:
            break
    else:
        return (yield from _lost(tenure, f"{manifest.files[missing[0]].key} disappeared after it was copied"))
    for file in manifest.files:
        yield from _remove(tenure, file.source, file.source_etag, f"staged file {file.source}")
    yield from tenure.change(register.released)
    yield from perform(Report("published", f"{len(manifest.files)} files at {request.slot}"))
    return True


def _lost(tenure: Tenure, why: str) -> Effects[bool]:
    yield from tenure.change(register.marked_lost)
    yield from perform(Report("lost", why))
    return False


def _copy(tenure: Tenure, manifest: Manifest, index: int) -> Effects[bool]:
    """Copies one file; False if neither its source nor its destination is there.

    Whatever the answer, it is the destination that tells: it holds our copy, a stranger's object, or nothing yet.
    """
    request, file = tenure.request, manifest.files[index]
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        yield from tenure.keep()
        answer = yield from perform(CopyObject(file.source, file.source_etag, file.key, manifest.copy_metadata(index)))
        if isinstance(answer, Done):
            return True
        head = yield from answered(HeadObject(file.key), request)
        if isinstance(head, ObjectHead):
            if manifest.is_copy(index, head.size, head.metadata):
                return True
            raise _not_ours(request, file.key)
        if isinstance(answer, Absent):
            return False
        if isinstance(answer, Refused) and answer.status == 412:
            source = yield from answered(HeadObject(file.source), request)
            if isinstance(source, Absent) or source.etag != file.source_etag:
                return False
        yield from _again(tenure, f"copying to {file.key}", answer, started, tries)
        tries += 1


def _remove(tenure: Tenure, key: str, etag: str, what: str) -> Effects[None]:
    """Deletes exactly this version of an object; gone already is as good."""
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        yield from tenure.keep()
        answer = yield from perform(DeleteObject(key, etag))
        if isinstance(answer, Done):
            return
        if isinstance(answer, Refused) and answer.status == 412:
            head = yield from answered(HeadObject(key), tenure.request)
            if isinstance(head, Absent):
                return
            if head.etag != etag:
                raise _not_ours(tenure.request, key)
        yield from _again(tenure, f"deleting the {what}", answer, started, tries)
        tries += 1


def _again(tenure: Tenure, what: str, answer: object, started: float, tries: int) -> Effects[None]:
    """Waits before the next send of a write that was not applied for sure; gives up when no wait can help."""
    request = tenure.request
    if isinstance(answer, Refused) and answer.status in (400, 403):
        raise errors.AccessDenied(
            request.slot,
            f"S3 refused {what} (HTTP {answer.status} {answer.code}).",
            not_done="The slot keeps its state.",
            next_step="Mend the permission and publish again: the next caller goes on from here.",
        )
    if (yield from perform(ReadClock())) - started > request.patience:
        raise errors.OutcomeUnknown(
            request.slot,
            f"request {request.id}: {what} was not answered for {request.patience:.0f} s ({answer}).",
            not_done="The slot keeps its state.",
            next_step="Publish again when S3 answers: the next caller goes on from here.",
        )
    yield from perform(Sleep(policy.backoff(tries, (yield from perform(DrawFraction())))))
