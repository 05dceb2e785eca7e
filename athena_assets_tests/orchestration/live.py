"""A real `dagster dev` (webserver, daemon, code server, run workers), driven as its UI drives it: by GraphQL."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from athena_assets_tests.e2e.lake import wait_until

PROJECT = Path(__file__).parents[2]
ENDED = ("SUCCESS", "FAILURE", "CANCELED")
REPOSITORY = "__repository__"
PATIENCE = 180  # seconds, on a machine that does other things too

LAUNCH = """
mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } } }"""
REEXECUTE = """
mutation ($params: ReexecutionParams!) {
  launchPipelineReexecution(reexecutionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } } }"""
BACKFILL = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""
TERMINATE = """
mutation ($run: String!, $policy: TerminateRunPolicy) {
  terminateRun(runId: $run, terminatePolicy: $policy) { __typename } }"""
START_SENSOR = """
mutation ($selector: SensorSelector!) { startSensor(sensorSelector: $selector) { __typename } }"""
TICKS = """
query ($selector: SensorSelector!) {
  sensorOrError(sensorSelector: $selector) { ... on Sensor { sensorState { status ticks { status } } } } }"""
STATUS = "query ($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"
BACKFILL_STATUS = """
query ($backfill: String!) {
  partitionBackfillOrError(backfillId: $backfill) { ... on PartitionBackfill { status } } }"""
RUNS = """
query ($filter: RunsFilter) {
  runsOrError(filter: $filter) { ... on Runs { results { runId status parentRunId tags { key value } } } } }"""
LOGS = """
query ($run: ID!, $after: String) {
  logsForRun(runId: $run, afterCursor: $after) { ... on EventConnection {
    cursor hasMore events { __typename ... on MessageEvent { message }
      ... on EngineEvent { metadataEntries { label ... on TextMetadataEntry { text } } } } } } }"""
MATERIALIZATIONS = """
query ($key: AssetKeyInput!, $limit: Int!) {
  assetOrError(assetKey: $key) { ... on Asset { assetMaterializations(limit: $limit) {
    runId partition metadataEntries { label
      ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue } ... on BoolMetadataEntry { boolValue }
      ... on FloatMetadataEntry { floatValue } ... on UrlMetadataEntry { url } ... on PathMetadataEntry { path } } } } }
}"""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the list of runs shows it; `parent` is the run that it executes again."""

    id: str
    status: str
    parent: str | None
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Materialization:
    """What the asset's page shows; metadata whose value is no text, number, boolean, link or path is left out."""

    run: str
    partition: str | None
    metadata: Mapping[str, Any]


def settings(name: str = "dagster.yaml", **monitoring: int) -> str:
    """A dagster.yaml of the project, with other seconds for its run monitoring: nobody waits five minutes in a test."""
    document = yaml.safe_load((PROJECT / name).read_text(encoding="utf-8"))
    document["run_monitoring"] |= monitoring
    return str(yaml.safe_dump(document))


class UI:
    """What a person does in the UI of a running Dagster, for one of its code locations."""

    def __init__(self, address: str, location: str) -> None:
        self.address = address
        self.location = location

    def ask(self, query: str, **variables: Any) -> Any:
        """GraphQL's `data`. Fails the test if there are errors."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.loads(response.read())
        assert "errors" not in answer, answer
        return answer["data"]

    def materialize(self, *assets: str, tags: Mapping[str, str] | None = None, partition: str | None = None) -> str:
        """What a click on Materialize sends, for one run of these assets; the run's id."""
        given = dict(tags or {}) | ({} if partition is None else {"dagster/partition": partition})
        selector = {
            "repositoryName": REPOSITORY,
            "repositoryLocationName": self.location,
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": asset.split("/")} for asset in assets],
        }
        metadata = {"tags": [{"key": key, "value": value} for key, value in given.items()]}
        params = {"selector": selector, "mode": "default", "executionMetadata": metadata}
        return _launched(self.ask(LAUNCH, params=params)["launchPipelineExecution"])

    def reexecute(self, run: str, strategy: str = "FROM_FAILURE") -> str:
        """A person's re-execution; the new run's id."""
        params = {"parentRunId": run, "strategy": strategy}
        return _launched(self.ask(REEXECUTE, params=params)["launchPipelineReexecution"])

    def backfill(self, *assets: str, partitions: Sequence[str], tags: Mapping[str, str] | None = None) -> str:
        """A backfill of these partitions of the assets; its id."""
        params = {
            "assetSelection": [{"path": asset.split("/")} for asset in assets],
            "partitionNames": list(partitions),
            "tags": [{"key": key, "value": value} for key, value in (tags or {}).items()],
        }
        answer = self.ask(BACKFILL, params=params)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_end(self, backfill: str, timeout: float = PATIENCE) -> str:
        """The backfill's status once it has ended: COMPLETED_SUCCESS, COMPLETED_FAILED, CANCELED or FAILED."""

        def look() -> str | None:
            status = str(self.ask(BACKFILL_STATUS, backfill=backfill)["partitionBackfillOrError"]["status"])
            return status if status.startswith("COMPLETED_") or status in ("CANCELED", "FAILED") else None

        return str(_wait(look, "the backfill has ended", timeout))

    def terminate(self, run: str, *, at_once: bool = False) -> None:
        """Terminates a run as the UI does; `at_once`: marks it as canceled, whether or not its worker answers."""
        policy = "MARK_AS_CANCELED_IMMEDIATELY" if at_once else "SAFE_TERMINATE"
        answer = self.ask(TERMINATE, run=run, policy=policy)["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess", answer

    def start_sensor(self, name: str) -> None:
        selector = {"repositoryName": REPOSITORY, "repositoryLocationName": self.location, "sensorName": name}
        answer = self.ask(START_SENSOR, selector=selector)["startSensor"]
        assert answer["__typename"] == "Sensor", answer

    def ticks(self, sensor: str) -> int:
        """How many ticks of a sensor that is on have ended well."""
        selector = {"repositoryName": REPOSITORY, "repositoryLocationName": self.location, "sensorName": sensor}
        state = self.ask(TICKS, selector=selector)["sensorOrError"]["sensorState"]
        ended = [tick for tick in state["ticks"] if tick["status"] in ("SUCCESS", "SKIPPED")]
        return len(ended) if state["status"] == "RUNNING" else 0

    def status(self, run: str) -> str:
        return str(self.ask(STATUS, run=run)["runOrError"]["status"])

    def end(self, run: str, timeout: float = PATIENCE) -> str:
        """The run's status once it has ended: SUCCESS, FAILURE or CANCELED."""
        return str(_wait(lambda: (status := self.status(run)) in ENDED and status, "the run has ended", timeout))

    def waits(self, run: str) -> bool:
        """Whether a run has come to wait: in the queue, for its step's pool, or for its target's slot."""
        told = ("blocked by limit for pool", "waiting: the slot is held by")
        return self.status(run) == "QUEUED" or any(each in line for line in self.log(run) for each in told)

    def runs(self, **tags: str) -> list[Run]:
        """All runs with these tags, oldest first; `__` in a tag's name stands for `/`."""
        chosen = [{"key": key.replace("__", "/"), "value": value} for key, value in tags.items()]
        found = self.ask(RUNS, filter={"tags": chosen} if chosen else {})["runsOrError"]["results"]
        return [
            Run(
                each["runId"],
                each["status"],
                each["parentRunId"],
                {tag["key"]: tag["value"] for tag in each["tags"]},
            )
            for each in reversed(found)
        ]

    def log(self, run: str) -> list[str]:
        """The messages of a run's log."""
        return [event.get("message", "") for event in self._events(run)]

    def worker(self, run: str) -> int:
        """The process id of the run's worker, once it executes steps."""

        def look() -> int | None:
            entries = [entry for event in self._events(run) for entry in event.get("metadataEntries", ())]
            return next((int(entry["text"]) for entry in entries if entry["label"] == "pid" and entry["text"]), None)

        return int(_wait(look, "the run's worker has told its pid", PATIENCE))

    def materializations(self, asset: str, limit: int = 1_000) -> list[Materialization]:
        """Those of an asset, newest first."""
        found = self.ask(MATERIALIZATIONS, key={"path": asset.split("/")}, limit=limit)["assetOrError"]
        return [
            Materialization(
                each["runId"],
                each["partition"],
                {entry.pop("label"): next(iter(entry.values()), None) for entry in each["metadataEntries"]},
            )
            for each in found.get("assetMaterializations", ())
        ]

    def _events(self, run: str) -> Iterator[dict[str, Any]]:
        after = None
        while True:
            page = self.ask(LOGS, run=run, after=after)["logsForRun"]
            yield from page["events"]
            after = page["cursor"]
            if not page["hasMore"]:
                return


class Dev(UI):
    """A `dagster dev` of our own on one code location."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, location: str, home: Path) -> None:
        super().__init__(f"http://127.0.0.1:{port}", location)
        self.process = process
        self.home = home

    def is_up(self) -> bool:
        """Whether the webserver answers and the daemon has told that it lives."""
        assert self.process.poll() is None, (self.home / "dev.log").read_text()[-4_000:]
        healthy = "{ instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } } }"
        try:
            statuses = self.ask(healthy)["instance"]["daemonHealth"]["allDaemonStatuses"]
        except (urllib.error.URLError, OSError):
            return False
        return all(each["healthy"] for each in statuses if each["required"])

    def kill(self) -> None:
        """SIGKILL for everything at once, run workers too: the machine is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> None:
        """Ctrl-C; what does not end by it is killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
        self.kill()


@contextlib.contextmanager
def dagster_dev(home: Path, module: str, environment: Mapping[str, str], text: str) -> Iterator[Dev]:
    """`dagster dev` on a module, with `text` as its dagster.yaml; no process of its group outlives the context.

    `home` is DAGSTER_HOME; one that was used before keeps its runs. The output is in `dev.log` there.
    """
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(text, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster", "dev", "-m", module, "-h", "127.0.0.1", "-p", str(port)]
    ours = {
        "DAGSTER_HOME": str(home),
        "PYTHONPATH": str(PROJECT),
        "DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS": "1",  # it starts the retries of failed runs
    }
    with (home / "dev.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=os.environ | environment | ours,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    dev = Dev(process, port, module, home)
    try:
        _wait(dev.is_up, "dagster dev is up", PATIENCE)
        yield dev
    finally:
        dev.stop()


def _launched(answer: dict[str, Any]) -> str:
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


def _wait(condition: Any, what: str, timeout: float) -> Any:
    """As `wait_until`, less often: each look is a request to a busy server."""

    def look() -> Any:
        found = condition()
        if not found:
            time.sleep(0.3)
        return found

    return wait_until(look, what, timeout)
