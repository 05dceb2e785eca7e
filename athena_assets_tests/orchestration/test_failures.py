"""Which errors a retry policy tries again, and what the failed step shows."""

import dagster as dg
import pytest

from athena_assets import errors
from athena_assets.orchestration.failures import failure, failures, tried_again

TEXTS = {"not_done": "Nothing was published.", "next_step": "Try again."}
ALL: set[type[errors.AthenaAssetsError]] = {
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.AthenaAssetsError) and kind is not errors.AthenaAssetsError
}
MAY_PASS = {
    errors.OutcomeUnknown,
    errors.ServiceUnavailable,
    errors.SlotBusy,
    errors.ForeignQueryRunning,
    errors.PublicationLost,
    errors.QueryThrottled,
    errors.QueryInternalError,
    errors.ExecutionFailed,
}
NEEDS_SOMEBODY = {
    errors.InvalidTarget,
    errors.LocationNotEmpty,
    errors.LocationOverlaps,
    errors.ModeChanged,
    errors.TableNotOurs,
    errors.NothingPublished,
    errors.AccessDenied,
    errors.RegisterVanished,
    errors.RegisterUnreadable,
    errors.ChainBroken,
    errors.NotKept,
    errors.NotBlocked,
    errors.NotRebuilt,
    errors.RequestConflict,
    errors.WorkgroupConflict,
    errors.QueryUserError,
    errors.ScanLimitExceeded,
    errors.QueryTimedOut,
    errors.QueryCancelled,
    errors.EmptyResult,
    errors.DirtyLocation,
    errors.MixedLocation,
    errors.TooManyPartitions,
    errors.ResultInvalid,
    errors.ExecutionStopped,
    errors.QueryFailed,  # raised itself for what Athena gives no kind
}


def example(kind: type[errors.AthenaAssetsError]) -> errors.AthenaAssetsError:
    if issubclass(kind, errors.InvalidTarget):
        return kind("t", "query", "It is wrong.", "Mend it.")
    if issubclass(kind, errors.SlotBusy):
        return kind("s3://b/p/", "It is held.", owner="process 1 on h", query_id="1234", next_step="Wait.")
    if issubclass(kind, errors.ForeignQueryRunning):
        return kind("s3://b/p/", "It runs.", query_id="1234", workgroup="w", **TEXTS)
    if issubclass(kind, errors.QueryFailed):
        return kind("s3://b/p/", "SYNTAX_ERROR", query_id="1234", next_step="Mend it.")
    return kind("s3://b/p/", "It happened.", **TEXTS)


def test_every_error_is_classified() -> None:
    assert MAY_PASS | NEEDS_SOMEBODY == ALL
    assert not MAY_PASS & NEEDS_SOMEBODY


@pytest.mark.parametrize("kind", sorted(ALL, key=str))
def test_only_what_may_pass_by_itself_is_tried_again(kind: type[errors.AthenaAssetsError]) -> None:
    assert failure(example(kind), None).allow_retries is (kind in MAY_PASS)


@pytest.mark.parametrize("kind", sorted(ALL, key=str))
def test_the_failure_says_what_the_error_says(kind: type[errors.AthenaAssetsError]) -> None:
    error = example(kind)
    shown = failure(error, None)
    assert shown.description == f"{kind.__name__}: {error}"
    assert shown.metadata["athena_assets/next_step"].value == error.next_step


@pytest.mark.parametrize("kind", [errors.QueryUserError, errors.SlotBusy, errors.ForeignQueryRunning])
def test_a_query_that_an_error_names_is_linked_to(kind: type[errors.AthenaAssetsError]) -> None:
    shown = failure(example(kind), "https://example.test/1234").metadata
    assert shown["athena_assets/query_id"].value == "1234"
    assert shown["athena_assets/query_console"].value == "https://example.test/1234"


def test_a_busy_slot_names_its_owner() -> None:
    assert failure(example(errors.SlotBusy), None).metadata["athena_assets/owner"].value == "process 1 on h"


POLICY = dg.RetryPolicy(max_retries=2, delay=3, backoff=dg.Backoff.EXPONENTIAL)


@pytest.mark.parametrize(("retry_number", "delay"), [(0, 3), (1, 9)])
def test_what_may_pass_is_tried_again_after_the_policys_delay(retry_number: int, delay: float) -> None:
    with pytest.raises(dg.RetryRequested) as asked, tried_again(POLICY, retry_number):
        raise failure(example(errors.QueryInternalError), None)
    assert (asked.value.max_retries, asked.value.seconds_to_wait) == (2, delay)
    assert isinstance(asked.value.__cause__, dg.Failure)


@pytest.mark.parametrize(
    ("policy", "retry_number", "kind"),
    [
        (None, 0, errors.QueryInternalError),
        (POLICY, 2, errors.QueryInternalError),
        (POLICY, 0, errors.QueryUserError),
    ],
    ids=["no policy", "no retries left", "lasting"],
)
def test_everything_else_fails_the_step(
    policy: dg.RetryPolicy | None, retry_number: int, kind: type[errors.AthenaAssetsError]
) -> None:
    with pytest.raises(dg.Failure), tried_again(policy, retry_number):
        raise failure(example(kind), None)


def test_a_termination_is_not_tried_again() -> None:
    with pytest.raises(dg.DagsterExecutionInterruptedError), tried_again(POLICY, 0):
        raise dg.DagsterExecutionInterruptedError


def test_several_failures_are_one_that_names_each_partition() -> None:
    shown = failures({"2026-01-01": example(errors.QueryUserError), "2026-01-03": example(errors.AccessDenied)}, of=5)
    assert shown.description is not None
    assert shown.description.startswith("2 of 5 partitions were not published.\n2026-01-01: QueryUserError: ")
    assert "\n2026-01-03: AccessDenied: " in shown.description
    assert shown.metadata["athena_assets/failed_partitions"].value == {
        "2026-01-01": {"error": "QueryUserError", "query_id": "1234", "next_step": "Mend it."},
        "2026-01-03": {"error": "AccessDenied", "query_id": None, "next_step": "Try again."},
    }


def test_many_failures_are_told_in_the_metadata() -> None:
    shown = failures({f"k{number:02d}": example(errors.AccessDenied) for number in range(30)}, of=30)
    assert shown.description is not None
    assert "k09" in shown.description
    assert "k10" not in shown.description
    assert shown.description.endswith("and 20 more: see the metadata.")
    told = shown.metadata["athena_assets/failed_partitions"].value
    assert isinstance(told, dict)
    assert len(told) == 30


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((errors.QueryInternalError, errors.ServiceUnavailable), True),
        ((errors.QueryInternalError, errors.QueryUserError), False),
    ],
)
def test_several_failures_are_tried_again_only_if_all_may_pass(
    kinds: tuple[type[errors.AthenaAssetsError], ...], expected: bool
) -> None:
    assert failures({kind.__name__: example(kind) for kind in kinds}, of=9).allow_retries is expected
