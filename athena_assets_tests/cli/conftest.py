"""The command line on an embedded AWS that the environment names, as a user's shell would."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from athena_assets import Target
from athena_assets.cli import run
from athena_assets.local import EmbeddedAws
from athena_assets_tests.e2e.lake import LEASE, ROWS_PER_FILE, Lake

PROJECT = Path(__file__).parents[2]
FIELDS = (
    "name",
    "query",
    "location",
    "database",
    "mode",
    "on_conflict",
    "reuse",
    "guard",
    "keep_previous",
    "retries",
    "dimensions",
)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start() as aws:
        yield aws


@pytest.fixture
def lake(server: EmbeddedAws) -> Iterator[Lake]:
    server.reset()
    server.faults.rows_per_file(ROWS_PER_FILE)
    yield Lake(server)
    server.faults.clear()


@dataclass(frozen=True, slots=True)
class Ended:
    """One invocation: exit status and what it printed."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as one JSON document; an error of the test if it is anything else."""
        return json.loads(self.out)


class Cli:
    """`athena-assets`, in this process or in one of its own, with the targets of a module that the test writes."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.module = f"targets_{uuid.uuid4().hex[:8]}"
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def define(self, *targets: Target) -> str:
        """Writes the module; returns the first target's MODULE:NAME."""
        lines = ["from athena_assets import Target"]
        for target in targets:
            values = ", ".join(f"{name}={str(getattr(target, name))!r}" for name in FIELDS[:8])
            numbers = ", ".join(f"{name}={getattr(target, name)!r}" for name in FIELDS[8:])
            lines.append(f"{target.name} = Target({values}, {numbers})")
        lines.append(f"everything = [{', '.join(target.name for target in targets)}]")
        self.write("\n".join(lines))
        return f"{self.module}:{targets[0].name}"

    def write(self, source: str) -> None:
        (self.folder / f"{self.module}.py").write_text(source + "\n")
        importlib.invalidate_caches()

    def __call__(self, *arguments: str, answer: str = "") -> Ended:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        self._capsys.readouterr()
        status = run(list(arguments))
        said = self._capsys.readouterr()
        return Ended(status, said.out, said.err)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The same in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "athena_assets.cli", *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def cli(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cli]:
    for name, value in lake.aws.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ATHENA_ASSETS_OUTPUT_LOCATION", str(lake.settings.output_location))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    commands = Cli(tmp_path, capsys, monkeypatch)
    monkeypatch.setenv("ATHENA_ASSETS_TARGETS", commands.module)
    yield commands
    sys.path[:] = path
    sys.modules.pop(commands.module, None)


LEASE_OPTION = ("--lease-seconds", str(LEASE))
