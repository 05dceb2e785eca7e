"""Every error that athena_assets raises on purpose.

Each message names the target or slot, says what happened, what was not done, and the next step. Catch
`AthenaAssetsError` for all of them, `QueryFailed` for everything that Athena said about the query itself.
"""

from __future__ import annotations


class AthenaAssetsError(Exception):
    """Base of all errors of this package.

    Args:
        subject: the target or slot that is concerned, as the user wrote it.
        what: what happened.
        not_done: what therefore was not done (and what was left untouched).
        next_step: what the reader can do now.
    """

    def __init__(self, subject: object, what: str, *, not_done: str, next_step: str) -> None:
        super().__init__(f"{subject}: {what} {not_done} {next_step}")
        self.subject = str(subject)
        self.what = what
        self.not_done = not_done
        self.next_step = next_step

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process boundaries (multiprocessing, Dagster); pickle can't pass keyword-only arguments.
        return (rebuild, (type(self), self.args, self.__dict__))


def rebuild(kind: type[AthenaAssetsError], args: tuple[object, ...], state: dict[str, object]) -> AthenaAssetsError:
    """An error of this class as another process saw it."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidTarget(AthenaAssetsError, ValueError):
    """A target that can't be published as written; `field` names the part at fault. Nothing was sent to AWS."""

    def __init__(self, target: str, field: str, problem: str, next_step: str) -> None:
        super().__init__(
            f"target {target!r}, {field}",
            problem,
            not_done="No query was started and nothing was written.",
            next_step=next_step,
        )
        self.target = target
        self.field = field


NOT_BEGUN = "This request started no query and published nothing."


class SlotBusy(AthenaAssetsError):
    """Another caller holds the slot and `on_conflict` (or the deadline of the wait) does not let us wait on."""

    def __init__(
        self,
        slot: object,
        what: str,
        *,
        owner: str,
        query_id: str | None,
        not_done: str = NOT_BEGUN,
        next_step: str,
    ) -> None:
        super().__init__(slot, what, not_done=not_done, next_step=next_step)
        self.owner = owner
        self.query_id = query_id


class ForeignQueryRunning(AthenaAssetsError):
    """A query that is not this publication's writes to the location, and `on_conflict` does not let us wait (on)."""

    def __init__(
        self, slot: object, what: str, *, query_id: str, workgroup: str, not_done: str, next_step: str
    ) -> None:
        super().__init__(slot, what, not_done=not_done, next_step=next_step)
        self.query_id = query_id
        self.workgroup = workgroup


class LocationNotEmpty(AthenaAssetsError):
    """Objects that this system did not write lie under the location. They were not touched."""


class ModeChanged(AthenaAssetsError):
    """A result of another publish mode lies at the location; beside it, readers would see rows twice."""


class TableNotOurs(AthenaAssetsError):
    """The Glue table, or its partition, sends its readers to a place that this slot did not choose."""


class LocationOverlaps(AthenaAssetsError):
    """Another target publishes to a location above this one or inside it; their files would be each other's."""


class OutcomeUnknown(AthenaAssetsError):
    """AWS gave no answer for so long that we can't say whether a write was applied. Nothing was deleted."""


class ServiceUnavailable(AthenaAssetsError):
    """A read was not answered for the whole time that we are willing to try."""


class AccessDenied(AthenaAssetsError):
    """AWS refused a call for want of a permission or of valid credentials."""


class RegisterVanished(AthenaAssetsError):
    """The register that we had read is gone. It is never recreated silently: its fence would start again."""


class RegisterUnreadable(AthenaAssetsError):
    """The register or a manifest is damaged, of a newer schema version, or not what we wrote."""


class ChainBroken(AthenaAssetsError):
    """Whether a request has published long ago can't be told: manifests are gone. It must not publish a second time."""


class PublicationLost(AthenaAssetsError):
    """A committed file exists neither in staging nor at its destination; the next request runs the query anew."""


class NotKept(AthenaAssetsError):
    """The replaced result that was asked for is not kept, or not whole."""


class NotBlocked(AthenaAssetsError):
    """A repair was asked for a slot that needs none."""


class NothingPublished(AthenaAssetsError):
    """A result was asked for where none is published yet."""


class NotRebuilt(AthenaAssetsError):
    """The register needs no rebuilding, or nothing proves which publication is current."""


class RequestConflict(AthenaAssetsError, ValueError):
    """A request id came back with another query, format or location."""


class WorkgroupConflict(AthenaAssetsError):
    """The workgroup enforces a result location that clashes with the target."""


class ExecutionFailed(AthenaAssetsError):
    """A Step Functions execution ended with no outcome of ours: its function could not run, or ran out of tries."""


class ExecutionStopped(AthenaAssetsError):
    """Somebody stopped the Step Functions execution that published for us."""


class QueryFailed(AthenaAssetsError):
    """Athena ended the query, or refused to start it. `query_id` is None if it never started.

    Args:
        slot: the slot's location.
        reason: Athena's own words.
        query_id: the Athena query execution id, if there is one.
        next_step: what the reader can do now.
    """

    def __init__(self, slot: object, reason: str, *, query_id: str | None, next_step: str) -> None:
        where = f"query {query_id}" if query_id else "the query (it was not started)"
        super().__init__(
            slot,
            f"{where}: {reason.rstrip('.')}.",
            not_done="Nothing was published; the previous result, if any, is still in place.",
            next_step=next_step,
        )
        self.query_id = query_id
        self.reason = reason


class QueryUserError(QueryFailed):
    """The query or its inputs are at fault (Athena's ErrorCategory 2, or a statement refused at the start)."""


class TooManyPartitions(QueryUserError):
    """The result has more than 100 values of its `partitioned_by` columns; it is not tried again."""


class QueryThrottled(QueryFailed):
    """Athena accepted no further query although we tried a bounded number of times."""


class QueryInternalError(QueryFailed):
    """Athena failed for reasons of its own, more often than we try again."""


class ScanLimitExceeded(QueryFailed):
    """The query passed the workgroup's limit of bytes scanned; it is not tried again."""


class QueryTimedOut(QueryFailed):
    """The query ran longer than the target's timeout, or than Athena's own; it was stopped and is not tried again."""


class QueryCancelled(QueryFailed):
    """Somebody stopped the query; it is not tried again."""


class EmptyResult(QueryFailed):
    """The query succeeded without rows and the target wants that to be a failure."""


class DirtyLocation(QueryFailed):
    """Direct mode: a failed query left files at the location; the slot is blocked until somebody has looked."""


class MixedLocation(QueryFailed):
    """Direct mode: other files than the query's lie at the location; the slot is blocked until somebody has looked."""


class ResultInvalid(QueryFailed):
    """The query succeeded but its files can't be proved to be its result: S3 and the data manifest disagree."""
