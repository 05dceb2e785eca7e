"""Everything that the protocol can ask of the world, as values, and every answer that it understands.

The protocol is a set of generators: they yield effects and are sent the answers. A driver performs them (boto3, a
simulator, the explorer). It makes exactly one HTTP attempt for each conditional write, start, copy and delete, and
answers `Unanswered` whenever it can't know whether AWS applied the call; the protocol resolves it. Conditions that no
wait can cure (no permission) are raised into the generator as typed errors instead.

Keys are S3 keys in the bucket of the slot. Times are seconds; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.register import FailureKind, GlueTable, StartParameters, Statistics
from athena_assets.core.target import UpstreamTable

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effect(Generic[R]):
    """Asks the world for an `R`."""


Effects = Generator[Effect[Any], Any, T]
"""A piece of the protocol that ends in a `T`."""


def perform(effect: Effect[R]) -> Effects[R]:
    """Yields one effect; `answer = yield from perform(effect)` has the answer's type."""
    answer: R = yield effect
    return answer


# --- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer, or one that says nothing (5xx, throttled, timed out). The call may have been applied, now or later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Question(Effect[R | Unanswered], Generic[R]):
    """An effect that changes nothing: it may be performed again until it is answered."""


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A definite answer that the call was not applied: HTTP status and AWS error code."""

    status: int
    code: str

    @property
    def final(self) -> bool:
        """True unless it only says what stood there: missing, conflict in flight, or another version."""
        return self.status not in (404, 409, 412)


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """An object's contents. `date` is S3's clock (Unix seconds), `age` is S3's `Date` minus its `Last-Modified`."""

    body: bytes
    etag: str
    date: float
    age: float


@dataclass(frozen=True, slots=True)
class Written:
    """The write was applied. `date` is S3's clock, Unix seconds."""

    etag: str
    date: float


@dataclass(frozen=True, slots=True)
class ListedObject:
    """`modified` is S3's clock, Unix seconds."""

    key: str
    size: int
    etag: str
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class ObjectHead:
    size: int
    etag: str
    metadata: dict[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Done:
    """The copy or delete was applied (or, for a delete, there was nothing left to do)."""


@dataclass(frozen=True, slots=True)
class QueryStarted:
    query_id: str


@dataclass(frozen=True, slots=True)
class TokenMismatch:
    """The token belongs to a query that was started with other parameters."""


@dataclass(frozen=True, slots=True)
class StartThrottled:
    """Definitely not started: too many queries or calls."""

    message: str


@dataclass(frozen=True, slots=True)
class StartRejected:
    """Definitely not started: Athena refuses the statement or its settings."""

    message: str


class QueryState(StrEnum):
    ACTIVE = "active"  # queued or running; Athena may go back from running to queued
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """What Athena says about a query. `data_manifest` is an S3 URI, None where Athena gives none."""

    state: QueryState
    kind: FailureKind | None = None
    reason: str = ""
    data_manifest: str | None = None
    statistics: Statistics = field(default_factory=Statistics)


@dataclass(frozen=True, slots=True)
class QueryMissing:
    """Athena does not know the query id (its history keeps 45 days)."""


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query that had not ended when it was looked at. `submitted`: seconds of the epoch, by Athena's clock.

    `output_location`: of its result, below what its start named; "" if Athena does not tell.
    """

    query_id: str
    workgroup: str
    text: str
    catalog: str
    database: str
    output_location: str
    state: str
    submitted: float


@dataclass(frozen=True, slots=True)
class QueriesFound:
    """The queued and running queries of a workgroup, newest first.

    `cut_short`: why its history was not looked through far enough; None: it was.
    """

    queries: tuple[RunningQuery, ...]
    cut_short: str | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where Glue sends the readers of a table, or of one of its partitions.

    Args:
        root: the table's own location.
        location: where the readers are sent; None: the table has no such partition.
        version: Glue's version of the table; None for a partition, which has none.
        slot, fence: who sent them there, from the parameters; None: somebody else.
    """

    root: str
    location: str | None
    version: str | None = None
    slot: str | None = None
    fence: int | None = None


# --- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadObject(Question[ObjectRead | Absent]):
    key: str


@dataclass(frozen=True, slots=True)
class ReadUri(Question[bytes | Absent]):
    """Reads an object outside the slot: Athena's data manifest in the query result location."""

    uri: str


@dataclass(frozen=True, slots=True)
class WriteObject(Effect[Written | Refused | Unanswered]):
    """PutObject with `If-Match: if_match`, or with `If-None-Match: *` where it is None. One HTTP attempt."""

    key: str
    body: bytes
    if_match: str | None


@dataclass(frozen=True, slots=True)
class ListObjects(Question[tuple[ListedObject, ...]]):
    """Every object whose key begins with `prefix`, in key order, over all pages."""

    prefix: str


@dataclass(frozen=True, slots=True)
class ListFolders(Question[tuple[str, ...]]):
    """What begins with `prefix` and ends with the first slash after it, each once, over all pages."""

    prefix: str


@dataclass(frozen=True, slots=True)
class HeadObject(Question[ObjectHead | Absent]):
    key: str


@dataclass(frozen=True, slots=True)
class CopyObject(Effect[Done | Absent | Refused | Unanswered]):
    """Server-side copy onto a key that must not exist, of a source that must still have `source_etag`.

    `metadata` replaces the source's; None keeps it. `Absent`: the source is gone. Lost reply: the copy may be applied
    now or later; look at the destination. A source of more than 5 GB (`size`) is copied in parts.
    """

    source: str
    source_etag: str
    size: int
    destination: str
    metadata: dict[str, str] | None = field(hash=False)


@dataclass(frozen=True, slots=True)
class DeleteObject(Effect[Done | Refused | Unanswered]):
    """Deletes the object if it still has `etag`. Lost reply: sending it again is harmless."""

    key: str
    etag: str


@dataclass(frozen=True, slots=True)
class AbortUploads(Effect[Done | Refused | Unanswered]):
    """Ends every unfinished copy in parts onto the destinations of these copies: whoever made it is dead or late.

    Such a copy can be completed without its source. Lost reply: sending it again is harmless.
    """

    copies: tuple[CopyObject, ...]


@dataclass(frozen=True, slots=True)
class AtOnce(Effect[tuple[Any, ...]]):
    """Performs copies or deletes side by side, each once, in any order; the answers stand in the effects' order."""

    effects: tuple[CopyObject | DeleteObject, ...]


@dataclass(frozen=True, slots=True)
class StartQuery(Effect[QueryStarted | TokenMismatch | StartThrottled | StartRejected | Unanswered]):
    """StartQueryExecution with exactly these parameters. Lost reply: sending the same again gives the same query."""

    parameters: StartParameters
    token: str


@dataclass(frozen=True, slots=True)
class PollQuery(Question[QueryStatus | QueryMissing]):
    query_id: str


@dataclass(frozen=True, slots=True)
class StopQuery(Effect[Done | Unanswered]):
    """Asks Athena to stop the query. `Done` does not mean that it is cancelled: poll on."""

    query_id: str


@dataclass(frozen=True, slots=True)
class LookForQueries(Question[QueriesFound]):
    """Lists what runs in a workgroup. It takes about `seconds` at most, then tells what was found so far.

    The answer may be that of another caller's look, if that one began after this was asked.
    """

    workgroup: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CountRows(Effect[int | None]):
    """The rows that the query wrote, None if Athena does not tell (its runtime statistics come late or never)."""

    query_id: str


@dataclass(frozen=True, slots=True)
class ResolveUpstreams(Effect[tuple[UpstreamVersion, ...]]):
    """The present versions of the tables, in their order; a version that can't be told is None."""

    tables: tuple[UpstreamTable, ...]


@dataclass(frozen=True, slots=True)
class KeepGlueTable(Effect[Done | Unanswered]):
    """Creates the external table if it is missing and adds the partition at `location`. Repeating it is harmless.

    `sample` is the key of a published file from which a new table's columns are read; None if the result is empty.
    """

    table: GlueTable
    location: str
    sample: str | None


@dataclass(frozen=True, slots=True)
class ReadPointer(Question[Pointer | Absent]):
    """Reads where a Glue table, or its partition for `table.value`, points. Absent: there is no such table."""

    table: GlueTable


@dataclass(frozen=True, slots=True)
class MovePointer(Effect[Done | Refused | Unanswered]):
    """Points a Glue table, or its partition, at `location` and notes slot and fence beside it, if it is as `expected`.

    What is missing is created: the partition, or with `expected` None the table (for a partitioned target that alone),
    with the columns of the published file `sample`. Of a table Glue itself checks that nobody changed it meanwhile; of
    a partition nothing does, so that a late one may put an older location back. Either way, and after a lost reply too:
    read it again.
    """

    table: GlueTable
    location: str
    slot: str
    fence: int
    sample: str | None
    expected: Pointer | None


@dataclass(frozen=True, slots=True)
class Sleep(Effect[None]):
    """With `handover`, the caller may be given up meanwhile, and another go on with its session and memory."""

    seconds: float
    handover: bool = False


@dataclass(frozen=True, slots=True)
class ReadClock(Effect[float]):
    """This process's monotonic clock. Never compared with another machine's."""


@dataclass(frozen=True, slots=True)
class DrawId(Effect[str]):
    """16 random hex digits."""


@dataclass(frozen=True, slots=True)
class DrawFraction(Effect[float]):
    """Uniform in [0, 1), for jitter."""


@dataclass(frozen=True, slots=True)
class Report(Effect[None]):
    """Tells whoever watches this caller what happens: one line of a publication's story. No answer is expected."""

    event: str
    detail: str = ""
