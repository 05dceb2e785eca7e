"""`dagster dev` (webserver, daemon, code server) as a group of processes of which nothing is left afterwards."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from athena_assets.dev.extra import ExtraMissing
from athena_assets.dev.server import PROJECT, StartFailed, our_environment

ORDERLY_SECONDS = 30.0  # runs are interrupted: each stops its query and frees its slot
GRACE_SECONDS = 5.0  # after SIGTERM, for what did not end by itself


def prepare_home(home: Path) -> Path:
    """Makes DAGSTER_HOME, with the project's dagster.yaml as it is now: elsewhere Dagster would not find it.

    Raises:
        StartFailed: there is none beside the package.
    """
    settings = PROJECT / "dagster.yaml"
    if not settings.is_file():
        raise StartFailed(
            "dagster dev",
            "the project's dagster.yaml and workspace.yaml are not beside the package.",
            not_done="Dagster was not started.",
            next_step="Run `make dev` in a checkout of the project.",
        )
    home = home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(settings, home / settings.name)
    return home


@dataclass(frozen=True, slots=True)
class DagsterDev:
    """A running `dagster dev`. A context manager: no process of its group outlives it."""

    process: subprocess.Popen[bytes]
    port: int
    home: Path

    @classmethod
    def start(cls, port: int, home: Path, environment: Mapping[str, str]) -> DagsterDev:
        """Starts it on the project, with nothing of the user's AWS and Dagster settings but `environment`.

        Raises:
            ExtraMissing: there is no webserver.
        """
        if importlib.util.find_spec("dagster_webserver") is None:
            raise ExtraMissing(
                "dagster dev",
                "dagster-webserver is not installed.",
                not_done="Dagster was not started.",
                next_step="pip install 'athena_assets[ui]'",
            )
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)],
            cwd=PROJECT,
            env=our_environment() | dict(environment) | {"DAGSTER_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a group of its own: Ctrl-C reaches it through us, in order
        )
        return cls(process, port, home)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether the webserver answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/server_info")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """Interrupts it as Ctrl-C would, waits, and ends by force what is left. Another Ctrl-C: at once."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._at_once)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(ORDERLY_SECONDS)
        # Its children may outlive it: a code server notices by the missing heartbeat only.
        self._signal_group(signal.SIGTERM)
        if not self._group_is_gone(GRACE_SECONDS):
            self._signal_group(signal.SIGKILL)
            self._group_is_gone(GRACE_SECONDS)
        self.process.wait()

    def _at_once(self, number: int, frame: FrameType | None) -> None:
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _group_is_gone(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.process.poll()  # a zombie of ours would count as a member
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
