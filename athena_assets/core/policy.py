"""Decisions that are not mechanism: how long to wait, what to try again, when a finished result may be returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from athena_assets import errors
from athena_assets.core.register import Failure, FailureKind

T = TypeVar("T")

LEASE_SECONDS = 60.0
RENEW_AFTER = 1 / 3  # of the lease
ACT_WITHIN = 0.8  # of the lease, counted from before the last renewal was sent
PATIENCE_SECONDS = 300.0  # how long one unanswered call is tried again
AT_ONCE = 8  # copies or deletes of one swap at one time

# Only a human can tell whose files lie at the location.
BLOCKING = frozenset({FailureKind.DIRTY_LOCATION, FailureKind.MIXED_LOCATION})
# A throttled start is tried again under its own token until the patience ends; only then is it a failure.
RETRIED = frozenset({FailureKind.INTERNAL, FailureKind.RETRYABLE, FailureKind.MIXED_DIRECTORY})

_ERRORS: dict[FailureKind, tuple[type[errors.QueryFailed], str]] = {
    FailureKind.USER_ERROR: (errors.QueryUserError, "Correct the query or its inputs and publish again."),
    FailureKind.THROTTLED: (errors.QueryThrottled, "Publish again later, or raise the account's Athena quotas."),
    FailureKind.INTERNAL: (errors.QueryInternalError, "Publish again; if it persists, open a case with AWS."),
    FailureKind.RETRYABLE: (errors.QueryInternalError, "Publish again; if it persists, open a case with AWS."),
    FailureKind.SCAN_LIMIT: (
        errors.ScanLimitExceeded,
        "Read less (partitions, columns) or raise the workgroup's bytes-scanned limit.",
    ),
    FailureKind.TIMED_OUT: (errors.QueryTimedOut, "Raise the target's timeout or make the query cheaper."),
    FailureKind.CANCELLED: (errors.QueryCancelled, "Publish again if the result is still wanted."),
    FailureKind.OTHER: (errors.QueryFailed, "Read Athena's reason, then publish again."),
    FailureKind.DESTINATION_EXISTS: (errors.QueryUserError, "Empty the location, or use mode 'staged'."),
    FailureKind.TOO_MANY_PARTITIONS: (
        errors.TooManyPartitions,
        "An UNLOAD writes at most 100 partitions: drop a partitioned_by column, or put ${partition} into the location.",
    ),
    FailureKind.EMPTY_RESULT: (errors.EmptyResult, "Correct the query, or set on_empty='publish'."),
    FailureKind.DIRTY_LOCATION: (errors.DirtyLocation, "Look at the files, then run `athena-assets repair`."),
    FailureKind.MIXED_LOCATION: (errors.MixedLocation, "Look at the files, then run `athena-assets repair`."),
    FailureKind.MIXED_DIRECTORY: (
        errors.ResultInvalid,
        "Publish again: the query runs anew into a fresh directory. If it persists, find out who else writes there.",
    ),
    FailureKind.RESULT_INVALID: (
        errors.ResultInvalid,
        "Publish again: the query runs anew into a fresh staging prefix.",
    ),
}


def batches(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """What is sent at one time; the lease is kept in between."""
    for first in range(0, len(items), AT_ONCE):
        yield tuple(items[first : first + AT_ONCE])


def poll_delay(elapsed: float) -> float:
    """Seconds until the next look at a query that has run for `elapsed`: a tenth of it, at least 0.1, at most 5."""
    return min(max(elapsed / 10, 0.1), 5.0)


def wait_delay(waited: float, fraction: float) -> float:
    """Seconds until a joiner looks again: an eighth of its wait, 0.2 to 5, with jitter of a half either way."""
    return min(max(waited / 8, 0.2), 5.0) * (0.5 + fraction)


def backoff(tries: int, fraction: float) -> float:
    """Seconds before an unanswered or throttled call is sent again: doubling from 0.1 to 20, jitter of a half."""
    return min(0.1 * float(2 ** min(tries, 10)), 20.0) * (0.5 + fraction / 2)


def expires_after(lease: float) -> float:
    """How long the same `write_id` must stand, on the observer's own clock, before the lease has run out."""
    return lease * 1.1


def expired_at_first_sight(lease: float, age: float) -> bool:
    """By S3's clock alone: `age` is one response's `Date` minus its `Last-Modified`."""
    return age > 2 * lease + 60


def failure_error(slot: object, failure: Failure) -> errors.QueryFailed:
    """The exception of a recorded failure: the same for its owner and for everybody who waited for it."""
    kind, next_step = _ERRORS[failure.kind]
    return kind(slot, failure.reason, query_id=failure.query_id, next_step=next_step)
