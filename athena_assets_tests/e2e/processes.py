"""Callers that are operating-system processes, to be killed and frozen. See worker.py for what they say."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from athena_assets import Target
from athena_assets_tests.e2e.lake import LEASE, Lake, wait_until


class Nursery:
    """A process that has imported everything, and forks workers. A fork costs a tenth of a start."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._control, theirs = socket.socketpair()
        self._replies = self._control.makefile("r")
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "athena_assets_tests.e2e.worker"],
                stdin=theirs.fileno(),
                env={**os.environ, **(environment or {})},
            )

    def fork(self) -> tuple[int, socket.socket]:
        """The process id of a new worker, and the socket that it reads from and speaks to."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            return int(self._replies.readline()), ours

    def close(self) -> None:
        self._replies.close()
        self._control.close()
        self._process.wait()


@functools.cache
def nursery() -> Nursery:
    """The one of this test process."""
    found = Nursery()
    atexit.register(found.close)
    return found


class ProcessCaller:
    """One process that publishes when told to."""

    def __init__(self, lake: Lake, lease: float = LEASE, parent: Nursery | None = None) -> None:
        self._pid, self._channel = (parent or nursery()).fork()
        self._said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        settings = lake.settings
        self._tell(
            {
                "endpoint_url": settings.endpoint_url,
                "output_location": settings.output_location,
                "lease_seconds": lease,
            }
        )

    def publish(self, target: Target, **arguments: Any) -> None:
        self._said.clear()
        self._tell(
            {
                "target": {
                    "name": target.name,
                    "query": target.query,
                    "location": target.location,
                    "database": target.database,
                    "mode": str(target.mode),
                    "clean_after_failure": target.clean_after_failure,
                    "keep_previous": target.keep_previous,
                    "on_conflict": str(target.on_conflict),
                    "glue_table": target.glue_table,
                    "guard": str(target.guard),
                },
                "arguments": arguments,
            }
        )

    def _tell(self, message: dict[str, Any]) -> None:
        self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        with self._channel.makefile("r") as lines:
            try:
                for line in lines:
                    self._said.append(json.loads(line))
            except (ConnectionResetError, ValueError):
                return  # killed while it spoke

    @property
    def clock(self) -> float:
        """What it took for the time, Unix seconds, when it began the last `publish`."""
        return float(wait_until(lambda: [each["clock"] for each in list(self._said) if "clock" in each], "it began")[0])

    def told(self, event: str) -> bool:
        return any(each.get("story", "").startswith(event) for each in list(self._said))

    def result(self, timeout: float = 60) -> dict[str, Any]:
        """What the last `publish` ended in: {"outcome": class name, ...} or {"error": class name, ...}."""

        found: dict[str, Any] = wait_until(self.ended, "the worker ended its publication", timeout)
        return found

    def ended(self) -> dict[str, Any] | None:
        """How the last `publish` ended, if it has."""
        return next((each for each in list(self._said) if "outcome" in each or "error" in each), None)

    def signal(self, number: int) -> None:
        if self.alive:
            os.kill(self._pid, number)

    @property
    def alive(self) -> bool:
        return self._reader.is_alive()

    def wait(self, timeout: float = 60) -> None:
        """Until the process has ended."""
        self._reader.join(timeout)
        assert not self.alive, "the worker did not end"

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        self.kill()
        self._channel.close()


@contextmanager
def processes(lake: Lake, count: int, lease: float = LEASE) -> Iterator[list[ProcessCaller]]:
    callers = [ProcessCaller(lake, lease) for _ in range(count)]
    try:
        yield callers
    finally:
        for caller in callers:
            caller.close()
