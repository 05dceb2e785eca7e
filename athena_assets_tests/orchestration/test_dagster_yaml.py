"""The project's dagster.yaml, as Dagster itself reads it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    home = tmp_path_factory.mktemp("dagster")
    shutil.copy(PROJECT / "dagster.yaml", home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def test_a_pool_lets_one_step_through(instance: dg.DagsterInstance) -> None:
    pools = instance.get_concurrency_config().pool_config
    assert pools.default_pool_limit == 1


def test_pools_are_held_by_steps_and_not_by_runs(instance: dg.DagsterInstance) -> None:
    assert instance.get_concurrency_config().pool_config.pool_granularity is None


def test_runs_of_one_slot_are_queued_one_behind_another(instance: dg.DagsterInstance) -> None:
    queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.tag_concurrency_limits == [
        {"key": "athena_assets/slot", "value": {"applyLimitPerUniqueValue": True}, "limit": 1}
    ]


def test_a_killed_run_gives_its_slot_back(instance: dg.DagsterInstance) -> None:
    assert instance.run_monitoring_enabled
    assert instance.run_monitoring_settings["free_slots_after_run_end_seconds"] == 300


def test_a_run_that_hangs_is_ended(instance: dg.DagsterInstance) -> None:
    assert instance.run_monitoring_max_runtime_seconds == 12 * 60 * 60


def test_nothing_is_reported_to_the_makers_of_dagster(instance: dg.DagsterInstance) -> None:
    assert instance.telemetry_enabled is False
