"""The register: what S3 remembers about a slot, and every transition between its values.

A transition returns the register to write next. Each takes a fresh `write_id`: an ETag is a hash of the contents, so
two equal bodies would let a stale writer win.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from athena_assets.core.codec import SCHEMA, UnreadableRegister, decode
from athena_assets.core.generation import UpstreamVersion

HISTORY = 32  # publications before the current one that the register itself remembers
GRACE_SECONDS = 86_400.0


class State(StrEnum):
    FREE = "free"
    SUBMITTING = "submitting"
    RUNNING = "running"
    PUBLISHING = "publishing"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds the slot. `session` is fresh for every publishing call; `run` names the Dagster run, if any."""

    session: str
    host: str
    pid: int
    request: str
    run: str | None = None


@dataclass(frozen=True, slots=True)
class StartParameters:
    """The exact parameters of one StartQueryExecution, and the staging prefix that the statement writes to."""

    query: str
    staging: str
    catalog: str
    database: str
    workgroup: str | None
    output_location: str | None


class Mode(StrEnum):
    """How a result reaches its location."""

    STAGED = "staged"
    DIRECT = "direct"
    POINTER = "pointer"


@dataclass(frozen=True, slots=True)
class GlueTable:
    """An external table over a target's slots, at `root`; a partitioned one has `column`, and this slot's `value`."""

    database: str
    name: str
    root: str
    column: str | None
    value: str | None

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """How the owner of an attempt wants its result published; whoever adopts the attempt does it the same way.

    Args:
        mode: `staged`, `direct` or `pointer`.
        keep_previous: how many replaced results are kept under the control prefix.
        adopt_existing: foreign objects at first use are moved to the backup instead of refused.
        clean_after_failure: `direct` only: what a failed query left at the location is deleted.
        empty_fails: a result without rows is a failure, not an empty publication.
        glue: the external table over the location that is kept in step; None: no table.
        grace_period: `pointer` only: seconds for which a replaced result that is not kept stays readable.
    """

    mode: Mode = Mode.STAGED
    keep_previous: int = 1
    adopt_existing: bool = False
    clean_after_failure: bool = False
    empty_fails: bool = False
    glue: GlueTable | None = None
    grace_period: float = GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One object as it stood when somebody looked: exactly this is deleted, or nothing."""

    key: str
    etag: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One submission of the query.

    `starts` holds every set of parameters recorded for the token (a taker adds its own); `accepted` is the index of
    the set that Athena took. `reusable` is what was known before the query ran.
    """

    number: int
    generation: str
    definition: str
    request: str
    run: str | None
    token: str
    starts: tuple[StartParameters, ...]
    upstreams: tuple[UpstreamVersion, ...]
    reusable: bool
    settings: PublishSettings
    query_id: str | None = None
    accepted: int | None = None

    @property
    def accepted_query(self) -> str:
        assert self.query_id is not None
        return self.query_id

    @property
    def staging(self) -> str:
        """The staging prefix of the query that Athena accepted."""
        assert self.accepted is not None
        return self.starts[self.accepted].staging


@dataclass(frozen=True, slots=True)
class Statistics:
    """What Athena measured; None where it did not tell. Times in milliseconds."""

    bytes_scanned: int | None = None
    queue_ms: int | None = None
    engine_ms: int | None = None
    total_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """One published result. The keys of its files are in the manifest. `at` is S3's clock, Unix seconds.

    `directory` is the key prefix that its readers read in pointer mode; None: they read the location itself.
    """

    generation: str
    definition: str
    request: str
    run: str | None
    query_id: str
    fence: int
    attempt: int
    manifest: str
    files: int
    bytes: int
    rows: int | None
    at: float
    reusable: bool
    statistics: Statistics
    workgroup: str | None = None
    lost: bool = False
    restored: int | None = None  # the fence of the publication that this one brought back
    directory: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """A replaced publication whose files are kept under the key prefix `backup` (pointer mode: its directory)."""

    publication: Publication
    backup: str


@dataclass(frozen=True, slots=True)
class Retired:
    """Pointer mode: a directory that no reader is sent to any more. It never comes back into use.

    Its files may go `grace` seconds after `since` (S3's clock, Unix seconds). None: since the register was last written
    before it was free, which its Last-Modified tells; no owner can know the moment of its own write beforehand.
    `proof` is the manifest that lists them; None: a directory of an attempt that gave no publication.
    """

    prefix: str
    proof: str | None
    grace: float
    since: float | None = None


class FailureKind(StrEnum):
    """Why a query ended without a result; what follows from it stands in policy.py."""

    USER_ERROR = "user_error"
    THROTTLED = "throttled"
    INTERNAL = "internal"
    RETRYABLE = "retryable"
    SCAN_LIMIT = "scan_limit"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DESTINATION_EXISTS = "destination_exists"
    TOO_MANY_PARTITIONS = "too_many_partitions"
    RESULT_INVALID = "result_invalid"
    EMPTY_RESULT = "empty_result"
    DIRTY_LOCATION = "dirty_location"
    MIXED_LOCATION = "mixed_location"
    MIXED_DIRECTORY = "mixed_directory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Failure:
    """The last final failure; `reason` is Athena's own words."""

    generation: str
    request: str
    fence: int
    query_id: str | None
    kind: FailureKind
    reason: str


@dataclass(frozen=True, slots=True)
class Register:
    write_id: str
    fence: int
    state: State
    lease: float
    owner: Owner | None = None
    attempt: Attempt | None = None
    earlier_attempts: tuple[Attempt, ...] = ()
    publication: Publication | None = None
    history: tuple[Publication, ...] = ()
    kept: tuple[Kept, ...] = ()  # newest first; what is over the limit goes when the swap is complete
    cleanup: tuple[ObjectVersion, ...] = ()  # direct mode: what a failed query left, about to be deleted
    retired: tuple[Retired, ...] = ()  # pointer mode: directories to be collected
    failure: Failure | None = None
    schema: int = SCHEMA

    @property
    def remembered(self) -> tuple[Publication, ...]:
        """The publications that the register knows, newest first; older ones are down the chain of manifests."""
        return (() if self.publication is None else (self.publication,)) + self.history

    @property
    def current(self) -> Attempt:
        """The attempt, in the states that have one."""
        assert self.attempt is not None
        return self.attempt

    @property
    def directories(self) -> dict[str, str | None]:
        """Pointer mode: every directory that is in use, with the manifest that lists its files, if there is one yet."""
        attempts = (*self.earlier_attempts, *(() if self.attempt is None else (self.attempt,)))
        pointing = (each for each in attempts if each.settings.mode is Mode.POINTER)
        named: dict[str, str | None] = {start.staging: None for each in pointing for start in each.starts}
        published = (
            *(each.publication for each in self.kept),
            *(() if self.publication is None else (self.publication,)),
        )
        return named | {each.directory: each.manifest for each in published if each.directory is not None}


# --- transitions -----------------------------------------------------------------------------------------------------


def acquired(
    before: Register | None,
    write_id: str,
    *,
    owner: Owner,
    lease: float,
    attempt: Attempt,
    freed_at: float | None = None,
) -> Register:
    """One write takes a free slot and records the attempt before its query is started.

    `freed_at`: when `before` was written, by S3's clock.
    """
    base = before or Register(write_id=write_id, fence=0, state=State.FREE, lease=lease)
    assert base.state is State.FREE
    return replace(
        base,
        write_id=write_id,
        fence=base.fence + 1,
        state=State.SUBMITTING,
        lease=lease,
        owner=owner,
        attempt=attempt,
        retired=dated(base.retired, freed_at),
    )


def taken_over(
    before: Register, write_id: str, *, owner: Owner, lease: float, start: StartParameters | None
) -> Register:
    """The fence rises and the attempt stays; while submitting, the taker's parameters are recorded before it probes."""
    assert before.state in (State.SUBMITTING, State.RUNNING, State.PUBLISHING)
    attempt = before.attempt
    if start is not None:
        assert attempt is not None and before.state is State.SUBMITTING
        attempt = replace(attempt, starts=(*attempt.starts, start))
    return replace(before, write_id=write_id, fence=before.fence + 1, owner=owner, lease=lease, attempt=attempt)


def renewed(before: Register, write_id: str) -> Register:
    assert before.owner is not None
    return replace(before, write_id=write_id)


def running(before: Register, write_id: str, *, query_id: str, accepted: int) -> Register:
    """Athena accepted the attempt's query."""
    assert before.state is State.SUBMITTING and before.attempt is not None
    attempt = replace(before.attempt, query_id=query_id, accepted=accepted)
    return replace(before, write_id=write_id, state=State.RUNNING, attempt=attempt)


def attempted_again(before: Register, write_id: str, *, attempt: Attempt) -> Register:
    """The old attempt gave no result; the new one has its own token and staging."""
    assert before.state in (State.SUBMITTING, State.RUNNING) and before.attempt is not None
    assert attempt.number > before.attempt.number and attempt.token != before.attempt.token
    earlier = (*before.earlier_attempts, before.attempt)
    return replace(before, write_id=write_id, state=State.SUBMITTING, attempt=attempt, earlier_attempts=earlier)


def committed(before: Register, write_id: str, *, publication: Publication, backup: str | None) -> Register:
    """The linearization point of a publication. `backup`: where the swap keeps the files that it replaces, if so."""
    assert before.state is State.RUNNING and publication.fence == before.fence
    return replace(_with_publication(before, publication, backup), write_id=write_id, state=State.PUBLISHING)


def committed_in_place(
    before: Register, write_id: str, *, publication: Publication, backup: str | None = None
) -> Register:
    """The commit where nothing is left to be done (direct; pointer without Glue): the slot is free at once."""
    assert before.state is State.RUNNING and publication.fence == before.fence
    settings = before.current.settings
    after = _with_publication(before, publication, backup)
    kept = after.kept[: settings.keep_previous] if settings.mode is Mode.POINTER else after.kept
    return released(after, write_id, kept=kept, grace=settings.grace_period)


def restored(
    before: Register,
    write_id: str,
    *,
    owner: Owner,
    lease: float,
    publication: Publication,
    backup: str | None,
    freed_at: float | None = None,
) -> Register:
    """Acquires a free slot and commits a kept publication in one write; its swap follows."""
    assert before.state is State.FREE and publication.fence == before.fence + 1
    changed = _with_publication(before, publication, backup)
    kept = tuple(each for each in changed.kept if each.publication.fence != publication.restored)
    return replace(
        changed,
        write_id=write_id,
        fence=publication.fence,
        state=State.PUBLISHING,
        owner=owner,
        lease=lease,
        kept=kept,
        retired=dated(changed.retired, freed_at),
    )


def _with_publication(before: Register, publication: Publication, backup: str | None) -> Register:
    previous = before.publication
    assert previous is None or publication.fence > previous.fence
    kept = before.kept if previous is None or backup is None else (Kept(previous, backup), *before.kept)
    history = before.remembered[:HISTORY]
    after = replace(before, publication=publication, history=history, kept=kept, failure=None)
    return _retiring(before, after, GRACE_SECONDS)


def _retiring(before: Register, after: Register, grace: float) -> Register:
    """No directory is forgotten: what `after` does not use any more is to be collected."""
    used = after.directories
    gone = ((prefix, manifest) for prefix, manifest in before.directories.items() if prefix not in used)
    retired = tuple(Retired(prefix, manifest, 0.0 if manifest is None else grace) for prefix, manifest in gone)
    return replace(after, retired=after.retired + retired)


def dated(retired: tuple[Retired, ...], since: float | None) -> tuple[Retired, ...]:
    """The same, where nothing says yet since when."""
    return tuple(replace(each, since=since) if each.since is None else each for each in retired)


def swept(before: Register, write_id: str, *, gone: frozenset[str], freed_at: float) -> Register:
    """The directories `gone` are collected; the slot is and stays free."""
    assert before.state is State.FREE
    left = tuple(each for each in dated(before.retired, freed_at) if each.prefix not in gone)
    return replace(before, write_id=write_id, retired=left)


def rebuilt(
    write_id: str,
    *,
    fence: int,
    owner: Owner,
    lease: float,
    publication: Publication | None,
    history: tuple[Publication, ...],
    kept: tuple[Kept, ...],
    retired: tuple[Retired, ...],
) -> Register:
    """In the place of a lost register: its publication is rolled forward before anybody is answered with it."""
    found = Register(
        write_id=write_id,
        fence=fence,
        state=State.FREE,
        lease=lease,
        publication=publication,
        history=history,
        kept=kept,
        retired=retired,
    )
    if publication is None or publication.lost:
        return found
    return replace(found, state=State.PUBLISHING, owner=owner)


def cleaning(before: Register, write_id: str, *, cleanup: tuple[ObjectVersion, ...]) -> Register:
    """Records exactly what is about to be deleted after a failed query (nothing: it has been)."""
    assert before.state is State.RUNNING
    return replace(before, write_id=write_id, cleanup=cleanup)


def blocked(before: Register, write_id: str, *, failure: Failure) -> Register:
    """Nobody goes on until a human has looked at the location."""
    return replace(released(before, write_id, failure=failure), state=State.BLOCKED)


def repaired(before: Register, write_id: str) -> Register:
    """A human has emptied the location of a blocked slot."""
    assert before.state is State.BLOCKED
    return replace(before, write_id=write_id, state=State.FREE, failure=None)


def released(
    before: Register,
    write_id: str,
    *,
    failure: Failure | None = None,
    kept: tuple[Kept, ...] | None = None,
    grace: float = GRACE_SECONDS,
) -> Register:
    """The slot is free; a failure is recorded for those who wait for this generation.

    `grace`: seconds for which the directories of what is no longer kept stay.
    """
    after = replace(
        before,
        write_id=write_id,
        state=State.FREE,
        owner=None,
        attempt=None,
        earlier_attempts=(),
        kept=before.kept if kept is None else kept,
        cleanup=(),
        failure=failure or before.failure,
    )
    return _retiring(before, after, grace)


def marked_lost(before: Register, write_id: str) -> Register:
    """A committed file is nowhere: nobody is answered with this publication, and the slot is free."""
    assert before.publication is not None
    return released(replace(before, publication=replace(before.publication, lost=True)), write_id)


# --- codec -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(256)
def decode_register(body: bytes) -> Register:
    """Raises UnreadableRegister for anything that is not exactly what this version writes.

    Remembered, because who waits reads the same bytes again and again.
    """
    register = decode(body, Register)
    for broken, why in _contradictions(register):
        if broken:
            raise UnreadableRegister(why)
    return register


def _contradictions(found: Register) -> Iterator[tuple[bool, str]]:
    """What no transition writes: (whether it is so, what it is)."""
    held = found.state in (State.SUBMITTING, State.RUNNING, State.PUBLISHING)
    attempt, publication = found.attempt, found.publication
    yield found.fence < 1, f"the fence is {found.fence}"
    yield not 0 < found.lease < math.inf, f"the lease is {found.lease}"
    yield held != (found.owner is not None), f"state {found.state} does not go with owner {found.owner}"
    yield found.state is State.BLOCKED and found.failure is None, "state blocked without a failure"
    needs_attempt = found.state in (State.SUBMITTING, State.RUNNING)
    yield needs_attempt and (attempt is None or not attempt.starts), f"state {found.state} without an attempt"
    yield not held and attempt is not None, f"state {found.state} with an attempt"
    if attempt is not None and found.state is State.RUNNING:
        known = attempt.query_id is not None and attempt.accepted is not None
        yield not known or not 0 <= (attempt.accepted or 0) < len(attempt.starts), "state running without its query"
    yield found.state is State.PUBLISHING and (publication is None or publication.lost), "nothing to publish"
    yield publication is not None and publication.fence > found.fence, "a publication of a later fence"
    doomed = found.directories.keys() & {each.prefix for each in found.retired}
    yield bool(doomed), f"{', '.join(sorted(doomed))} in use and to be deleted"
