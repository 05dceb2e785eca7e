"""Athena's API over JSON: what a request means, and what is refused at the door."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from athena_assets.local import moto_seams
from athena_assets.local.athena_errors import RequestRefused
from athena_assets.local.athena_history import FINAL, SUCCEEDED, Execution, History, Submission
from athena_assets.local.athena_runner import Runner
from athena_assets.local.error_replies import json_error
from athena_assets.local.http_server import Reply
from athena_assets.local.sql_translation import parse_select
from athena_assets.local.statements import MAX_STATEMENT_BYTES, Select, Unload, read_statement
from athena_assets.local.workgroups import PRIMARY, WorkGroups

PAGE = 50
RESULT_PAGE = 1000


class AthenaApi:
    """Answers one operation at a time; thread-safe."""

    def __init__(self, history: History, runner: Runner, workgroups: WorkGroups) -> None:
        self._history = history
        self._runner = runner
        self._workgroups = workgroups
        self._operations: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
            "StartQueryExecution": self._start,
            "GetQueryExecution": self._get,
            "BatchGetQueryExecution": self._batch_get,
            "ListQueryExecutions": self._list,
            "StopQueryExecution": self._stop,
            "GetQueryResults": self._results,
            "GetQueryRuntimeStatistics": self._runtime_statistics,
            "CreateWorkGroup": self._create_workgroup,
            "GetWorkGroup": self._get_workgroup,
            "UpdateWorkGroup": self._update_workgroup,
            "DeleteWorkGroup": self._delete_workgroup,
            "ListWorkGroups": self._list_workgroups,
        }

    def __call__(self, operation: str, body: bytes, region: str) -> Reply:
        handler = self._operations.get(operation)
        if handler is None:
            return json_error(400, "UnknownOperationException", f"embedded AWS: Athena's {operation} is not built")
        try:
            document = handler(json.loads(body or b"{}"), region)
        except RequestRefused as refusal:
            return json_error(400, refusal.code, refusal.message, AthenaErrorCode=refusal.athena_error_code)
        return Reply(200, [("Content-Type", "application/x-amz-json-1.1")], json.dumps(document).encode())

    def _start(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        sql = str(request.get("QueryString", ""))
        token = str(request.get("ClientRequestToken") or uuid.uuid4())
        if not 32 <= len(token) <= 128:
            raise RequestRefused(
                "1 validation error detected: Value at 'clientRequestToken' failed to satisfy constraint: Member must"
                " have length between 32 and 128, inclusive"
            )
        if len(sql.encode()) > MAX_STATEMENT_BYTES:
            raise RequestRefused(f"Query string is longer than {MAX_STATEMENT_BYTES} bytes")
        group = self._workgroups.get(str(request.get("WorkGroup") or PRIMARY))
        configuration = request.get("ResultConfiguration") or {}
        requested = configuration.get("OutputLocation")
        context = request.get("QueryExecutionContext") or {}
        if group.state != "ENABLED":
            raise RequestRefused(f"WorkGroup {group.name} is disabled.")
        location = group.result_location(requested)
        bucket = location.removeprefix("s3://").partition("/")[0]
        submission = Submission(
            sql=sql,
            token=token,
            catalog=context.get("Catalog"),
            database=context.get("Database"),
            requested_location=requested,
            result_location=location,
            workgroup=group.name,
            region=region,
            statement_type="DML",
            is_select=False,
            parameters=tuple(request.get("ExecutionParameters") or ()),
        )
        known = self._history.known(submission)
        if known is not None:
            return {"QueryExecutionId": known.query_id}
        owner = moto_seams.bucket_owner(bucket)
        if owner is None:
            raise RequestRefused(f"Unable to verify/create output bucket {bucket}")
        if configuration.get("ExpectedBucketOwner") not in (None, owner):
            raise RequestRefused(f"Access denied when writing output to {location}: the bucket has another owner")
        statement = read_statement(sql)
        if isinstance(statement, Unload):
            parse_select(statement.select)
        elif isinstance(statement, Select):
            parse_select(statement.sql)
            submission = replace(submission, is_select=True)
        execution, is_new = self._history.create(submission)
        if is_new:
            self._runner.start(execution, statement)
        return {"QueryExecutionId": execution.query_id}

    def _find(self, query_id: object) -> Execution:
        execution = self._history.get(str(query_id))
        if execution is None:
            raise RequestRefused(f"QueryExecution {query_id} was not found")
        return execution

    def _get(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        return {"QueryExecution": self._find(request.get("QueryExecutionId")).describe()}

    def _batch_get(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        ids = list(request.get("QueryExecutionIds") or ())
        if not 1 <= len(ids) <= PAGE:
            raise RequestRefused(f"QueryExecutionIds must have 1 to {PAGE} items, not {len(ids)}")
        found = [(query_id, self._history.get(str(query_id))) for query_id in ids]
        missing = [
            {
                "QueryExecutionId": query_id,
                "ErrorCode": "INVALID_QUERY_EXECUTION_ID",
                "ErrorMessage": f"QueryExecution {query_id} was not found",
            }
            for query_id, execution in found
            if execution is None
        ]
        return {
            "QueryExecutions": [execution.describe() for _, execution in found if execution is not None],
            "UnprocessedQueryExecutionIds": missing,
        }

    def _list(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        workgroup = str(request.get("WorkGroup") or PRIMARY)
        self._workgroups.get(workgroup)
        newest_first = [
            each
            for each in reversed(self._history.all())
            if each.submission.workgroup == workgroup and self._history.get(each.query_id) is not None
        ]
        after = request.get("NextToken")
        if (
            after is not None
        ):  # the token names the last one shown, so that queries started since do not shift the pages
            last = self._find(after)
            newest_first = [each for each in newest_first if each.number < last.number]
        page = newest_first[: min(int(request.get("MaxResults") or PAGE), PAGE)]
        answer: dict[str, Any] = {"QueryExecutionIds": [each.query_id for each in page]}
        if len(page) < len(newest_first):
            answer["NextToken"] = page[-1].query_id
        return answer

    def _stop(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        self._runner.stop(self._find(request.get("QueryExecutionId")))
        return {}

    def _results(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        execution = self._find(request.get("QueryExecutionId"))
        if execution.state != SUCCEEDED:
            state = f"Current state: {execution.state}"
            finished = "did not finish successfully. " if execution.state in FINAL else "has not yet finished. "
            raise RequestRefused(f"Query {finished}{state}", "INVALID_QUERY_EXECUTION_ID")
        header = [tuple(name for name, _ in execution.columns)] if execution.columns else []
        rows: list[tuple[str | None, ...]] = [*header, *execution.rows]
        start = int(request.get("NextToken") or 0)
        size = min(int(request.get("MaxResults") or RESULT_PAGE), RESULT_PAGE)
        answer: dict[str, Any] = {
            "ResultSet": {
                "Rows": [
                    {"Data": [{} if value is None else {"VarCharValue": value} for value in row]}
                    for row in rows[start : start + size]
                ],
                "ResultSetMetadata": {
                    "ColumnInfo": [
                        {
                            "CatalogName": "hive",
                            "SchemaName": "",
                            "TableName": "",
                            "Name": name,
                            "Label": name,
                            "Type": kind,
                            "Nullable": "UNKNOWN",
                            "CaseSensitive": kind == "varchar",
                        }
                        for name, kind in execution.columns
                    ]
                },
            },
            "UpdateCount": 0,
        }
        if start + size < len(rows):
            answer["NextToken"] = str(start + size)
        return answer

    def _runtime_statistics(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        execution = self._find(request.get("QueryExecutionId"))
        answer: dict[str, Any] = {"Timeline": execution.statistics()}
        answer["Timeline"].pop("DataScannedInBytes")
        answer["Timeline"].pop("DataManifestLocation", None)
        if execution.state == SUCCEEDED:
            answer["Rows"] = {
                "OutputRows": execution.output_rows or 0,
                "OutputBytes": execution.output_bytes,
                "InputBytes": execution.scanned_bytes,
            }
        return {"QueryRuntimeStatistics": answer}

    def _create_workgroup(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        name, description = str(request.get("Name")), str(request.get("Description", ""))
        self._workgroups.create(name, description, request.get("Configuration") or {})
        return {}

    def _get_workgroup(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        return {"WorkGroup": self._workgroups.get(str(request.get("WorkGroup"))).describe()}

    def _update_workgroup(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        updates = request.get("ConfigurationUpdates") or {}
        name = str(request.get("WorkGroup"))
        self._workgroups.update(name, request.get("State"), request.get("Description"), updates)
        return {}

    def _delete_workgroup(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        self._workgroups.delete(str(request.get("WorkGroup")))
        return {}

    def _list_workgroups(self, request: dict[str, Any], region: str) -> dict[str, Any]:
        shown = ("Name", "State", "Description", "CreationTime")
        groups = [group.describe() for group in self._workgroups.all()]
        return {"WorkGroups": [{name: group[name] for name in shown} for group in groups]}
