"""The embedded Athena's memory: executions and the tokens that they were started with.

Faithful: one token starts one execution, also after it failed or was cancelled; QueryString, Catalog, Database and
OutputLocation are compared, WorkGroup and ExecutionParameters are not. Not faithful: tokens are kept until `reset` or
`forget_tokens`, and history has no end; a query that ran when the server was ended has FAILED when it is back.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any

from athena_assets.local.athena_errors import SYSTEM, QueryFailed, RequestRefused
from athena_assets.local.state_folder import StateFolder

QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"
ENDED_WITH_THE_SERVER = "GENERIC_INTERNAL_ERROR: the embedded AWS was ended while the query ran"
_KEPT = (
    "query_id number submitted_at state reason started_at completed_at scanned_bytes output_rows output_bytes manifest"
    " columns rows"
).split()
FINAL = frozenset({SUCCEEDED, FAILED, CANCELLED})


@dataclass(frozen=True, slots=True)
class Submission:
    """What StartQueryExecution was asked, after the workgroup's settings were applied to `result_location`."""

    sql: str
    token: str
    catalog: str | None
    database: str | None
    requested_location: str | None
    result_location: str
    workgroup: str
    region: str
    statement_type: str
    is_select: bool
    parameters: tuple[str, ...] = ()

    def same_for_token(self, other: Submission) -> bool:
        """Whether Athena takes the other for a repetition of this one."""
        return (self.sql, self.catalog, self.database, self.requested_location) == (
            other.sql,
            other.catalog,
            other.database,
            other.requested_location,
        )


@dataclass(slots=True)
class Execution:
    """One query. Its own thread changes it; readers take `lock`."""

    query_id: str
    submission: Submission
    number: int
    submitted_at: float = field(default_factory=time.time)
    state: str = QUEUED
    reason: str | None = None
    error: QueryFailed | None = None
    started_at: float | None = None
    completed_at: float | None = None
    scanned_bytes: int = 0
    output_rows: int | None = None
    output_bytes: int = 0
    manifest: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    rows: list[tuple[str | None, ...]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def output_location(self) -> str:
        """Where Athena keeps the query's own result: `<id>.csv` for a SELECT, `<id>` for an UNLOAD."""
        return f"{self.submission.result_location}{self.query_id}{'.csv' if self.submission.is_select else ''}"

    def statistics(self) -> dict[str, Any]:
        """`QueryExecution.Statistics`."""
        end = self.completed_at or time.time()
        started = self.started_at or end
        document: dict[str, Any] = {
            "EngineExecutionTimeInMillis": int((end - started) * 1000),
            "DataScannedInBytes": self.scanned_bytes,
            "TotalExecutionTimeInMillis": int((end - self.submitted_at) * 1000),
            "QueryQueueTimeInMillis": int((started - self.submitted_at) * 1000),
            "ServiceProcessingTimeInMillis": 0,
        }
        if self.manifest is not None:
            document["DataManifestLocation"] = self.manifest
        return document

    def describe(self) -> dict[str, Any]:
        """`QueryExecution` of the API."""
        with self.lock:
            status: dict[str, Any] = {"State": self.state, "SubmissionDateTime": self.submitted_at}
            if self.completed_at is not None:
                status["CompletionDateTime"] = self.completed_at
            if self.reason is not None:
                status["StateChangeReason"] = self.reason
            if self.error is not None:
                status["AthenaError"] = {
                    "ErrorCategory": self.error.category,
                    "ErrorType": self.error.error_type,
                    "Retryable": self.error.retryable,
                    "ErrorMessage": self.error.reason,
                }
            asked = self.submission
            context = {"Catalog": asked.catalog, "Database": asked.database}
            return {
                "QueryExecutionId": self.query_id,
                "Query": asked.sql,
                "StatementType": asked.statement_type,
                "ResultConfiguration": {"OutputLocation": self.output_location},
                "QueryExecutionContext": {name: value for name, value in context.items() if value is not None},
                "Status": status,
                "Statistics": self.statistics(),
                "WorkGroup": asked.workgroup,
                "EngineVersion": {
                    "SelectedEngineVersion": "AUTO",
                    "EffectiveEngineVersion": "Athena engine version 3",
                },
            }

    def dump(self) -> dict[str, Any]:
        """What a restart needs to know; the caller holds `lock`, or nobody else knows the execution yet."""
        error = self.error
        known = None if error is None else (error.reason, error.category, error.error_type, error.retryable)
        kept = {name: getattr(self, name) for name in _KEPT}
        return {**kept, "submission": asdict(self.submission), "error": known}

    @classmethod
    def load(cls, dump: dict[str, Any]) -> Execution:
        """Inverse of `dump`; a query that had not ended has FAILED."""
        execution = cls(
            **{
                **dump,
                "submission": Submission(**dump["submission"]),
                "error": None if dump["error"] is None else QueryFailed(*dump["error"]),
            }
        )
        if execution.state not in FINAL:
            execution.state, execution.reason, execution.completed_at = FAILED, ENDED_WITH_THE_SERVER, time.time()
            execution.error = QueryFailed(ENDED_WITH_THE_SERVER, SYSTEM, 1, retryable=True)
        return execution

    def record(self) -> dict[str, Any]:
        """JSON form of a `QueryRecord`."""
        with self.lock:
            return {
                "query_id": self.query_id,
                "sql": self.submission.sql,
                "state": self.state,
                "client_request_token": self.submission.token,
                "submitted_at": self.submitted_at,
                "output_location": self.output_location,
                "state_change_reason": self.reason,
                "statistics": self.statistics(),
            }


class History:
    """All executions, in order of submission."""

    def __init__(self, state: StateFolder | None = None) -> None:
        self._lock = threading.Lock()
        self._executions: dict[str, Execution] = {}
        self._by_token: dict[str, Execution] = {}
        self._numbers = 0
        self._forgotten = 0  # the number of the youngest query that the API does not know any more
        self._state = state
        if state is not None:
            self._restore(state)

    def _restore(self, state: StateFolder) -> None:
        forgotten = state.read("forgotten tokens").get("", 0)
        for dump in sorted(state.read("query").values(), key=lambda dump: int(dump["number"])):
            execution = Execution.load(dump)
            if execution.state != dump["state"]:
                state.put("query", execution.query_id, execution.dump())
            self._executions[execution.query_id] = execution
            self._numbers = execution.number
            if execution.number > forgotten:
                self._by_token[execution.submission.token] = execution

    def keep(self, execution: Execution) -> None:
        """Before a change can be told by an API call; the caller holds the execution's lock."""
        if self._state is None:
            return
        with self._lock:  # `clear` takes it too: what it has forgotten does not come back
            if execution.query_id in self._executions:
                self._state.put("query", execution.query_id, execution.dump())

    def known(self, submission: Submission) -> Execution | None:
        """The execution that this token has started. `RequestRefused` if it was for something else."""
        with self._lock:
            return self._known(submission)

    def _known(self, submission: Submission) -> Execution | None:
        found = self._by_token.get(submission.token)
        if found is not None and not found.submission.same_for_token(submission):
            raise RequestRefused("Idempotent parameters do not match", "IDEMPOTENT_PARAMETER_MISMATCH")
        return found

    def create(self, submission: Submission) -> tuple[Execution, bool]:
        """Looks and creates in one moment. The flag tells whether the execution is new."""
        with self._lock:
            found = self._known(submission)
            if found is not None:
                return found, False
            self._numbers += 1
            execution = Execution(str(uuid.uuid4()), submission, self._numbers)
            if self._state is not None:
                self._state.put("query", execution.query_id, execution.dump())
            self._executions[execution.query_id] = execution
            self._by_token[submission.token] = execution
            return execution, True

    def get(self, query_id: str) -> Execution | None:
        """`None` for an unknown id, and for a forgotten one."""
        with self._lock:
            found = self._executions.get(query_id)
            return None if found is None or found.number <= self._forgotten else found

    def all(self) -> list[Execution]:
        """Oldest first."""
        with self._lock:
            return list(self._executions.values())

    def forget_tokens(self) -> None:
        """From now on every token is new."""
        with self._lock:
            self._by_token.clear()
            if self._state is not None:
                self._state.put("forgotten tokens", "", self._numbers)

    def forget_queries(self) -> None:
        """The API no longer knows any query so far. Until the server's end only."""
        with self._lock:
            self._forgotten = self._numbers

    def clear(self) -> list[Execution]:
        """Forgets everything; returns what there was."""
        with self._lock:
            executions = list(self._executions.values())
            self._executions.clear()
            self._by_token.clear()
            return executions
