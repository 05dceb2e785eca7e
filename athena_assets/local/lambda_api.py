"""Lambda on the embedded AWS: functions are kept by moto, and run by us.

Invoke runs the handler that the function's configuration names, from the zip of its version, in a subprocess (see
`sandboxes`). All else is moto's; a change of a function ends its environments.

Not as on AWS: any `python` runtime is the server's own Python, whose installed packages a function finds after those
in its zip; memory, architecture, layers and concurrency limits mean nothing; an Event invocation is tried once; there
are no tails of logs.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import uuid
import zipfile
from typing import Any
from urllib.parse import parse_qs

from athena_assets.local import moto_task_seams
from athena_assets.local.error_replies import json_error
from athena_assets.local.http_server import Headers, Reply
from athena_assets.local.identify import Identity
from athena_assets.local.moto_seams import ACCOUNT, MotoApps
from athena_assets.local.moto_task_seams import FunctionVersion
from athena_assets.local.sandboxes import Exited, Finished, Outcome, Sandboxes, TimedOut

PAYLOAD_LIMIT = 6 * 1024 * 1024
_PARTIAL_ARN = re.compile(r"^\d{12}:function:")
_CHANGES = frozenset({"DeleteFunction", "UpdateFunctionCode", "UpdateFunctionConfiguration"})


class LambdaApi:
    """Serves Lambda. Invocations run in the thread of their request, Event ones in one of their own."""

    def __init__(self, moto: MotoApps, sandboxes: Sandboxes) -> None:
        self._moto = moto
        self._sandboxes = sandboxes

    def serve(self, identity: Identity, environ: dict[str, Any], body: bytes) -> Reply:
        """Runs one request."""
        if identity.operation == "Invoke":
            return self._invoke(identity, environ, body)
        reply = self._moto.call("lambda", environ)
        if identity.operation in _CHANGES and reply.status < 300 and identity.key is not None:
            self._sandboxes.retire(identity.region, function_name(identity.key))
        return reply

    def _invoke(self, identity: Identity, environ: dict[str, Any], body: bytes) -> Reply:
        name = _PARTIAL_ARN.sub("", identity.key or "")
        qualifier = parse_qs(str(environ.get("QUERY_STRING", ""))).get("Qualifier", [None])[0]
        try:
            function = moto_task_seams.find_function(identity.region, name, qualifier)
        except ValueError as error:
            return json_error(400, "InvalidParameterValueException", f"The embedded AWS cannot run this: {error}")
        if function is None:
            arn = name if name.startswith("arn:") else _arn(identity.region, name)
            told = f"{arn}:{qualifier}" if qualifier is not None and ":" not in name else arn
            return json_error(404, "ResourceNotFoundException", f"Function not found: {told}", Type="User")
        if len(body) > PAYLOAD_LIMIT:
            message = f"{len(body)} byte payload is too large for the RequestResponse invocation type"
            return json_error(413, "RequestTooLargeException", f"{message} (limit {PAYLOAD_LIMIT} bytes)", Type="User")
        try:
            event = (body or b"{}").decode()
            json.loads(event)
        except ValueError as error:
            message = f"Could not parse request body into json: {error}"
            return json_error(400, "InvalidRequestContentException", message, Type="User")
        try:
            self._sandboxes.unpack(function)
        except zipfile.BadZipFile as error:
            return json_error(502, "InvalidZipFileException", f"Lambda could not unzip the code: {error}", Type="User")
        request_id = str(uuid.uuid4())
        arn = _arn(identity.region, function.name)
        qualifier = qualifier or _qualifier(name)
        call = (function, event, request_id, f"{arn}:{qualifier}" if qualifier else arn, _endpoint(environ))
        headers = [("x-amzn-RequestId", request_id), ("Content-Type", "application/json")]
        match str(environ.get("HTTP_X_AMZ_INVOCATION_TYPE", "RequestResponse")):
            case "DryRun":
                return Reply(204, headers, b"")
            case "Event":
                threading.Thread(target=self._sandboxes.invoke, args=call, daemon=True).start()
                return Reply(202, headers, b"")
            case _:
                outcome = self._sandboxes.invoke(*call)
        return _answer(outcome, function, request_id, headers)


def _answer(outcome: Outcome, function: FunctionVersion, request_id: str, headers: Headers) -> Reply:
    ok, payload = _payload(outcome, function, request_id)
    if len(payload) > PAYLOAD_LIMIT:
        message = f"Response payload size exceeded maximum allowed payload size ({PAYLOAD_LIMIT} bytes)."
        ok, payload = False, _error("Function.ResponseSizeTooLarge", message)
    headers = [*headers, ("X-Amz-Executed-Version", function.version)]
    if not ok:
        headers.append(("X-Amz-Function-Error", "Unhandled"))
    return Reply(200, headers, payload.encode())


def _payload(outcome: Outcome, function: FunctionVersion, request_id: str) -> tuple[bool, str]:
    match outcome:
        case Finished(ok, payload):
            return ok, payload
        case TimedOut():
            told = f"Task timed out after {function.timeout:.2f} seconds"
            return False, _error("Sandbox.Timedout", f"RequestId: {request_id} Error: {told}")
        case Exited(status):
            told = f"RequestId: {request_id} Error: Runtime exited {exit_reason(status)}"
            return False, _error("Runtime.ExitError", told)


def _error(kind: str, message: str) -> str:
    return json.dumps({"errorType": kind, "errorMessage": message})


def exit_reason(status: int) -> str:
    """How Lambda tells the end of a runtime's process; the status is a subprocess's, negative for a signal."""
    if status == 0:
        return "without providing a reason"
    if status > 0:
        return f"with error: exit status {status}"
    return f"with error: signal: {(signal.strsignal(-status) or str(-status)).lower()}"


def _arn(region: str, name: str) -> str:
    return f"arn:aws:lambda:{region}:{ACCOUNT}:function:{name}"


def function_name(key: str) -> str:
    """The bare name in what a request names a function by: name, ARN or partial ARN, with or without a version."""
    return key.split("function:")[-1].split(":")[0]


def _qualifier(key: str) -> str | None:
    return key.split("function:")[-1].partition(":")[2] or None


def _endpoint(environ: dict[str, Any]) -> str:
    return f"http://127.0.0.1:{environ['SERVER_PORT']}"
