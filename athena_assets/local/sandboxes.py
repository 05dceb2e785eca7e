"""Execution environments of Lambda functions: one subprocess each, kept warm for the next invocation.

A subprocess serves one invocation at a time and one version of a function only; simultaneous invocations get one each.
It leads a process group of its own, so that its end is also that of what it has started. It dies with the server: it
reads from a socket whose other end is only here (see `lambda_runtime`), and if it is stopped, the kernel sends SIGHUP
and SIGCONT to a stopped group that has lost its parent.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from athena_assets.local import lambda_runtime
from athena_assets.local.client_environment import client_environment
from athena_assets.local.moto_task_seams import FunctionVersion

INIT_SECONDS = 10.0  # Lambda's own limit; past it, it starts anew within the invocation's time
IDLE_KEPT = 8  # of one function
LOOK_SECONDS = 0.2
EXIT_SECONDS = 2.0
# What a function gets of the server's own environment: how to run Python here, and nothing personal.
_INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class Finished:
    """The invocation ended; the payload is JSON. Not `ok`: it is the document of an error."""

    ok: bool
    payload: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended first: its exit status, negative for a signal."""

    status: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The process was killed, for the function's timeout had passed."""


Outcome = Finished | Exited | TimedOut


class Sandbox:
    """One subprocess. One thread uses it at a time, which the pool sees to."""

    def __init__(self, function: FunctionVersion, folder: Path, endpoint_url: str) -> None:
        self.function = function
        self.busy, self.retired, self.invocations = True, False, 0
        self._ready = False
        self._buffer = b""
        self._channel, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", lambda_runtime.__file__, str(theirs.fileno()), str(folder)]
            self.process = subprocess.Popen(
                [*command, function.handler],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),  # the server's own stdout is a pipe that nobody reads
                env=_environment(function, folder, endpoint_url),
                cwd=folder,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def invoke(self, event: str, request_id: str, function_arn: str) -> Outcome | None:
        """Runs one invocation. `None`: the process was gone before it was given the event."""
        self.invocations += 1
        seconds = self.function.timeout
        if not self._ready:
            try:
                first = self._receive(time.monotonic() + INIT_SECONDS + seconds)
            except TimeoutError:
                return TimedOut()
            if first is None:
                return Exited(self._status())
            if not first["ready"]:
                return Finished(False, json.dumps({**json.loads(first["payload"]), "requestId": request_id}))
            self._ready = True
        deadline = time.monotonic() + seconds
        message = {"event": event, "request_id": request_id, "function_arn": function_arn, "seconds": seconds}
        try:
            self._channel.settimeout(seconds)
            self._channel.sendall(lambda_runtime.pack(message))
        except TimeoutError:
            return TimedOut()
        except OSError:
            return None  # half a message is never run: the next environment may be given it
        try:
            answer = self._receive(deadline)
        except TimeoutError:
            return TimedOut()
        if answer is None:
            return Exited(self._status())
        return Finished(bool(answer["ok"]), str(answer["payload"]))

    def kill(self) -> None:
        """Ends the process and what it has started, if any of it still runs."""
        # The process itself may have been waited for: its number is then taken as long as the group has members.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """`kill`, and waits for the process."""
        self.kill()
        self.process.wait()

    def close(self) -> None:
        """After `stop`, by whoever used it last: another thread may still read from the socket before that."""
        self._channel.close()

    def _status(self) -> int:
        try:
            return self.process.wait(timeout=EXIT_SECONDS)
        except subprocess.TimeoutExpired:  # it closed its end of the socket and lives on
            self.stop()
            return self.process.wait()

    def _receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message; `None` once the process has ended. `TimeoutError` at the deadline."""
        size = lambda_runtime.LENGTH.size
        while True:
            if len(self._buffer) >= size:
                (length,) = lambda_runtime.LENGTH.unpack(self._buffer[:size])
                if len(self._buffer) >= size + length:
                    body, self._buffer = self._buffer[size : size + length], self._buffer[size + length :]
                    found: dict[str, Any] = json.loads(body)
                    return found
            # A process that has ended is not always seen as the end of the stream: what it forked may hold its socket.
            ended = not self.alive()
            left = deadline - time.monotonic()
            if left <= 0 and not ended:
                raise TimeoutError
            self._channel.settimeout(0.001 if ended else min(left, LOOK_SECONDS))
            try:
                chunk = self._channel.recv(1 << 20)
            except TimeoutError:
                if ended:
                    return None
                continue
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            self._buffer += chunk


def _environment(function: FunctionVersion, folder: Path, endpoint_url: str) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    variables = dict(function.variables)
    paths = [variables.get("PYTHONPATH", ""), inherited.get("PYTHONPATH", "")]
    return {
        **inherited,
        **variables,
        **client_environment(endpoint_url, function.region),
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": function.version,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": f"[{function.version}]{function.code_digest[:32]}",
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
        "LAMBDA_TASK_ROOT": str(folder),
        "_HANDLER": function.handler,
        "TZ": ":UTC",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


class Sandboxes:
    """All execution environments of the server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder_lock = threading.Lock()
        self._lock = threading.Lock()
        self._all: list[Sandbox] = []

    def invoke(
        self, function: FunctionVersion, event: str, request_id: str, function_arn: str, endpoint_url: str
    ) -> Outcome:
        """Runs one invocation in a warm environment, or in a new one."""
        while True:
            sandbox = self._take(function, endpoint_url)
            outcome: Outcome | None = None
            try:
                outcome = sandbox.invoke(event, request_id, function_arn)
            finally:
                self._give_back(sandbox, reusable=isinstance(outcome, Finished) and sandbox.alive())
            if outcome is not None:
                return outcome

    def _take(self, function: FunctionVersion, endpoint_url: str) -> Sandbox:
        folder = self.unpack(function)
        with self._lock:
            for sandbox in reversed(self._all):
                if not sandbox.busy and sandbox.function == function and sandbox.alive():
                    sandbox.busy = True
                    return sandbox
            # Started under the lock: whoever stops everything finds it in the list or comes before it.
            sandbox = Sandbox(function, folder, endpoint_url)
            self._all.append(sandbox)
            return sandbox

    def _give_back(self, sandbox: Sandbox, reusable: bool) -> None:
        with self._lock:
            same = [each for each in self._all if not each.busy and each.function == sandbox.function]
            known = sandbox in self._all  # not after `stop_all`
            if reusable and known and not sandbox.retired and len(same) < IDLE_KEPT:
                sandbox.busy = False
                return
            if known:
                self._all.remove(sandbox)
        sandbox.stop()
        sandbox.close()

    def retire(self, region: str, name: str) -> None:
        """The function has changed or is gone: idle environments end now, busy ones after their invocation."""
        with self._lock:
            found = [each for each in self._all if (each.function.region, each.function.name) == (region, name)]
            for sandbox in found:
                sandbox.retired = True
            idle = [sandbox for sandbox in found if not sandbox.busy]
            self._all = [sandbox for sandbox in self._all if sandbox not in idle]
        for sandbox in idle:
            sandbox.stop()
            sandbox.close()

    def stop_all(self) -> None:
        """Ends every environment, in the middle of its invocation too."""
        with self._lock:
            found, self._all = self._all, []
        for sandbox in found:
            sandbox.stop()
            if not sandbox.busy:
                sandbox.close()

    def kill_all(self) -> None:
        """For the server's end: takes no lock and waits for nothing."""
        for sandbox in list(self._all):
            sandbox.kill()

    def records(self) -> list[dict[str, Any]]:
        """JSON form of `FunctionRecord`s, in the order in which the processes were started."""
        with self._lock:
            return [
                {
                    "function_name": sandbox.function.name,
                    "pid": sandbox.process.pid,
                    "busy": sandbox.busy,
                    "invocations": sandbox.invocations,
                }
                for sandbox in self._all
                if sandbox.alive()
            ]

    def unpack(self, function: FunctionVersion) -> Path:
        """The folder of this code, made when it is first needed. `zipfile.BadZipFile` if it is no zip file."""
        folder = self._folder / "functions" / function.code_digest
        with self._folder_lock:
            if not folder.exists():
                folder.parent.mkdir(parents=True, exist_ok=True)
                part = Path(tempfile.mkdtemp(dir=folder.parent))
                try:
                    with zipfile.ZipFile(io.BytesIO(function.code)) as archive:
                        archive.extractall(part)
                    part.rename(folder)
                except BaseException:
                    shutil.rmtree(part, ignore_errors=True)
                    raise
        return folder
