"""deploy/dagster.yaml on PostgreSQL: it is what a running instance uses, and what its retries and limits do."""

import os
import signal
from collections.abc import Iterator, Mapping

import pytest
import yaml

from athena_assets.local import EmbeddedAws
from athena_assets_tests.e2e.lake import ROWS_PER_FILE, Lake, wait_until
from athena_assets_tests.orchestration import live_assets
from athena_assets_tests.orchestration.live import PATIENCE, Dev, dagster_dev, settings
from athena_assets_tests.orchestration.live_assets import environment, targets
from athena_assets_tests.orchestration.postgres import postgres_server
from athena_assets_tests.orchestration.runs import assert_one_after_another

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

FORCE = {"athena_assets/force": "true"}
INSTANCE = """
{ instance { info runQueuingSupported
             poolConfig { defaultPoolLimit poolGranularity }
             runQueueConfig { maxConcurrentRuns tagConcurrencyLimitsYaml } } }"""


@pytest.fixture(scope="session")
def postgres() -> Iterator[Mapping[str, str]]:
    with postgres_server() as variables:
        yield variables


@pytest.fixture(scope="module")
def lake(server: EmbeddedAws) -> Lake:
    server.reset()
    server.faults.rows_per_file(ROWS_PER_FILE)
    return Lake(server)


@pytest.fixture(scope="module")
def running(lake: Lake, postgres: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    home = tmp_path_factory.mktemp("production") / "home"
    text = settings("deploy/dagster.yaml", free_slots_after_run_end_seconds=1, poll_interval_seconds=1)
    with dagster_dev(home, live_assets.__name__, {**environment(lake), **postgres}, text) as dev:
        yield dev


@pytest.fixture
def dev(running: Dev, lake: Lake) -> Iterator[Dev]:
    yield running
    lake.aws.faults.clear()


def slot(lake: Lake, name: str) -> str:
    return str(targets(lake.bucket, lake.database)[name].location_for(None))


def test_the_running_instance_has_these_settings(dev: Dev, postgres: Mapping[str, str]) -> None:
    found = dev.ask(INSTANCE)["instance"]
    assert found["poolConfig"] == {"defaultPoolLimit": 1, "poolGranularity": None}
    assert found["runQueueConfig"]["maxConcurrentRuns"] == 25
    assert yaml.safe_load(found["runQueueConfig"]["tagConcurrencyLimitsYaml"]) == [
        {"key": "athena_assets/slot", "value": {"applyLimitPerUniqueValue": True}, "limit": 1},
        {"key": "dagster/backfill", "limit": 10},
    ]
    told = yaml.safe_load(found["info"])
    assert told["run_retries"] == {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False}
    assert told["run_monitoring"] == {
        "enabled": True,
        "start_timeout_seconds": 600,
        "cancel_timeout_seconds": 180,
        "max_resume_run_attempts": 0,
        "poll_interval_seconds": 1,
        "free_slots_after_run_end_seconds": 1,
        "max_runtime_seconds": 43200,
    }
    assert "PostgresRunStorage" in found["info"]


def test_launches_at_once_never_overlap(lake: Lake, dev: Dev) -> None:
    location = slot(lake, "clicked")
    hold = lake.aws.faults.hold_queries(sql_contains="clicked")
    runs = [dev.materialize("clicked", tags=FORCE) for _ in range(3)]
    wait_until(lambda: lake.aws.faults.held(hold), "a query is held", PATIENCE)
    wait_until(lambda: sum(dev.waits(run) for run in runs) >= 2, "the others wait", PATIENCE)
    assert len(lake.aws.faults.held(hold)) == 1
    lake.aws.faults.release(hold)
    assert {dev.end(run) for run in runs} == {"SUCCESS"}
    queries = lake.queries(location)
    assert [query.state for query in queries] == ["SUCCEEDED"] * 3
    assert_one_after_another(queries)
    lake.assert_published_once(location)


def test_dagsters_retry_of_a_killed_run_adopts_its_query_and_publishes_once(lake: Lake, dev: Dev) -> None:
    location = slot(lake, "killed")
    hold = lake.aws.faults.hold_queries(sql_contains="killed")
    killed = dev.materialize("killed")
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held", PATIENCE)
    wait_until(lambda: lake.state(location) == "running", "the query's id is noted", PATIENCE)
    os.kill(dev.worker(killed), signal.SIGKILL)
    assert dev.end(killed) == "FAILURE"
    lake.aws.faults.release(hold)

    [retry] = wait_until(
        lambda: [run for run in dev.runs() if run.parent == killed], "Dagster tries the run again", PATIENCE
    )
    assert retry.tags["dagster/retry_number"] == "1"
    assert dev.end(retry.id) == "SUCCESS"
    [query] = lake.queries(location)
    assert query.state == "SUCCEEDED"
    [found] = dev.materializations("killed")
    assert (found.run, found.metadata["athena_assets/query_id"]) == (retry.id, query.query_id)
    assert found.metadata["athena_assets/request_id"] == f"{killed}/killed"  # one wish
    assert found.metadata["athena_assets/adopted"] is True
    lake.assert_published_once(location)
