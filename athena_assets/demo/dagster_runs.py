"""Dagster runs in processes of their own, as the command line starts them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from athena_assets.demo import guard
from athena_assets.demo.stage import ASSET, Mark, Stage, failed, until
from athena_assets.local import RequestRecord

SETTINGS = Path(__file__).resolve().parents[2] / "dagster.yaml"
DAGSTER_SECONDS = 240.0  # for a start or an end, on a machine that is very busy
LOG_LINES = 15  # of a failed run, in its error


@dataclass(frozen=True, slots=True)
class Run:
    """One `dagster asset materialize`. Its requests carry `name` in their user agent: the server's log tells them."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def sent(self, requests: Sequence[RequestRecord]) -> list[RequestRecord]:
        """Those of the requests that this run's process sent."""
        return [request for request in requests if f"app/{self.name}" in request.user_agent.split()]

    def succeeded(self) -> None:
        """Waits for its end. Raises StageFailed with the end of its log if it fails."""
        until(lambda: not self.alive, f"{self.name} has ended", DAGSTER_SECONDS)
        self.check()

    def check(self) -> None:
        """Raises StageFailed if it has failed already."""
        if self.process.poll() not in (None, 0):
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise failed(self.name, f"ended with status {self.process.returncode}:\n" + "\n".join([*lines, ""]))

    def kill(self, pid: int) -> int:
        """SIGKILL to `pid`, which must be this run's process, alive and a child of ours; returns how it ended."""
        if pid != self.process.pid or not self.alive:
            raise failed(self.name, f"process {pid} is not its process {self.process.pid}, so nothing was killed.")
        os.kill(pid, signal.SIGKILL)
        return self.process.wait()


class Runs:
    """Starts runs. A context manager: none of them outlives it."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self._stage = stage
        self._folder = folder
        self._started: list[Run] = []

    def start(self, name: str, lease: float | None = None) -> Run:
        """Materializes the asset in a Dagster instance of its own, as on another machine.

        Within one instance the asset's pool would let the processes in one after the other; nothing of Dagster's sees
        across instances. `lease` overrides the resource's lease_seconds.
        """
        home = self._folder / name
        home.mkdir()
        shutil.copy(SETTINGS, home)
        command = ["asset", "materialize", "-m", "athena_assets.definitions", "--select", ASSET]
        if lease is not None:
            # A run's configuration of a resource replaces all of it.
            athena = {"lease_seconds": lease, "output_location": self._stage.results}
            command += ["--config-json", json.dumps({"resources": {"athena": {"config": athena}}})]
        environment = guard.clean_environment(os.environ) | self._stage.aws.environment()
        environment |= {
            "DAGSTER_HOME": str(home),
            "ATHENA_ASSETS_BUCKET": self._stage.bucket,
            "ATHENA_ASSETS_OUTPUT_LOCATION": self._stage.results,
            "AWS_SDK_UA_APP_ID": name,
        }
        log = home / "run.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "athena_assets.demo.guard", "dagster", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=home,
            )
        run = Run(name, process, log)
        self._started.append(run)
        return run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Their whole world ends with them: there is nothing to leave tidy.
        for run in self._started:
            if run.alive:
                run.process.kill()
            run.process.wait()


def who_sent(runs: Sequence[Run], mark: Mark, service: str, operation: str, key_contains: str | None = None) -> str:
    """Names of the runs that sent such requests since, by the server's log."""
    requests = mark.requests(service, operation, key_contains)
    names = [run.name for run in runs if run.sent(requests)]
    return ", ".join(names) or "none"
