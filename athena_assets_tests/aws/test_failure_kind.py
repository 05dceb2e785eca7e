"""What Athena's answers about a query mean, on examples of every branch."""

from typing import TYPE_CHECKING, Any

import pytest

from athena_assets.aws.athena import failure_kind, query_status
from athena_assets.core.effects import QueryState, QueryStatus
from athena_assets.core.register import FailureKind, Statistics

if TYPE_CHECKING:
    from mypy_boto3_athena.type_defs import QueryExecutionStatusTypeDef, QueryExecutionTypeDef


def ended(state: str = "FAILED", reason: str | None = None, **error: int | bool | str) -> "QueryExecutionStatusTypeDef":
    status: Any = {"State": state}
    if reason is not None:
        status["StateChangeReason"] = reason
    if error:
        status["AthenaError"] = error
    return status  # type: ignore[no-any-return]


SYNTAX = "SYNTAX_ERROR: line 2:8: Column 'x' cannot be resolved"
EXISTS = "HIVE_PATH_ALREADY_EXISTS: Target directory already exists: s3://lake/marts/daily"
SCANNED = "Query cancelled! : Bytes scanned limit was exceeded"
EXHAUSTED = "Query exhausted resources at this scale factor"
TIMEOUT = "Query timeout"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        # The query or its inputs are at fault, whatever Retryable says.
        (ended(reason=SYNTAX, ErrorCategory=2, ErrorType=1006, Retryable=False), FailureKind.USER_ERROR),
        (ended(reason=EXISTS, ErrorCategory=2, ErrorType=1200, Retryable=False), FailureKind.DESTINATION_EXISTS),
        (ended(reason=SYNTAX, ErrorCategory=2, ErrorType=1006, Retryable=True), FailureKind.USER_ERROR),
        (ended(reason=SYNTAX, ErrorCategory=2), FailureKind.USER_ERROR),
        # Athena's own.
        (ended(reason="Internal error", ErrorCategory=1, ErrorType=0, Retryable=False), FailureKind.INTERNAL),
        (ended(reason="Internal error", ErrorCategory=1), FailureKind.INTERNAL),
        (ended(reason="Internal error", ErrorCategory=1, ErrorType=0, Retryable=True), FailureKind.RETRYABLE),
        (ended(reason=EXHAUSTED, ErrorCategory=3, ErrorType=301, Retryable=True), FailureKind.RETRYABLE),
        # Timed out at Athena: the two types of the error catalog, before category and Retryable.
        (ended(reason=TIMEOUT, ErrorCategory=1, ErrorType=206, Retryable=True), FailureKind.TIMED_OUT),
        (ended(reason=TIMEOUT, ErrorCategory=2, ErrorType=210, Retryable=False), FailureKind.TIMED_OUT),
        (ended(reason=TIMEOUT, ErrorCategory=1, ErrorType=207, Retryable=False), FailureKind.INTERNAL),
        # The scan limit, which Athena reports as a cancellation or as a failure, with or without an AthenaError.
        (ended("CANCELLED", SCANNED), FailureKind.SCAN_LIMIT),
        (ended("FAILED", SCANNED), FailureKind.SCAN_LIMIT),
        (ended("FAILED", SCANNED, ErrorCategory=1, ErrorType=0, Retryable=True), FailureKind.SCAN_LIMIT),
        (ended("CANCELLED", SCANNED.upper()), FailureKind.SCAN_LIMIT),
        # Stopped by somebody.
        (ended("CANCELLED", "Query cancelled by user"), FailureKind.CANCELLED),
        (ended("CANCELLED"), FailureKind.CANCELLED),
        (ended("CANCELLED", "Query cancelled by user", ErrorCategory=1, Retryable=True), FailureKind.CANCELLED),
        # Nothing that we know.
        (ended(reason="Something else", ErrorCategory=3, ErrorType=401, Retryable=False), FailureKind.OTHER),
        (ended(reason="Something else"), FailureKind.OTHER),
        (ended(), FailureKind.OTHER),
    ],
)
def test_a_failure_has_the_kind_that_its_answer_says(status: "QueryExecutionStatusTypeDef", kind: FailureKind) -> None:
    assert failure_kind(status) is kind


def execution(status: "QueryExecutionStatusTypeDef", **statistics: int | str) -> "QueryExecutionTypeDef":
    found: Any = {"QueryExecutionId": "q-1", "Query": "UNLOAD ...", "StatementType": "DML", "Status": status}
    if statistics:
        found["Statistics"] = statistics
    return found  # type: ignore[no-any-return]


MEASURED = {
    "EngineExecutionTimeInMillis": 3400,
    "DataScannedInBytes": 987_654_321,
    "TotalExecutionTimeInMillis": 3600,
    "QueryQueueTimeInMillis": 120,
    "QueryPlanningTimeInMillis": 80,
    "ServiceProcessingTimeInMillis": 20,
}
STATISTICS = Statistics(bytes_scanned=987_654_321, queue_ms=120, engine_ms=3400, total_ms=3600)


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING"])
def test_a_query_that_waits_or_runs_is_active(state: str) -> None:
    found = query_status(execution(ended(state), **MEASURED))
    assert (found.state, found.kind, found.reason, found.data_manifest) == (QueryState.ACTIVE, None, "", None)


def test_a_state_that_athena_may_add_is_waited_out() -> None:
    assert query_status(execution(ended("PAUSED"))).state is QueryState.ACTIVE


def test_a_query_that_succeeded_tells_its_data_manifest_and_statistics() -> None:
    uri = "s3://results/q-1-manifest.csv"
    assert query_status(execution(ended("SUCCEEDED"), DataManifestLocation=uri, **MEASURED)) == QueryStatus(
        QueryState.SUCCEEDED, data_manifest=uri, statistics=STATISTICS
    )


def test_a_query_that_succeeded_may_tell_nothing_more() -> None:
    assert query_status(execution(ended("SUCCEEDED"))) == QueryStatus(QueryState.SUCCEEDED)
    assert query_status(execution(ended("SUCCEEDED"), DataManifestLocation="")).data_manifest is None


def test_a_query_that_failed_tells_kind_reason_and_statistics() -> None:
    status = ended(reason=SYNTAX, ErrorCategory=2, ErrorType=1006, Retryable=False)
    assert query_status(execution(status, **MEASURED)) == QueryStatus(
        QueryState.FAILED, FailureKind.USER_ERROR, SYNTAX, statistics=STATISTICS
    )


@pytest.mark.parametrize(("state", "kind"), [("FAILED", FailureKind.OTHER), ("CANCELLED", FailureKind.CANCELLED)])
def test_an_end_without_a_reason_says_so(state: str, kind: FailureKind) -> None:
    assert query_status(execution(ended(state))) == QueryStatus(
        QueryState.FAILED, kind, f"Athena gave no reason ({state})"
    )


def test_a_failed_query_never_hands_on_a_data_manifest() -> None:
    assert query_status(execution(ended(), DataManifestLocation="s3://results/q-1-manifest.csv")).data_manifest is None
