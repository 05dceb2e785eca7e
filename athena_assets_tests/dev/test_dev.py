"""`make dev`: everything up with the project's settings in force, and everything gone afterwards."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from athena_assets.core.register import decode_register
from athena_assets.dev.__main__ import main
from athena_assets.local import EmbeddedAws
from athena_assets_tests.e2e.lake import wait_until
from athena_assets_tests.orchestration.live import UI

PROJECT = Path(__file__).parents[2]
SETTINGS = """
{ instance { info daemonHealth { allDaemonStatuses { daemonType healthy required } }
             poolConfig { defaultPoolLimit poolGranularity } runQueueConfig { tagConcurrencyLimitsYaml } } }"""


class Program:
    """A process of its own group, as a shell makes one for `make dev`, and all that it starts."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.process = subprocess.Popen(
            command,
            env=os.environ | environment | {"PYTHONPATH": str(PROJECT), "MARKED": self.mark},
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def said(self, pattern: str) -> str | None:
        found = re.search(pattern, "".join(list(self.lines)))
        return None if found is None else found.group(1)

    def waited_for(self, pattern: str, timeout: float = 60) -> str:
        def look() -> str | None:
            assert self.process.poll() is None, "".join(self.lines)
            return self.said(pattern)

        return str(wait_until(look, f"it said {pattern!r}; so far {self.lines[-20:]}", timeout))

    def living(self) -> list[str]:
        """The command lines of all processes that inherited our mark, whoever their parent is now."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"MARKED={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # ended meanwhile, or another user's
        return found

    def ended(self, timeout: float = 60) -> int:
        status = self.process.wait(timeout)
        self._reader.join(10)
        return status

    def close(self) -> None:
        """After a test that failed half-way."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.close()


def dev(programs: list[Program], home: Path, **environment: str) -> tuple[Program, EmbeddedAws, UI]:
    program = Program([sys.executable, "-m", "athena_assets.dev", "--home", str(home)], environment)
    programs.append(program)
    aws = EmbeddedAws.attach(program.waited_for(r"embedded AWS at (http://\S+?),"))
    return program, aws, UI(program.waited_for(r"Dagster is up: (http://\S+) ", 150), "athena_assets")


@pytest.mark.long
@pytest.mark.timeout(400)
def test_make_dev_materializes_with_the_projects_limits_in_force_and_ctrl_c_ends_everything(
    programs: list[Program], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("run_monitoring: {enabled: false}\n")  # an old one: ours replaces it
    theirs = {"AWS_PROFILE": "mine", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "DAGSTER_HOME": "/nowhere"}
    theirs |= {"AWS_CONFIG_FILE": str(tmp_path / "config"), "ATHENA_ASSETS_BUCKET": "theirs"}
    program, aws, dagster = dev(programs, home, **theirs)

    settings = dagster.ask(SETTINGS)["instance"]
    assert settings["poolConfig"] == {"defaultPoolLimit": 1, "poolGranularity": None}
    assert yaml.safe_load(settings["runQueueConfig"]["tagConcurrencyLimitsYaml"]) == [
        {"key": "athena_assets/slot", "limit": 1, "value": {"applyLimitPerUniqueValue": True}}
    ]
    instance = yaml.safe_load(settings["info"])
    assert instance["run_monitoring"]["enabled"] is True
    assert instance["run_monitoring"]["free_slots_after_run_end_seconds"] == 300
    assert instance["telemetry"] == {"enabled": False}

    assert dagster.end(dagster.materialize("airport_traffic")) == "SUCCESS"
    assert list((home / "history").rglob("*.db"))
    s3 = aws.client("s3")
    found = s3.list_objects_v2(Bucket="athena-assets-demo", Prefix="published/airport_traffic/")["Contents"]
    assert len(found) >= 1
    assert [query.state for query in aws.queries()] == ["SUCCEEDED"]
    daemons = dagster.ask(SETTINGS)["instance"]["daemonHealth"]["allDaemonStatuses"]
    assert {each["daemonType"] for each in daemons if each["required"] and each["healthy"]} >= {
        "QUEUED_RUN_COORDINATOR",
        "MONITORING",
    }

    assert len(program.living()) >= 4  # ours, the AWS, the webserver, the daemon
    os.killpg(program.process.pid, signal.SIGINT)
    assert program.ended() == 0, "".join(program.lines)
    assert program.lines[-1] == "[dev] everything is stopped.\n"
    assert program.living() == []


@pytest.mark.long
@pytest.mark.timeout(400)
def test_terminating_make_dev_in_mid_query_stops_the_query_and_leaves_no_process(
    programs: list[Program], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 3000))
            taken.listen()
        except OSError:
            pass  # somebody has it already, which is what is wanted
        program, aws, dagster = dev(programs, tmp_path / "home")
        assert program.said(r"Dagster is up: \S+:(\d+)") != "3000"
    hold = aws.faults.hold_queries()
    dagster.materialize("airport_traffic")
    wait_until(lambda: aws.faults.held(hold), "the run's query is held", 120)
    key = next(
        each["Key"]
        for each in aws.client("s3").list_objects_v2(Bucket="athena-assets-demo", Prefix="_athena_assets/")["Contents"]
        if each["Key"].endswith("register.json")
    )
    body = aws.client("s3").get_object(Bucket="athena-assets-demo", Key=key)["Body"].read()
    assert decode_register(body).state in ("submitting", "running")
    program.process.send_signal(signal.SIGTERM)
    # The AWS goes last, so that the run can tidy up.
    wait_until(lambda: [query.state for query in aws.queries()] == ["CANCELLED"], "the run has stopped its query")
    assert program.ended(90) == 143
    assert program.living() == []


def test_a_port_that_is_taken_is_refused_before_anything_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    assert f"port {port} is taken. Nothing was started." in capsys.readouterr().out


def test_the_makefile_runs_it_in_the_processs_own_stead() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    assert re.search(
        r"^dev: \$\(VENV\)/\.dev-installed .*\n\t@exec \$\(BIN\)/python -m athena_assets\.dev", makefile, re.M
    )
