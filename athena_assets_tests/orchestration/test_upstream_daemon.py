"""The sensor as Dagster's daemon runs it: ticks, runs in processes of their own, and a daemon that dies in between."""

import logging
import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_test_daemon_workspace_context, wait_for_runs_to_finish
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._utils import DebugCrashFlags

from athena_assets_tests.e2e.lake import Lake
from athena_assets_tests.orchestration import sensor_location
from athena_assets_tests.orchestration.test_concurrency import homes
from athena_assets_tests.orchestration.upstream_lake import add_partition, create_table

LOGGER = logging.getLogger("dagster.test_upstream_daemon")
# A run is launched by the tick itself, so that no second daemon is needed.
NO_QUEUE = """
run_coordinator:
  module: dagster._core.run_coordinator
  class: DefaultRunCoordinator
"""
INTERVAL = 1.1  # seconds; the sensor's is one
SLOT = "athena_assets/slot"

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Daemon:
    """The sensor daemon's iterations, one tick at a time, over one Dagster home."""

    def __init__(self, workspace: WorkspaceProcessContext) -> None:
        self._workspace = workspace
        self.instance = workspace.instance

    def ticks(self) -> list[dg.DagsterRun]:
        """Two ticks, each after the sensor's interval; all runs there are, ended."""
        for _ in range(2):
            time.sleep(INTERVAL)
            iterate(self._workspace)
        wait_for_runs_to_finish(self.instance, timeout=60)
        return list(self.instance.get_runs())


def iterate(workspace: WorkspaceProcessContext, flags: DebugCrashFlags | None = None) -> None:
    iteration = execute_sensor_iteration(
        workspace, LOGGER, threadpool_executor=None, submit_threadpool_executor=None, debug_crash_flags=flags
    )
    assert [error for error in iteration if error is not None] == []


@contextmanager
def workspace_of(home: Path) -> Iterator[WorkspaceProcessContext]:
    target = ModuleTarget(sensor_location.__name__, attribute=None, working_directory=None, location_name=None)
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        create_test_daemon_workspace_context(target, instance) as workspace,
    ):
        yield workspace


def die(home: Path, crash: str) -> None:
    """In a process of its own: one tick, which is killed at that point."""
    with workspace_of(home) as workspace:
        time.sleep(INTERVAL)
        iterate(workspace, {"upstream_tables": {crash: signal.SIGKILL}})


@pytest.fixture
def home(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    create_table(lake, "events", "day")
    add_partition(lake, "events", "2024-01-29")
    [found] = homes(tmp_path, 1)
    with (found / "dagster.yaml").open("a") as settings:
        settings.write(NO_QUEUE)
    environment = lake.aws.environment() | {"TEST_BUCKET": lake.bucket, "TEST_DATABASE": lake.database}
    for name, value in (environment | {"DAGSTER_HOME": str(found)}).items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def daemon(home: Path) -> Iterator[Daemon]:
    with workspace_of(home) as workspace:
        yield Daemon(workspace)


def test_a_change_publishes_just_what_reads_it(lake: Lake, daemon: Daemon) -> None:
    numbers, daily = sensor_location.targets(lake.bucket, lake.database)
    assert daemon.ticks() == []
    [reported] = daemon.instance.fetch_materializations(dg.AssetKey([lake.database, "numbers"]), limit=5).records
    assert reported.asset_materialization is not None
    assert "dagster/data_version" in (reported.asset_materialization.tags or {})

    lake.put_rows("numbers", "part-1.parquet", range(1_000, 1_010))
    [run] = daemon.ticks()
    assert (run.status, run.tags[SLOT]) == (dg.DagsterRunStatus.SUCCESS, numbers.location)
    assert run.tags["athena_assets/changed"] == f"{lake.database}.numbers"
    lake.assert_published_once(numbers.location, range(1_010))

    for day in ("2024-01-30", "2024-01-31", "2024-02-02"):
        add_partition(lake, "events", day)
    runs = [each for each in daemon.ticks() if each.run_id != run.run_id]
    assert {each.status for each in runs} == {dg.DagsterRunStatus.SUCCESS}
    assert len(runs) == 2
    for day in ("2024-01-30", "2024-01-31", "2024-02-02"):
        lake.assert_published_once(str(daily.location_for(day)), range(10))
    assert lake.register(str(daily.location_for("2024-01-29"))) is None
    assert daemon.instance.get_materialized_partitions(dg.AssetKey("daily")) == {
        "2024-01-30",
        "2024-01-31",
        "2024-02-02",
    }

    assert len(daemon.ticks()) == 3


@pytest.mark.parametrize("crash", ["RUN_IDS_RESERVED", "RUN_CREATED", "RUN_LAUNCHED"])
def test_a_daemon_that_is_killed_in_a_tick_neither_loses_a_run_nor_launches_it_twice(
    lake: Lake, home: Path, daemon: Daemon, crash: str
) -> None:
    numbers, _ = sensor_location.targets(lake.bucket, lake.database)
    assert daemon.ticks() == []
    lake.put_rows("numbers", "part-1.parquet", range(1_000, 1_010))
    process = multiprocessing.get_context("spawn").Process(target=die, args=(home, crash))
    process.start()
    process.join(200)
    assert process.exitcode == -signal.SIGKILL
    [run] = daemon.ticks()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    lake.assert_published_once(numbers.location, range(1_010))
