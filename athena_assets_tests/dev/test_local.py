"""`athena-assets local`: what it prints is what another shell needs, and Ctrl-C ends all of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

PROJECT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "athena_assets.cli", "local"]


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env=os.environ | {"PYTHONPATH": str(PROJECT)} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def listens(endpoint_url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(endpoint_url).port or 0)) == 0


@pytest.mark.long
def test_another_shell_lets_the_state_machine_publish_that_is_printed() -> None:
    with start("--sample", "--state-machine", "--json") as local:
        assert local.stdout is not None
        printed = json.loads(local.stdout.readline())
        command = [sys.executable, "-m", "athena_assets.cli", "unload", "airport_traffic", "--json"]
        ended = subprocess.run(
            [*command, "--state-machine", printed["state_machine"]],
            env=os.environ | {"PYTHONPATH": str(PROJECT)} | printed["environment"],
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert ended.returncode == 0, ended.stderr
        [result] = json.loads(ended.stdout)["results"]
        assert result["outcome"] == "published"
        assert result["execution"].startswith(printed["state_machine"].replace(":stateMachine:", ":execution:"))
        local.send_signal(signal.SIGINT)
        assert local.wait(20) == 0


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_another_shell_publishes_the_sample_with_what_is_printed(number: signal.Signals, status: int) -> None:
    with start("--sample", AWS_PROFILE="mine") as local:
        assert local.stdout is not None
        printed: list[str] = []
        for line in local.stdout:
            printed.append(line)
            if line.startswith("Ctrl-C"):
                break
        assert "flights 336,776" in "".join(printed)
        shell = [line for line in printed if line.startswith(("export ", "unset "))]
        script = "".join(shell) + f"{sys.executable} -m athena_assets.cli unload airport_traffic --json\n"
        environment = os.environ | {"PYTHONPATH": str(PROJECT), "AWS_PROFILE": "mine"}
        ended = subprocess.run(
            ["sh", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=100
        )
        assert ended.returncode == 0, ended.stderr
        [result] = json.loads(ended.stdout)["results"]
        assert result["location"] == "s3://athena-assets-demo/published/airport_traffic/"
        assert result["publication"]["rows"] == 105
        endpoint = next(line for line in shell if "AWS_ENDPOINT_URL" in line).partition("=")[2].strip()
        assert listens(endpoint)
        os.killpg(local.pid, number)
        local.communicate(timeout=30)
    assert local.returncode == status
    assert not listens(endpoint)


def test_as_json_the_start_is_one_line_of_json() -> None:
    with start("--json") as local:
        assert local.stdout is not None
        document = json.loads(local.stdout.readline())
        assert document["environment"]["AWS_ENDPOINT_URL"] == document["endpoint_url"]
        assert listens(document["endpoint_url"])
        local.send_signal(signal.SIGINT)
        out, _ = local.communicate(timeout=30)
    assert (local.returncode, out) == (0, "")


def test_the_server_does_not_outlive_a_killed_program() -> None:
    with start("--json") as local:
        assert local.stdout is not None
        endpoint = json.loads(local.stdout.readline())["endpoint_url"]
        local.kill()
        local.wait()
        for _ in range(100):
            if not listens(endpoint):
                break
            time.sleep(0.1)
    assert not listens(endpoint)


def test_a_port_that_is_taken_is_told_without_a_trace() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with start("--port", str(taken.getsockname()[1])) as local:
            out, err = local.communicate(timeout=60)
    assert (local.returncode, out) == (1, "")
    assert "StartFailed" in err
    assert "Traceback" not in err


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['moto'] = None\n")  # as if not installed
    path = os.pathsep.join((str(tmp_path), str(PROJECT)))
    with start("--json", PYTHONPATH=path) as local:
        out, err = local.communicate(timeout=60)
    assert local.returncode == 1
    assert "pip install 'athena_assets[local]'" in json.loads(out)["error"]["message"]
    assert "Traceback" not in err
