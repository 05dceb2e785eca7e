"""One attempt: start its query, watch it, and prove which files are its result."""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets import errors
from athena_assets.core import policy, register
from athena_assets.core.effects import (
    Absent,
    CountRows,
    DrawFraction,
    Effects,
    ListedObject,
    ListObjects,
    PollQuery,
    QueryMissing,
    QueryStarted,
    QueryState,
    QueryStatus,
    ReadClock,
    ReadUri,
    Report,
    Sleep,
    StartQuery,
    StartRejected,
    StartThrottled,
    StopQuery,
    TokenMismatch,
    Unanswered,
    perform,
)
from athena_assets.core.manifest import InvalidResult, match_files, parse_data_manifest
from athena_assets.core.register import FailureKind, Mode, ObjectVersion, StartParameters
from athena_assets.core.swap import remove_all
from athena_assets.core.tenure import Tenure, answered

LOOKS = 3  # before a data manifest or a query id counts as missing, and a second apart


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt gives no result."""

    kind: FailureKind
    reason: str
    query_id: str | None = None


def submit(tenure: Tenure) -> Effects[Failed | None]:
    """Starts the recorded attempt's query, or finds the one that an earlier owner started with the recorded token.

    Our own parameters were recorded last and are sent first. A mismatch says that a query exists already: every other
    recorded set is sent until one answers with its id.
    """
    attempt = tenure.register.current
    for index in reversed(range(len(attempt.starts))):
        answer = yield from _start(tenure, attempt.starts[index], attempt.token)
        if isinstance(answer, QueryStarted):
            yield from tenure.change(register.running, query_id=answer.query_id, accepted=index)
            yield from perform(Report("running", f"query {answer.query_id}"))
            return None
        if isinstance(answer, Failed):
            return answer
    # An owner whose own start mismatches has been superseded by a prober: this write says so with LeaseLost. If it does
    # not, the token is somebody else's, and only a new attempt has a token of its own.
    yield from tenure.renew()
    return Failed(FailureKind.RETRYABLE, "the token belongs to a query that no recorded parameters match")


def _start(tenure: Tenure, parameters: StartParameters, token: str) -> Effects[QueryStarted | TokenMismatch | Failed]:
    started = yield from perform(ReadClock())
    # An owner before us may have sent it, and be paused before its reply, or before the send.
    doubtful = len(tenure.register.current.starts) > 1
    tries = 0
    while True:
        yield from tenure.keep()
        answer = yield from perform(StartQuery(parameters, token))
        if isinstance(answer, QueryStarted | TokenMismatch):
            return answer
        if isinstance(answer, StartRejected):
            return _rejected(tenure, answer.message) if doubtful else Failed(FailureKind.USER_ERROR, answer.message)
        doubtful = doubtful or isinstance(answer, Unanswered)
        if (yield from perform(ReadClock())) - started > tenure.slot.patience:
            if isinstance(answer, StartThrottled) and not doubtful:
                return Failed(FailureKind.THROTTLED, answer.message)
            raise errors.OutcomeUnknown(
                tenure.slot,
                f"{tenure.slot.caller}: StartQueryExecution was not answered ({answer}).",
                not_done="The register still says that the query may be running; nothing was published or deleted.",
                next_step="Publish again: the next caller finds the query by its token and finishes it.",
            )
        yield from perform(Sleep(policy.backoff(tries, (yield from perform(DrawFraction())))))
        tries += 1


def _rejected(tenure: Tenure, message: str) -> Failed:
    """A start that was sent before with a reply that nobody knows, and is refused now: it may be running all the same.

    What it writes to a prefix of its own is never published. In direct mode it would write among a later result.
    """
    reason = f"{message} (sent before with an unknown reply: a query may be running"
    if tenure.register.current.settings.mode is Mode.DIRECT:
        reason += (
            " that writes to the location: `athena-assets orphans` finds it, and only without one repair the slot)"
        )
        return Failed(FailureKind.MIXED_LOCATION, reason)
    return Failed(FailureKind.USER_ERROR, f"{reason}, whose result is not used)")


def watch(tenure: Tenure, timeout: float, began: float) -> Effects[QueryStatus | Failed]:
    """Polls the accepted query to its end, renewing the lease in between. A timeout stops it and waits for that end.

    `timeout` is counted from `began`, on the caller's clock.
    """
    query_id = tenure.register.current.accepted_query
    last_answer = yield from perform(ReadClock())
    failed_before = stopping = False
    missing = 0
    while True:
        yield from tenure.keep()
        status = yield from perform(PollQuery(query_id))
        now = yield from perform(ReadClock())
        delay = policy.poll_delay(now - began)
        if isinstance(status, Unanswered):
            _check_patience(tenure, query_id, now - last_answer, status)
        elif isinstance(status, QueryMissing):
            missing += 1
            if missing >= LOOKS:
                return Failed(FailureKind.RETRYABLE, "Athena does not know the query any more", query_id)
            delay = 1.0
        elif status.state is QueryState.SUCCEEDED:
            return status  # also when a stop lost against it
        elif status.state is QueryState.FAILED:
            if failed_before:
                # A stop may have been ours, before another went on in our place.
                late = status.kind is FailureKind.CANCELLED and now - began >= timeout
                return _failed(status, query_id, timeout if stopping or late else None)
            failed_before = True  # look once more before giving the slot up
        else:
            failed_before = False
            if now - began >= timeout:
                stopping = True
                yield from perform(Report("timed out", f"stopping query {query_id}"))
                yield from tenure.keep()
                yield from perform(StopQuery(query_id))
        if not isinstance(status, Unanswered):
            last_answer = now
        until_timeout = timeout - (now - began)
        # Only an answer that the query goes on leaves nothing to remember but when it began.
        goes_on = isinstance(status, QueryStatus) and status.state is QueryState.ACTIVE and not stopping
        yield from perform(Sleep(min(delay, until_timeout) if until_timeout > 0 else delay, handover=goes_on))


def end(tenure: Tenure, query_id: str) -> Effects[None]:
    """Stops a query of ours that nobody wants, and waits for its end: until then it may write."""
    yield from perform(Report("stopping", f"query {query_id}, a twin of the adopted one"))
    began = yield from perform(ReadClock())
    while True:
        yield from tenure.keep()
        yield from perform(StopQuery(query_id))
        status = yield from perform(PollQuery(query_id))
        if isinstance(status, QueryMissing):
            return
        if isinstance(status, QueryStatus) and status.state is not QueryState.ACTIVE:
            return
        waited = (yield from perform(ReadClock())) - began
        if isinstance(status, Unanswered):
            _check_patience(tenure, query_id, waited, status)
        yield from perform(Sleep(policy.poll_delay(waited)))


def _check_patience(tenure: Tenure, query_id: str, silence: float, answer: Unanswered) -> None:
    if silence > tenure.slot.patience:
        raise errors.ServiceUnavailable(
            tenure.slot,
            f"Athena did not answer about query {query_id} for {silence:.0f} s ({answer.reason}).",
            not_done="The query was not stopped and nothing was published.",
            next_step="Publish again when Athena answers: the next caller adopts the query.",
        )


def _failed(status: QueryStatus, query_id: str, stopped_after: float | None) -> Failed:
    if stopped_after is not None:
        reason = f"it was stopped after the target's timeout of {stopped_after:g} s"
        return Failed(FailureKind.TIMED_OUT, reason, query_id)
    assert status.kind is not None
    return Failed(status.kind, status.reason, query_id)


def verify(tenure: Tenure, status: QueryStatus) -> Effects[tuple[ListedObject, ...] | Failed]:
    """The files of the succeeded query, by Athena's data manifest and a listing of its staging prefix."""
    attempt = tenure.register.current
    body: bytes | Absent = Absent()
    if status.data_manifest is not None:
        for _ in range(LOOKS):
            body = yield from answered(ReadUri(status.data_manifest), tenure.slot)
            if not isinstance(body, Absent):
                break
            yield from perform(Sleep(1.0))
    listing = yield from answered(ListObjects(attempt.staging), tenure.slot)
    try:
        uris = () if isinstance(body, Absent) else parse_data_manifest(body)
    except InvalidResult as error:
        return Failed(FailureKind.RESULT_INVALID, str(error), attempt.query_id)
    if not uris and listing:
        reason = f"it has no data manifest, but {len(listing)} objects lie under its staging prefix"
        return Failed(FailureKind.RESULT_INVALID, reason, attempt.query_id)
    try:
        files = match_files(uris, listing, tenure.slot.location, attempt.staging)
    except InvalidResult as error:
        return Failed(FailureKind.RESULT_INVALID, str(error), attempt.query_id)
    if attempt.settings.mode is Mode.DIRECT and len(files) < len(listing):
        named = {each.key for each in files}
        other = next(each.key for each in listing if each.key not in named)
        reason = f"s3://{tenure.slot.bucket}/{other} lies at the location and is not the query's"
        return Failed(FailureKind.MIXED_LOCATION, reason, attempt.query_id)
    if attempt.settings.mode is Mode.POINTER and len(files) < len(listing):
        # A leftover of an internal restart, of a twin, or a stranger's: readers list the directory.
        reason = f"{len(listing)} objects lie in its directory {attempt.staging}, and {len(files)} are its files"
        return Failed(FailureKind.MIXED_DIRECTORY, reason, attempt.query_id)
    if not files and (yield from perform(CountRows(attempt.accepted_query))):
        reason = "it has rows, but no data manifest and no files: they were deleted before they could be published"
        return Failed(FailureKind.RESULT_INVALID, reason, attempt.query_id)
    if not files and attempt.settings.empty_fails:
        return Failed(FailureKind.EMPTY_RESULT, "it has no rows, and the target's on_empty is 'fail'", attempt.query_id)
    return files


def settle(tenure: Tenure, failed: Failed) -> Effects[Failed]:
    """What the failure means in the mode of the attempt.

    Staged, pointer: a private prefix that was not empty is no fault of the query. Athena had forgotten the token of an
    earlier one, took our probe for a new query, and found there what the earlier one had written.

    Direct: looks for what a failed query left at the location, and deletes it where the target allows that. Such files
    can't be told from a stranger's by looking; they are deleted only as listed and recorded beforehand. What lies there
    after a query that succeeded, and whose result can't be proved, is never deleted.
    """
    attempt, slot = tenure.register.current, tenure.slot
    if attempt.settings.mode is not Mode.DIRECT:
        if failed.kind is FailureKind.DESTINATION_EXISTS:
            return Failed(FailureKind.RETRYABLE, "an earlier query had written to its own prefix", failed.query_id)
        return failed
    if failed.query_id is None:
        return failed
    if failed.kind in (FailureKind.MIXED_LOCATION, FailureKind.DESTINATION_EXISTS):
        return failed  # what lies there is not, or not only, the query's
    listing = yield from answered(ListObjects(slot.location.prefix), slot)
    if not listing:
        return failed
    if not attempt.settings.clean_after_failure or failed.kind is FailureKind.RESULT_INVALID:
        reason = f"{failed.reason}; it left {len(listing)} objects, such as s3://{slot.bucket}/{listing[0].key}"
        return Failed(FailureKind.DIRTY_LOCATION, reason, failed.query_id)
    doomed = tuple(ObjectVersion(each.key, each.etag) for each in listing)
    yield from tenure.change(register.cleaning, cleanup=doomed)
    yield from clean(tenure)
    return failed


def clean(tenure: Tenure) -> Effects[None]:
    """Deletes what the register says a failed query left."""
    yield from remove_all(tenure, tenure.register.cleanup)
    yield from tenure.change(register.cleaning, cleanup=())
