"""The project's dagster.yaml, as Dagster itself reads it."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

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


def test_a_run_that_was_killed_is_tried_again_and_one_whose_step_failed_is_not(instance: dg.DagsterInstance) -> None:
    assert instance.run_retries_enabled
    assert instance.run_retries_max_retries == 2
    assert instance.run_retries_retry_on_asset_or_op_failure is False


def test_production_has_the_same_limits_monitoring_and_retries() -> None:
    here, production = (
        yaml.safe_load((PROJECT / name).read_text()) for name in ("dagster.yaml", "deploy/dagster.yaml")
    )
    for section in ("concurrency", "run_monitoring"):
        for key, value in here[section].items():
            if isinstance(value, dict):
                assert value.items() <= production[section][key].items() or key == "runs"
            else:
                assert production[section][key] == value
    assert (
        here["concurrency"]["runs"]["tag_concurrency_limits"][0]
        in (production["concurrency"]["runs"]["tag_concurrency_limits"])
    )
    assert production["run_retries"] == here["run_retries"]


def test_the_settings_that_are_documented_are_those_of_production() -> None:
    """docs/production.md, "Which setting does what": every row that names a value."""
    settings = yaml.safe_load((PROJECT / "deploy/dagster.yaml").read_text())
    rows = re.findall(r"^\| `([\w.]+)` \| (\w+) \|", (PROJECT / "docs/production.md").read_text(), flags=re.MULTILINE)
    assert len(rows) == 7
    for name, value in rows:
        found = settings
        for key in name.split("."):
            found = found[key]
        assert json.dumps(found) == value, name


def test_nothing_is_reported_to_the_makers_of_dagster(instance: dg.DagsterInstance) -> None:
    assert instance.telemetry_enabled is False
