"""Runs of one asset at one time, Dagster's limits off, or on where a test says so: the register is the guarantee."""

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from athena_assets import Target, UpstreamTable
from athena_assets.orchestration import build_unload_asset
from athena_assets_tests.e2e.lake import Lake, wait_until
from athena_assets_tests.orchestration import one_asset
from athena_assets_tests.orchestration.runs import recorded, run

PROJECT = Path(__file__).parents[2]
# Dagster would start two processes for each step that copy its output into files.
NO_LOGS = """
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
UNKNOWN = (UpstreamTable("no_such_database", "table"),)  # Glue does not know it: nothing tells its version


class Runs:
    """Runs in threads, each with a Dagster instance of its own, so that none of Dagster's limits can see another.

    With a directory they lie there: one in memory answers "database table is locked" to whoever reads it during a run.
    """

    def __init__(self, lake: Lake, target: Target, count: int, directory: Path | None = None) -> None:
        self._stack = ExitStack()
        made = (
            (dg.DagsterInstance.ephemeral() for _ in range(count))
            if directory is None
            else (dg.DagsterInstance.from_config(str(home)) for home in homes(directory, count))
        )
        self.instances = [self._stack.enter_context(instance) for instance in made]
        self.results: list[dg.ExecuteInProcessResult] = []
        asset = build_unload_asset(target)
        barrier = threading.Barrier(count)

        def work(instance: dg.DagsterInstance) -> None:
            barrier.wait()
            self.results.append(run(lake, asset, instance, lease=60))  # no machine is so slow that one runs out

        self._threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in self.instances]

    def __enter__(self) -> "Runs":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join()
        self._stack.close()

    def join(self) -> list[dict[str, Any]]:
        """The metadata of each run's one materialization."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert all(result.success for result in self.results)
        return [metadata for result in self.results for metadata in recorded(result)]

    def waiting(self) -> int:
        """How many runs have said that they wait for another's."""
        return sum(
            any(event.user_message.startswith("waiting: ") for event in instance.all_logs(record.dagster_run.run_id))
            for instance in self.instances
            for record in instance.get_run_records()
        )


def assert_one_query_for_all(lake: Lake, target: Target, runs: list[dict[str, Any]], count: int) -> None:
    [query] = lake.queries(target.location)
    assert {metadata["athena_assets/query_id"] for metadata in runs} == {query.query_id}
    assert Counter(metadata["athena_assets/reused"] for metadata in runs) == {False: 1, True: count - 1}
    lake.assert_published_once(target.location)


def test_runs_at_once_over_known_versions_share_one_query(lake: Lake) -> None:
    target = lake.target()
    with Runs(lake, target, 8) as runs:
        assert_one_query_for_all(lake, target, runs.join(), 8)


@pytest.mark.long
def test_runs_at_once_over_unknown_versions_share_the_query_in_flight(lake: Lake, tmp_path: Path) -> None:
    target = lake.target(upstreams=UNKNOWN)
    hold = lake.aws.faults.hold_queries()
    with Runs(lake, target, 5, tmp_path) as runs:
        wait_until(lambda: runs.waiting() == 4, "all but one wait")
        lake.aws.faults.release(hold)
        joined = runs.join()
    assert_one_query_for_all(lake, target, joined, 5)
    assert sum(metadata.get("athena_assets/joined", False) for metadata in joined) == 4
    # Whoever comes later can't know whether the data are still the same.
    [metadata] = recorded(run(lake, build_unload_asset(target)))
    assert metadata["athena_assets/reused"] is False
    assert len(lake.queries(target.location)) == 2


# --- processes -------------------------------------------------------------------------------------------------------


class Processes:
    """`dagster asset materialize`, several at once; each directory is the DAGSTER_HOME of one of them, or of all."""

    def __init__(self, lake: Lake, target: Target, homes: list[Path], logs: Path) -> None:
        logs.mkdir()
        self._logs = [logs / f"{number}.txt" for number in range(len(homes))]
        command = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", one_asset.ASSET]
        self._processes = []
        for home, log in zip(homes, self._logs, strict=True):
            environment = os.environ | one_asset.environment(lake, target, home) | {"PYTHONPATH": str(PROJECT)}
            with log.open("w") as output:
                self._processes.append(
                    subprocess.Popen(
                        [*command, "-m", one_asset.__name__], env=environment, stdout=output, stderr=output
                    )
                )

    def waiting(self) -> int:
        return sum("waiting: the slot is held by" in log.read_text() for log in self._logs)

    def join(self) -> None:
        for process, log in zip(self._processes, self._logs, strict=True):
            assert process.wait(timeout=200) == 0, log.read_text()


def homes(parent: Path, count: int) -> list[Path]:
    made = [parent / f"home{number}" for number in range(count)]
    for home in made:
        home.mkdir()
        (home / "dagster.yaml").write_text(NO_LOGS)
    return made


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_twenty_runs_in_twenty_processes_make_one_query(lake: Lake, tmp_path: Path, known: bool) -> None:
    target = lake.target(upstreams=None if known else UNKNOWN)
    hold = lake.aws.faults.hold_queries()
    processes = Processes(lake, target, homes(tmp_path, 20), tmp_path / "logs")
    wait_until(lambda: processes.waiting() == 19, "all but one wait", timeout=300)
    lake.aws.faults.release(hold)
    processes.join()
    [query] = lake.queries(target.location)
    assert query.state == "SUCCEEDED"
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("known", "queries"), [(True, {1}), (False, {1, 2, 3, 4})], ids=["known", "unknown"])
def test_with_the_pools_in_force_the_register_still_decides(
    lake: Lake, tmp_path: Path, known: bool, queries: set[int]
) -> None:
    """Runs that the pool keeps apart don't overlap: over unknown versions each that comes later runs its own query."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", home)
    with dg.DagsterInstance.from_config(str(home)) as instance:  # its tables are made once, before all start
        assert instance.get_concurrency_config().pool_config.default_pool_limit == 1
    target = lake.target(upstreams=None if known else UNKNOWN)
    Processes(lake, target, [home] * 4, tmp_path / "logs").join()
    assert len(lake.queries(target.location)) in queries
    lake.assert_published_once(target.location)
