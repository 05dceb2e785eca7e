"""`dagster dev` on SQLite with the project's dagster.yaml: launches of every kind, terminations, crashes, backfills."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from athena_assets import Target
from athena_assets.local import EmbeddedAws
from athena_assets_tests.e2e.lake import ROWS_PER_FILE, Lake, wait_until
from athena_assets_tests.orchestration import live_assets
from athena_assets_tests.orchestration.live import PATIENCE, PROJECT, Dev, dagster_dev, settings
from athena_assets_tests.orchestration.live_assets import SIZES, YEAR, environment, targets
from athena_assets_tests.orchestration.runs import assert_one_after_another

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

FORCE = {"athena_assets/force": "true"}
LIMITS = """
{ instance { poolConfig { defaultPoolLimit poolGranularity } runQueueConfig { tagConcurrencyLimitsYaml }
             concurrencyLimits { concurrencyKey limit } } }"""


@pytest.fixture(scope="module")
def lake(server: EmbeddedAws) -> Lake:
    """One for all tests of this module: each has a target of its own."""
    server.reset()
    server.faults.rows_per_file(ROWS_PER_FILE)
    return Lake(server)


@pytest.fixture(scope="module")
def running(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    home = tmp_path_factory.mktemp("live") / "home"
    text = settings(free_slots_after_run_end_seconds=1, poll_interval_seconds=1)
    with dagster_dev(home, live_assets.__name__, environment(lake), text) as dev:
        yield dev


@pytest.fixture
def dev(running: Dev, lake: Lake) -> Iterator[Dev]:
    yield running
    lake.aws.faults.clear()


def target(lake: Lake, name: str) -> Target:
    return targets(lake.bucket, lake.database)[name]


def slot(lake: Lake, name: str, partition: str | None = None) -> str:
    return str(target(lake, name).location_for(partition))


def states(lake: Lake, name: str, partition: str | None = None) -> list[str]:
    return [query.state for query in lake.queries(slot(lake, name, partition))]


def wait_until_noted(lake: Lake, location: str) -> None:
    wait_until(lambda: lake.state(location) == "running", "the query's id is noted", PATIENCE)


def wait_until_held(lake: Lake, hold: str) -> str:
    (query_id,) = wait_until(lambda: lake.aws.faults.held(hold), "the query is held", PATIENCE)
    return str(query_id)


# --- one at a time ---------------------------------------------------------------------------------------------------


def test_the_projects_limits_are_in_force(dev: Dev) -> None:
    limits = dev.ask(LIMITS)["instance"]
    assert limits["poolConfig"] == {"defaultPoolLimit": 1, "poolGranularity": None}
    assert "athena_assets/slot" in limits["runQueueConfig"]["tagConcurrencyLimitsYaml"]


def test_launches_of_every_kind_never_overlap(lake: Lake, dev: Dev) -> None:
    """Two from the UI, one of several assets, one of the command line with the same DAGSTER_HOME: each has a query."""
    location, before = slot(lake, "clicked"), {run.id for run in dev.runs()}
    hold = lake.aws.faults.hold_queries(sql_contains="clicked")
    first, second = (dev.materialize("clicked", tags=FORCE) for _ in range(2))
    wait_until_held(lake, hold)
    several = dev.materialize("clicked", "neighbour", tags=FORCE)
    config = {"ops": {"clicked": {"config": {"force": True}}}}
    command = ["asset", "materialize", "--select", "clicked", "-m", live_assets.__name__]
    by_hand = subprocess.Popen(
        [sys.executable, "-m", "dagster", *command, "--config-json", json.dumps(config)],
        env=os.environ | environment(lake) | {"DAGSTER_HOME": str(dev.home), "PYTHONPATH": str(PROJECT)},
        cwd=dev.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def all_but_one_wait() -> bool:
        runs = {run.id for run in dev.runs()} - before
        return len(runs) == 4 and sum(dev.waits(run) for run in runs) >= 3

    try:
        wait_until(all_but_one_wait, "all but one wait", PATIENCE)
        # The run of several assets is not kept from its other one.
        wait_until(lambda: states(lake, "neighbour") == ["SUCCEEDED"], "the neighbour is published", PATIENCE)
        assert len(lake.aws.faults.held(hold)) == 1
        assert [query.state for query in lake.queries(location)] == ["RUNNING"]
        lake.aws.faults.release(hold)
        output, _ = by_hand.communicate(timeout=PATIENCE)
    finally:
        by_hand.kill()
        by_hand.wait()
    assert by_hand.returncode == 0, output
    assert {dev.end(run) for run in (first, second, several)} == {"SUCCESS"}
    queries = lake.queries(location)
    assert [query.state for query in queries] == ["SUCCEEDED"] * 4
    assert_one_after_another(queries)
    lake.assert_published_once(location)


def test_runs_of_a_sensor_wait_in_the_queue_by_their_tag(lake: Lake, dev: Dev) -> None:
    """Also the one of another target, whose pool is free."""
    hold = lake.aws.faults.hold_queries(sql_contains="sensed")
    dev.start_sensor("thrice")
    wait_until_held(lake, hold)
    runs = wait_until(
        lambda: len(found := dev.runs(athena_assets__slot="sensed")) == 3 and found, "all are there", PATIENCE
    )
    time.sleep(5)  # long enough for another run to have started, were it not for the limit
    assert sorted(dev.status(run.id) for run in runs) == ["QUEUED", "QUEUED", "STARTED"]
    assert states(lake, "other") == []
    lake.aws.faults.release(hold)
    assert {dev.end(run.id) for run in runs} == {"SUCCESS"}
    queries = lake.queries(slot(lake, "sensed"))
    assert [query.state for query in queries] == ["SUCCEEDED"] * 2
    assert_one_after_another(queries + lake.queries(slot(lake, "other")))
    lake.assert_published_once(slot(lake, "sensed"))


# --- terminations, retries, crashes ----------------------------------------------------------------------------------


def test_a_run_ended_in_the_ui_gives_its_slot_to_the_run_that_waits_behind_it(lake: Lake, dev: Dev) -> None:
    location = slot(lake, "ended")
    hold = lake.aws.faults.hold_queries(sql_contains="ended")
    first = dev.materialize("ended")
    wait_until_held(lake, hold)
    wait_until_noted(lake, location)
    second = dev.materialize("ended")
    time.sleep(5)  # long enough for the second run to have started, were it not for the pool
    assert dev.status(second) == "QUEUED"

    dev.terminate(first)
    assert dev.end(first) == "CANCELED"
    assert states(lake, "ended") == ["CANCELLED"]
    lake.aws.faults.release(hold)

    assert dev.end(second) == "SUCCESS"
    assert states(lake, "ended") == ["CANCELLED", "SUCCEEDED"]
    assert not [run for run in dev.runs() if run.parent == first]  # nobody retries what a person ended
    lake.assert_published_once(location)

    # A person's re-execution is a wish of its own, for which the result that is there will do.
    again = dev.reexecute(second, "ALL_STEPS")
    assert dev.end(again) == "SUCCESS"
    newest, before = dev.materializations("ended")
    assert (newest.run, newest.metadata["athena_assets/request_id"]) == (again, f"{again}/ended")
    assert newest.metadata["athena_assets/reused"] is True
    assert before.metadata["athena_assets/request_id"] == f"{second}/ended"
    assert len(lake.queries(location)) == 2


def test_a_step_that_is_tried_again_stays_one_wish(lake: Lake, dev: Dev) -> None:
    lake.aws.faults.fail_queries(sql_contains="'10'")  # once, an internal failure; the target has no retries
    run = dev.materialize("sizes", partition="10")
    assert dev.end(run) == "SUCCESS"
    assert states(lake, "sizes", "10") == ["FAILED", "SUCCEEDED"]
    [found] = [each for each in dev.materializations("sizes") if each.run == run]
    assert found.metadata["athena_assets/request_id"] == f"{run}/sizes/partition=10"
    lake.assert_published_once(slot(lake, "sizes", "10"), range(10))


def test_after_a_crash_of_everything_the_run_that_was_queued_adopts_the_query(lake: Lake, tmp_path: Path) -> None:
    """Webserver, daemon, code server and run worker are killed in mid-query, and started again on the same store."""
    location, text = slot(lake, "lost"), settings(free_slots_after_run_end_seconds=1, poll_interval_seconds=1)
    hold = lake.aws.faults.hold_queries(sql_contains="lost")
    with dagster_dev(tmp_path, live_assets.__name__, environment(lake), text) as dev:
        lost = dev.materialize("lost")
        query_id = wait_until_held(lake, hold)
        wait_until_noted(lake, location)
        queued = dev.materialize("lost")
        wait_until(lambda: dev.status(queued) == "QUEUED", "the second run is queued", PATIENCE)
        dev.kill()
    lake.aws.faults.release(hold)
    with dagster_dev(tmp_path, live_assets.__name__, environment(lake), text) as dev:
        # Nobody watches workers that `dagster dev` started in another life: a person says that they are gone.
        assert (dev.status(lost), dev.status(queued)) == ("STARTED", "QUEUED")
        dev.terminate(lost, at_once=True)
        assert dev.end(queued) == "SUCCESS"
        [found] = dev.materializations("lost")
    assert (found.run, found.metadata["athena_assets/adopted"]) == (queued, True)
    [query] = lake.queries(location)
    assert (query.query_id, query.state) == (query_id, "SUCCEEDED")
    lake.assert_published_once(location)


# --- backfills -------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_a_backfill_of_a_year_is_one_run_that_says_how_far_it_is(lake: Lake, dev: Dev) -> None:
    days = YEAR.get_partition_keys()
    assert len(days) == 365
    backfill = dev.backfill("year", partitions=days)
    assert dev.backfill_end(backfill, timeout=800) == "COMPLETED_SUCCESS"
    [run] = dev.runs(dagster__backfill=backfill)
    log = dev.log(run.id)
    assert [line for line in log if line.endswith(" of 365 published")] == [
        f"{number} of 365 published" for number in range(1, 366)
    ]
    assert {each.partition for each in dev.materializations("year")} == set(days)
    queries = [query for query in lake.aws.queries() if "live%2Fyear" in query.sql]
    assert [query.state for query in queries] == ["SUCCEEDED"] * 365
    assert len({query.sql for query in queries}) == 365
    for number, day in enumerate(days):
        lake.assert_published_once(slot(lake, "year", day), range(number, 1_000, 365))


def test_partitions_that_failed_in_a_backfill_can_be_run_alone(lake: Lake, dev: Dev) -> None:
    for size in ("20", "30"):
        lake.aws.faults.fail_queries(sql_contains=f"'{size}'", error_category=2, retryable=False)
    before = len(lake.queries(slot(lake, "sizes", "10")))
    backfill = dev.backfill("sizes", partitions=SIZES.get_partition_keys(), tags={"athena_assets/slot": "sizes"})
    assert dev.backfill_end(backfill) == "COMPLETED_FAILED"
    runs = {run.tags["dagster/partition"]: run for run in dev.runs(dagster__backfill=backfill)}
    assert {key: run.status for key, run in runs.items()} == {"10": "SUCCESS", "20": "FAILURE", "30": "FAILURE"}
    # The tags of whoever started it are those of its runs; those of an asset never are.
    assert {run.tags["athena_assets/slot"] for run in runs.values()} == {"sizes"}

    alone, again = dev.materialize("sizes", partition="20"), dev.reexecute(runs["30"].id)
    assert {dev.end(run) for run in (alone, again)} == {"SUCCESS"}
    for size in ("20", "30"):
        assert states(lake, "sizes", size) == ["FAILED", "SUCCEEDED"]
        lake.assert_published_once(slot(lake, "sizes", size), range(int(size)))
    assert {each.partition: each.run for each in reversed(dev.materializations("sizes"))} == {
        "10": runs["10"].id,
        "20": alone,
        "30": again,
    }
    assert len(lake.queries(slot(lake, "sizes", "10"))) <= before + 1
    lake.assert_published_once(slot(lake, "sizes", "10"), range(10))


def test_a_backfill_of_two_dimensions_publishes_each_key_to_its_own_slot(lake: Lake, dev: Dev) -> None:
    backfill = dev.backfill("matrix", partitions=["2026-01-01|0", "2026-01-02|1"])
    assert dev.backfill_end(backfill) == "COMPLETED_SUCCESS"
    assert dev.end(dev.materialize("matrix", partition="2026-01-02|0")) == "SUCCESS"
    for key, rows in (
        ("2026-01-01|0", range(0, 100, 2)),
        ("2026-01-02|1", range(101, 200, 2)),
        ("2026-01-02|0", range(100, 200, 2)),
    ):
        assert states(lake, "matrix", key) == ["SUCCEEDED"]
        lake.assert_published_once(slot(lake, "matrix", key), rows)
    assert lake.listing(slot(lake, "matrix", "2026-01-01|1")) == {}
    assert {each.partition for each in dev.materializations("matrix")} == {
        "2026-01-01|0",
        "2026-01-02|0",
        "2026-01-02|1",
    }
