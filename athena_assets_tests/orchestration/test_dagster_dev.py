"""`dagster dev` with the project's dagster.yaml, driven as its UI drives it: by GraphQL."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from athena_assets import Target
from athena_assets_tests.e2e.lake import Lake, wait_until
from athena_assets_tests.orchestration import one_asset

PROJECT = Path(__file__).parents[2]
ENDED = ("SUCCESS", "FAILURE", "CANCELED")
LAUNCH = """
mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) { __typename ... on LaunchRunSuccess { run { runId } } }
}"""
TERMINATE = "mutation ($run: String!) { terminateRun(runId: $run) { __typename } }"
STATUS = "query ($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"
LIMITS = """
{ instance { poolConfig { defaultPoolLimit poolGranularity } runQueueConfig { tagConcurrencyLimitsYaml }
             concurrencyLimits { concurrencyKey limit } } }"""


class Dev:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/graphql"

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.loads(response.read())
        assert "errors" not in answer, answer
        return answer["data"]

    def is_up(self) -> bool:
        try:
            return bool(self.ask("{ version }"))
        except (urllib.error.URLError, OSError):
            return False

    def materialize(self) -> str:
        """What a click on Materialize sends; the run's id."""
        selector = {
            "repositoryName": "__repository__",
            "repositoryLocationName": one_asset.__name__,
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [one_asset.ASSET]}],
        }
        params = {"selector": selector, "mode": "default", "executionMetadata": {"tags": []}}
        launched = self.ask(LAUNCH, params=params)["launchPipelineExecution"]
        assert launched["__typename"] == "LaunchRunSuccess"
        return str(launched["run"]["runId"])

    def status(self, run: str) -> str:
        return str(self.ask(STATUS, run=run)["runOrError"]["status"])

    def end(self, run: str) -> str:
        return str(wait_until(lambda: (status := self.status(run)) in ENDED and status, "the run has ended"))


@pytest.fixture
def target(lake: Lake) -> Target:
    return lake.target()


@pytest.fixture
def dev(lake: Lake, target: Target, tmp_path: Path) -> Iterator[Dev]:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", home)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster", "dev", "-m", one_asset.__name__, "-h", "127.0.0.1", "-p", str(port)]
    environment = os.environ | one_asset.environment(lake, target, home) | {"PYTHONPATH": str(PROJECT)}
    with (tmp_path / "dev.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, cwd=home, stdout=log, stderr=log)
    dev = Dev(port)
    try:
        wait_until(dev.is_up, "dagster dev is up", timeout=120)
        yield dev
    finally:
        lake.aws.faults.clear()
        process.send_signal(signal.SIGINT)
        process.wait(60)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_run_ended_in_the_ui_gives_its_slot_to_the_run_that_waits_behind_it(
    lake: Lake, target: Target, dev: Dev
) -> None:
    hold = lake.aws.faults.hold_queries()
    first = dev.materialize()
    wait_until(lambda: lake.aws.faults.held(hold), "the first run's query is held")
    wait_until(lambda: (found := lake.register(target.location)) and found.state == "running", "its id is noted")
    second = dev.materialize()
    limits = dev.ask(LIMITS)["instance"]
    assert limits["poolConfig"] == {"defaultPoolLimit": 1, "poolGranularity": None}
    assert "athena_assets/slot" in limits["runQueueConfig"]["tagConcurrencyLimitsYaml"]
    assert limits["concurrencyLimits"] == [{"concurrencyKey": target.location, "limit": 1}]
    time.sleep(5)  # long enough for the second run to have started, were it not for the pool
    assert dev.status(second) == "QUEUED"

    before = time.monotonic()
    assert dev.ask(TERMINATE, run=first)["terminateRun"]["__typename"] == "TerminateRunSuccess"
    assert dev.end(first) == "CANCELED"
    assert time.monotonic() - before < 15
    assert [query.state for query in lake.queries(target.location)] == ["CANCELLED"]
    lake.aws.faults.release(hold)

    assert dev.end(second) == "SUCCESS"
    assert [query.state for query in lake.queries(target.location)] == ["CANCELLED", "SUCCEEDED"]
    lake.assert_published_once(target.location)
