"""What AWS Step Functions does and moto's does not, done before and after moto serves a request.

- CreateStateMachine: a name that is taken by another definition or role is refused.
- Fail: an error may be named `States.Timeout` and the like, as one that was caught before. moto breaks off there, so it
  is given such a name with a mark before it, which no answer shows.
- StartExecution: one at a time, so that of two with the same name one finds the other; a name is made up where none is
  given; an unfit one is refused.
- StopExecution: ABORTED at once, with the caller's error and cause, whatever the present task is doing. The invocation
  of a Lambda function goes on, as on AWS; its result is lost.
- GetExecutionHistory: nothing after the end; `reverseOrder`, `maxResults` and `nextToken`.
- DescribeExecution: `stopDate` of one that has timed out, and of one that was stopped, which moto moves.
- A call of a task whose answer is lost is an SdkClientException of that service, which Retry can name. To moto it would
  be States.Runtime.
"""

from __future__ import annotations

import io
import json
import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from athena_assets.local import moto_task_seams
from athena_assets.local.error_replies import json_error
from athena_assets.local.http_server import Reply
from athena_assets.local.identify import Identity, access_key

LOST = ("SdkClientException", "Unable to execute HTTP request: the connection was closed before the answer")
# Of a task that timed out, moto still tells how it went, once it has gone.
_LATE = frozenset({"TaskSucceeded", "TaskFailed"})
_END = {"ABORTED": "ExecutionAborted", "TIMED_OUT": "ExecutionTimedOut"}
_UNFIT_NAME = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]")
_MARK = "embedded-aws~"
_PAGE = 100
_MOST = 1000

Moto = Callable[[str, dict[str, Any]], Reply]


def is_task(environ: dict[str, Any]) -> bool:
    """Whether moto's Step Functions sent this request."""
    return access_key(environ) == moto_task_seams.CALLER


class StatesGate:
    """Serves Step Functions."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto
        self._lock = threading.Lock()  # for what moto checks and then does
        self._originals: dict[str, str] = {}  # definitions as they were given, by what moto has of them

    def serve(self, identity: Identity, environ: dict[str, Any], body: bytes) -> Reply:
        """Runs one request."""
        reply = self._serve(identity, environ, body)
        shown = reply.body.replace(_MARK.encode(), b"")
        headers = [field for field in reply.headers if field[0].lower() != "content-length"]
        return replace(reply, headers=headers, body=shown)

    def _serve(self, identity: Identity, environ: dict[str, Any], body: bytes) -> Reply:
        moto_task_seams.reflect_stops()
        try:
            request = json.loads(body or b"{}")
        except ValueError:
            request = {}
        match identity.operation:
            case "CreateStateMachine" | "UpdateStateMachine":
                return self._define(identity, request, environ)
            case "DescribeStateMachine" | "DescribeStateMachineForExecution":
                return self._definition(environ)
            case "StartExecution":
                return self._start(request, environ)
            case "StopExecution":
                execution = moto_task_seams.find_execution(str(request.get("executionArn")))
                if execution is not None:
                    stopped = moto_task_seams.stop_execution(execution, request.get("error"), request.get("cause"))
                    return _answer({"stopDate": _seconds(stopped)})
            case "DescribeExecution":
                return self._describe(request, environ)
            case "GetExecutionHistory":
                return self._history(request, environ)
            case _:
                pass
        return self._moto("states", environ)

    def _define(self, identity: Identity, request: dict[str, Any], environ: dict[str, Any]) -> Reply:
        text = request.get("definition")
        if text is not None:
            marked = mark_errors(str(text))
            self._originals[marked] = str(text)
            request = {**request, "definition": marked}
        with self._lock:
            if identity.operation == "CreateStateMachine":
                known = moto_task_seams.find_state_machine(identity.region, str(request.get("name")))
                if known is not None and known != (request.get("definition"), request.get("roleArn")):
                    name = request.get("name")
                    return json_error(400, "StateMachineAlreadyExists", f"State Machine Already Exists: '{name}'")
            return self._moto("states", with_body(environ, json.dumps(request).encode()))

    def _definition(self, environ: dict[str, Any]) -> Reply:
        reply = self._moto("states", environ)
        if reply.status != 200:
            return reply
        described = json.loads(reply.body)
        original = self._originals.get(described["definition"], described["definition"])
        return _answer({**described, "definition": original})

    def _start(self, request: dict[str, Any], environ: dict[str, Any]) -> Reply:
        name = request.get("name")
        if name is None:
            request = {**request, "name": str(uuid.uuid4())}
        elif not 1 <= len(str(name)) <= 80 or _UNFIT_NAME.search(str(name)):
            return json_error(400, "InvalidName", f"Invalid Name: '{name}'")
        moto_task_seams.prepare_callers()
        with self._lock:
            return self._moto("states", with_body(environ, json.dumps(request).encode()))

    def _describe(self, request: dict[str, Any], environ: dict[str, Any]) -> Reply:
        reply = self._moto("states", environ)
        execution = moto_task_seams.find_execution(str(request.get("executionArn")))
        if reply.status != 200 or execution is None:
            return reply
        described = json.loads(reply.body)
        end = moto_task_seams.end_of(execution)
        if end is not None and described["status"] in _END:
            described["stopDate"] = _seconds(end)
        return _answer(described)

    def _history(self, request: dict[str, Any], environ: dict[str, Any]) -> Reply:
        reply = self._moto("states", environ)
        execution = moto_task_seams.find_execution(str(request.get("executionArn")))
        if reply.status != 200 or execution is None:
            return reply
        events = without_late(json.loads(reply.body)["events"])
        end = moto_task_seams.end_of(execution)
        if end is not None and execution.status in _END:
            events = ended(events, execution, end)
        if request.get("reverseOrder"):
            events.reverse()
        first = int(request.get("nextToken") or 0)
        size = min(int(request.get("maxResults") or _PAGE), _MOST)
        page: dict[str, Any] = {"events": events[first : first + size]}
        if first + size < len(events):
            page["nextToken"] = str(first + size)
        return _answer(page)


def mark_errors(definition: str) -> str:
    """The definition with a mark before the errors that its Fail states may name; as it is if there are none.

    Those in the branches of a Parallel or a Map are left alone: a Catch around them must find the error by its name.
    """
    try:
        document = json.loads(definition)
        states = [state for state in document["States"].values() if state["Type"] == "Fail"]
    except (ValueError, LookupError, TypeError, AttributeError):
        return definition  # moto says what is wrong with it
    for state in states:
        if str(state.get("Error", "")).startswith("States."):
            state["Error"] = _MARK + state["Error"]
        elif "ErrorPath" in state:
            state["ErrorPath"] = f"States.Format('{_MARK}{{}}', {state['ErrorPath']})"
    return json.dumps(document) if states else definition


def without_late(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The history without what tasks did after their timeout; ids count on without a gap."""
    timed_out: set[int] = set()
    kept: list[dict[str, Any]] = []
    numbers = {0: 0}
    for event in events:
        before = event["previousEventId"]
        if event["type"] == "TaskTimedOut":
            timed_out.add(before)
        elif event["type"] in _LATE and before in timed_out:
            numbers[event["id"]] = numbers[before]
            continue
        numbers[event["id"]] = len(kept) + 1
        kept.append({**event, "id": len(kept) + 1, "previousEventId": numbers[before]})
    return kept


def ended(events: list[dict[str, Any]], execution: Any, end: datetime) -> list[dict[str, Any]]:
    """The history of an execution that was stopped, or ran out of time: up to there, and its end as the last event."""
    kind = _END[execution.status]
    stop = _seconds(end)
    kept = [event for event in events if event["type"] != kind and event["timestamp"] <= stop]
    details = {name: value for name, value in (("error", execution.error), ("cause", execution.cause)) if value}
    name = f"e{kind[1:]}EventDetails"
    last = {"id": len(kept) + 1, "previousEventId": 0, "timestamp": stop, "type": kind, name: details}
    return [*kept, last]


def with_body(environ: dict[str, Any], body: bytes) -> dict[str, Any]:
    """The same request with another body."""
    return {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}


def _seconds(moment: datetime) -> float:
    """As AWS tells a time: in whole milliseconds."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000).timestamp()


def _answer(document: dict[str, Any]) -> Reply:
    return Reply(200, [("Content-Type", "application/x-amz-json-1.0")], json.dumps(document).encode())
