"""Policy: when a lease is expired, how long to wait, and what a failure is called."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena_assets import errors
from athena_assets.core import policy
from athena_assets.core.register import Failure, FailureKind

fractions = st.floats(0, 1, exclude_max=True)
seconds = st.floats(0, 1e7)


def test_the_lease_is_renewed_thrice_before_it_ends() -> None:
    assert policy.LEASE_SECONDS == 60
    assert policy.RENEW_AFTER * policy.LEASE_SECONDS == 20
    assert policy.ACT_WITHIN == 0.8


@given(st.floats(0.1, 1e6))
def test_on_our_own_clock_a_lease_runs_out_after_its_duration_and_a_margin(lease: float) -> None:
    assert lease < policy.expires_after(lease) <= lease * 1.2


def test_an_owner_stops_acting_well_before_anybody_calls_its_lease_expired() -> None:
    assert policy.expires_after(60) - policy.ACT_WITHIN * 60 >= 15


@pytest.mark.parametrize(
    ("lease", "age", "expired"),
    [
        (60, 0, False),
        (60, 61, False),
        (60, 180, False),
        (60, 181, True),
        (60, -5, False),
        (10, 80, False),
        (10, 81, True),
    ],
)
def test_at_first_sight_a_lease_is_expired_after_twice_its_duration_and_a_minute(
    lease: float, age: float, expired: bool
) -> None:
    assert policy.expired_at_first_sight(lease, age) is expired


def test_delays_grow_as_documented() -> None:
    assert [policy.poll_delay(elapsed) for elapsed in (0, 1, 20, 50, 3600)] == [0.1, 0.1, 2.0, 5.0, 5.0]
    assert [policy.wait_delay(waited, 0.5) for waited in (0, 1.6, 8, 40, 3600)] == [0.2, 0.2, 1.0, 5.0, 5.0]
    assert [policy.wait_delay(8, fraction) for fraction in (0, 0.25)] == [0.5, 0.75]
    assert [policy.backoff(tries, 0) for tries in (0, 1, 2, 7, 8, 50)] == [0.05, 0.1, 0.2, 6.4, 10.0, 10.0]
    assert [policy.backoff(8, fraction) for fraction in (0.25, 0.5)] == [12.5, 15.0]
    assert policy.PATIENCE_SECONDS == 300


@given(seconds)
def test_a_poll_comes_within_five_seconds_and_a_tenth_of_the_run_time(elapsed: float) -> None:
    delay = policy.poll_delay(elapsed)
    assert 0.1 <= delay <= 5
    assert delay <= max(0.1, elapsed / 10)


@given(seconds, fractions)
def test_a_joiner_looks_again_within_seconds(waited: float, fraction: float) -> None:
    assert 0.1 <= policy.wait_delay(waited, fraction) <= 7.5


@given(st.integers(0, 1000), fractions)
def test_a_backoff_doubles_up_to_twenty_seconds_with_jitter(tries: int, fraction: float) -> None:
    delay = policy.backoff(tries, fraction)
    full = min(0.1 * 2 ** min(tries, 20), 20.0)
    assert full / 2 <= delay <= full
    assert math.isfinite(delay)


def test_jitter_spreads_callers_that_began_together() -> None:
    assert policy.wait_delay(8, 0.0) < policy.wait_delay(8, 0.5) < policy.wait_delay(8, 0.9)
    assert policy.backoff(5, 0.0) < policy.backoff(5, 0.5) < policy.backoff(5, 0.9)


CLASSES = {
    FailureKind.USER_ERROR: errors.QueryUserError,
    FailureKind.THROTTLED: errors.QueryThrottled,
    FailureKind.INTERNAL: errors.QueryInternalError,
    FailureKind.RETRYABLE: errors.QueryInternalError,
    FailureKind.SCAN_LIMIT: errors.ScanLimitExceeded,
    FailureKind.TIMED_OUT: errors.QueryTimedOut,
    FailureKind.CANCELLED: errors.QueryCancelled,
    FailureKind.OTHER: errors.QueryFailed,
    FailureKind.RESULT_INVALID: errors.ResultInvalid,
    FailureKind.TOO_MANY_PARTITIONS: errors.TooManyPartitions,
    FailureKind.DESTINATION_EXISTS: errors.QueryUserError,
    FailureKind.EMPTY_RESULT: errors.EmptyResult,
    FailureKind.DIRTY_LOCATION: errors.DirtyLocation,
    FailureKind.MIXED_LOCATION: errors.MixedLocation,
    FailureKind.MIXED_DIRECTORY: errors.ResultInvalid,
}


@pytest.mark.parametrize("kind", FailureKind)
@pytest.mark.parametrize("query_id", ["q-1", None])
def test_every_recorded_failure_has_its_error(kind: FailureKind, query_id: str | None) -> None:
    failure = Failure("g", "wish-1", 7, query_id, kind, "Athena's own words")
    error = policy.failure_error("s3://lake/x/", failure)
    assert type(error) is CLASSES[kind]
    assert (error.subject, error.reason, error.query_id) == ("s3://lake/x/", "Athena's own words", query_id)
    assert error.next_step.endswith(".")


def test_only_failures_of_athena_itself_and_what_a_fresh_directory_cures_are_tried_again() -> None:
    retried = frozenset({FailureKind.INTERNAL, FailureKind.RETRYABLE, FailureKind.MIXED_DIRECTORY})
    assert retried == policy.RETRIED
