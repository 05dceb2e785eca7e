"""What runs in a function's subprocess: imports the handler, then serves one invocation after the other.

Started as a plain file, with the standard library only: the function's own packages come first on the path, and a copy
of this project in its zip must win over the one that the server runs from.

Messages over the inherited socket are four bytes of length and a JSON object. The first one out is `{"ready": true}`
or `{"ready": false, "payload": ...}`; then for each `{"event", "request_id", "function_arn", "seconds"}` in there is
one `{"ok", "payload"}` out. A thread of its own reads, so that the end of the server is noticed while a handler runs:
the whole process group then ends. What a handler prints goes to the server's stderr.

Errors are named as Lambda's own Python runtime names them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LENGTH = struct.Struct(">I")
Message = dict[str, Any]
Handler = Callable[[Any, Any], Any]


def pack(message: Message) -> bytes:
    """A message with its length before it."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


@dataclass(frozen=True, slots=True)
class Context:
    """The second argument of a handler, as far as it is served here."""

    function_name: str
    function_version: str
    invoked_function_arn: str
    memory_limit_in_mb: str
    aws_request_id: str
    log_group_name: str
    log_stream_name: str
    deadline: float
    client_context: None = None
    identity: None = None

    def get_remaining_time_in_millis(self) -> int:
        """Until the invocation times out; never below 0."""
        return max(int((self.deadline - time.monotonic()) * 1000), 0)


class Fault(Exception):
    """An error of the runtime, not of the handler."""

    def __init__(self, kind: str, message: str, trace: list[str] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.trace = trace or []


def error_payload(kind: str, message: str, request_id: str, trace: list[str]) -> str:
    """The document of a failed invocation."""
    return json.dumps({"errorMessage": message, "errorType": kind, "requestId": request_id, "stackTrace": trace})


def _payload_of(error: Exception, request_id: str) -> str:
    if isinstance(error, Fault):
        return error_payload(error.kind, str(error), request_id, error.trace)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return error_payload(type(error).__name__, str(error), request_id, traceback.format_list(frames))


def load(name: str) -> Handler:
    """The function that `Handler` names. `Fault`, or whatever the module raised."""
    module, dot, function = name.rpartition(".")
    if not dot:
        message = f"Bad handler '{name}': not enough values to unpack (expected 2, got 1)"
        raise Fault("Runtime.MalformedHandlerName", message)
    try:
        found = importlib.import_module(module.replace("/", "."))
    except ImportError as error:
        raise Fault("Runtime.ImportModuleError", f"Unable to import module '{module}': {error}") from error
    except SyntaxError as error:
        where = [f'  File "{error.filename}" Line {error.lineno}\n    {error.text}']
        raise Fault("Runtime.UserCodeSyntaxError", f"Syntax error in module '{module}': {error}", where) from error
    handler: Handler | None = getattr(found, function, None)
    if handler is None:
        raise Fault("Runtime.HandlerNotFound", f"Handler '{function}' missing on module '{module}'")
    return handler


def serve(handler: Handler, message: Message) -> Message:
    """Runs one invocation. `SystemExit` passes: it ends the process, as on Lambda."""
    request_id = str(message["request_id"])
    context = Context(
        function_name=os.environ["AWS_LAMBDA_FUNCTION_NAME"],
        function_version=os.environ["AWS_LAMBDA_FUNCTION_VERSION"],
        invoked_function_arn=str(message["function_arn"]),
        memory_limit_in_mb=os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"],
        aws_request_id=request_id,
        log_group_name=os.environ["AWS_LAMBDA_LOG_GROUP_NAME"],
        log_stream_name=os.environ["AWS_LAMBDA_LOG_STREAM_NAME"],
        deadline=time.monotonic() + float(message["seconds"]),
    )
    try:
        try:
            event = json.loads(message["event"])
        except ValueError as error:
            raise Fault("Runtime.UnmarshalError", f"Unable to unmarshal input: {error}") from error
        result = handler(event, context)
        try:
            return {"ok": True, "payload": json.dumps(result)}
        except (TypeError, ValueError) as error:
            raise Fault("Runtime.MarshalError", f"Unable to marshal response: {error}") from error
    except Exception as error:  # noqa: BLE001 - whatever the handler raised is the answer
        return {"ok": False, "payload": _payload_of(error, request_id)}


def _end_group() -> None:
    """The server is gone: nothing that this process has started outlives it either."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _read_messages(channel: socket.socket, inbox: queue.SimpleQueue[Message]) -> None:
    with contextlib.suppress(OSError), channel.makefile("rb") as stream:
        while len(head := stream.read(LENGTH.size)) == LENGTH.size:
            (length,) = LENGTH.unpack(head)
            body = stream.read(length)
            if len(body) != length:
                break
            inbox.put(json.loads(body))
    _end_group()


def main(descriptor: int, folder: str, handler_name: str) -> None:
    """Serves until the server ends this process or is gone itself."""
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read_messages, args=(channel, inbox), daemon=True).start()
    sys.path.insert(0, folder)
    # Lambda's runtime sets the root logger up before the handler is imported: a handler's basicConfig changes nothing.
    logs = logging.StreamHandler(sys.stderr)
    logs.setFormatter(logging.Formatter("[%(levelname)s]\t%(asctime)s\t%(message)s"))
    logging.getLogger().addHandler(logs)
    try:
        handler = load(handler_name)
    except Exception as error:  # noqa: BLE001 - whatever the module raised is the answer
        channel.sendall(pack({"ready": False, "payload": _payload_of(error, "")}))
        sys.exit(1)
    channel.sendall(pack({"ready": True}))
    while True:
        channel.sendall(pack(serve(handler, inbox.get())))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
