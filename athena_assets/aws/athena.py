"""Athena: start, poll and stop a query, and what its failures mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from athena_assets.aws.replies import Refusal, call, denied
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import (
    CountRows,
    Done,
    PollQuery,
    QueryMissing,
    QueryStarted,
    QueryState,
    QueryStatus,
    StartQuery,
    StartRejected,
    StartThrottled,
    StopQuery,
    TokenMismatch,
    Unanswered,
)
from athena_assets.core.register import FailureKind, Statistics

if TYPE_CHECKING:
    from mypy_boto3_athena.type_defs import QueryExecutionStatusTypeDef, QueryExecutionTypeDef

# Athena user guide, "Athena error catalog": these two types are "Query timed out".
_TIMED_OUT_TYPES = (206, 210)
# Athena gives no code for it. Recorded example of a StateChangeReason: "Query cancelled! : Bytes scanned limit was
# exceeded".
# Nor for this one: "HIVE_TOO_MANY_OPEN_PARTITIONS: Exceeded limit of 100 open writers for partitions/buckets".
_PARTITIONS_REASON = "HIVE_TOO_MANY_OPEN_PARTITIONS"
# "HIVE_PATH_ALREADY_EXISTS: Target directory already exists: ...": Athena's one check, before anything is written.
_EXISTS_REASON = "HIVE_PATH_ALREADY_EXISTS"
_SCAN_LIMIT_REASON = "bytes scanned limit was exceeded"


class Athena:
    """Performs the protocol's Athena effects. `slot` is what errors name."""

    def __init__(self, clients: AwsClients, slot: str) -> None:
        self._clients = clients
        self._slot = slot

    def start(self, effect: StartQuery) -> QueryStarted | TokenMismatch | StartThrottled | StartRejected | Unanswered:
        parameters = effect.parameters
        result: dict[str, str] = {}
        if parameters.output_location is not None:
            result["OutputLocation"] = parameters.output_location
            if self._clients.settings.expected_bucket_owner is not None:
                result["ExpectedBucketOwner"] = self._clients.settings.expected_bucket_owner
        answer = call(
            self._slot,
            self._clients.athena_once.start_query_execution,
            {
                "QueryString": parameters.query,
                "ClientRequestToken": effect.token,
                "QueryExecutionContext": {"Catalog": parameters.catalog, "Database": parameters.database},
                "WorkGroup": parameters.workgroup,
                "ResultConfiguration": result or None,
            },
            expect="QueryExecutionId",
        )
        if isinstance(answer, Unanswered):
            return answer
        if isinstance(answer, Refusal):
            if answer.athena_code == "IDEMPOTENT_PARAMETER_MISMATCH":
                return TokenMismatch()
            if answer.throttled:
                return StartThrottled(answer.message or answer.code)
            if answer.code == "InvalidRequestException":
                return StartRejected(answer.message)
            raise denied(self._slot, "StartQueryExecution", f"HTTP {answer.status} {answer.code}: {answer.message}")
        return QueryStarted(answer["QueryExecutionId"])

    def poll(self, effect: PollQuery) -> QueryStatus | QueryMissing | Unanswered:
        answer = call(
            self._slot,
            self._clients.athena.get_query_execution,
            {"QueryExecutionId": effect.query_id},
            expect="QueryExecution",
        )
        if isinstance(answer, Unanswered):
            return answer
        if isinstance(answer, Refusal):
            if answer.throttled:
                return Unanswered(answer.code)
            if answer.code == "InvalidRequestException":
                return QueryMissing()
            raise denied(self._slot, "GetQueryExecution", f"HTTP {answer.status} {answer.code}: {answer.message}")
        return query_status(answer["QueryExecution"])

    def poll_many(self, query_ids: tuple[str, ...]) -> dict[str, QueryStatus | QueryMissing | Unanswered]:
        """The answer of `poll` for each of up to 50 queries, by BatchGetQueryExecution."""
        answer = call(
            self._slot,
            self._clients.athena.batch_get_query_execution,
            {"QueryExecutionIds": list(query_ids)},
            expect="QueryExecutions",
        )
        if isinstance(answer, Refusal):
            if not answer.throttled:
                raise denied(self._slot, "BatchGetQueryExecution", f"HTTP {answer.status} {answer.code}")
            answer = Unanswered(answer.code)
        if isinstance(answer, Unanswered):
            return dict.fromkeys(query_ids, answer)
        found: dict[str, QueryStatus | QueryMissing | Unanswered] = {}
        for execution in answer["QueryExecutions"]:
            found[execution["QueryExecutionId"]] = query_status(execution)
        for unprocessed in answer.get("UnprocessedQueryExecutionIds", ()):
            code = unprocessed.get("ErrorCode", "")
            throttled = code in ("ThrottlingException", "TooManyRequestsException", "INTERNAL_FAILURE")
            found[unprocessed["QueryExecutionId"]] = Unanswered(code) if throttled else QueryMissing()
        return {query_id: found.get(query_id, Unanswered("not in the answer")) for query_id in query_ids}

    def stop(self, effect: StopQuery) -> Done | Unanswered:
        """Stop succeeds on a finished query; sending it again is harmless."""
        answer = call(self._slot, self._clients.athena.stop_query_execution, {"QueryExecutionId": effect.query_id})
        if isinstance(answer, Refusal):
            return Unanswered(f"HTTP {answer.status} {answer.code}")
        return answer if isinstance(answer, Unanswered) else Done()

    def count_rows(self, effect: CountRows) -> int | None:
        answer = call(
            self._slot,
            self._clients.athena.get_query_runtime_statistics,
            {"QueryExecutionId": effect.query_id},
            expect="QueryRuntimeStatistics",
        )
        if isinstance(answer, Refusal | Unanswered):
            return None  # late, missing or not permitted: the number is optional everywhere
        return answer["QueryRuntimeStatistics"].get("Rows", {}).get("OutputRows")


def query_status(execution: QueryExecutionTypeDef) -> QueryStatus:
    """GetQueryExecution's answer in the protocol's terms."""
    status = execution["Status"]
    measured = execution.get("Statistics", {})
    statistics = Statistics(
        bytes_scanned=measured.get("DataScannedInBytes"),
        queue_ms=measured.get("QueryQueueTimeInMillis"),
        engine_ms=measured.get("EngineExecutionTimeInMillis"),
        total_ms=measured.get("TotalExecutionTimeInMillis"),
    )
    match status["State"]:
        case "SUCCEEDED":
            return QueryStatus(
                QueryState.SUCCEEDED,
                data_manifest=measured.get("DataManifestLocation") or None,
                statistics=statistics,
            )
        case "FAILED" | "CANCELLED":
            reason = status.get("StateChangeReason") or f"Athena gave no reason ({status['State']})"
            return QueryStatus(QueryState.FAILED, failure_kind(status), reason, statistics=statistics)
        case _:
            return QueryStatus(QueryState.ACTIVE)


def failure_kind(status: QueryExecutionStatusTypeDef) -> FailureKind:
    """Why a FAILED or CANCELLED query ended, by AthenaError where there is one."""
    if _SCAN_LIMIT_REASON in status.get("StateChangeReason", "").lower():
        return FailureKind.SCAN_LIMIT
    if status["State"] == "CANCELLED":
        return FailureKind.CANCELLED
    if status.get("StateChangeReason", "").startswith(_PARTITIONS_REASON):
        return FailureKind.TOO_MANY_PARTITIONS
    if status.get("StateChangeReason", "").startswith(_EXISTS_REASON):
        return FailureKind.DESTINATION_EXISTS
    error = status.get("AthenaError", {})
    if error.get("ErrorType") in _TIMED_OUT_TYPES:
        return FailureKind.TIMED_OUT
    if error.get("ErrorCategory") == 2:
        return FailureKind.USER_ERROR
    if error.get("Retryable"):
        return FailureKind.RETRYABLE
    return FailureKind.INTERNAL if error.get("ErrorCategory") == 1 else FailureKind.OTHER
