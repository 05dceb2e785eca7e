"""A run that is told to stop, in a process of its own, as `dagster` starts it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest

from athena_assets import Target
from athena_assets.orchestration import build_unload_asset
from athena_assets_tests.e2e.lake import Lake, wait_until
from athena_assets_tests.orchestration import one_asset
from athena_assets_tests.orchestration.runs import SIZES, at, recorded, run, sized

PROJECT = Path(__file__).parents[2]


def materialize(
    lake: Lake, target: Target, home: Path, *options: str, partitions: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """`dagster asset materialize`: it captures signals as a run worker does."""
    (home / "dagster.yaml").touch()
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", one_asset.ASSET]
    if partitions:
        command += ["--partition-range", f"{partitions[0]}...{partitions[-1]}"]
    return subprocess.Popen(
        [*command, "-m", one_asset.__name__, *options],
        env=os.environ | one_asset.environment(lake, target, home, partitions) | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_of(home: Path) -> dg.DagsterRun:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        [record] = instance.get_run_records()
        return record.dagster_run


def wait_until_told(home: Path, event: str, times: int = 1) -> None:
    """Waits until the run's log says so. Whoever is interrupted while he writes it may not notice: Python drops what a
    signal handler raises within a weak reference's callback, and SQLAlchemy has those.
    """
    with dg.DagsterInstance.from_config(str(home)) as instance:
        [record] = instance.get_run_records()

        def told() -> bool:
            return sum(event in each.user_message for each in instance.all_logs(record.dagster_run.run_id)) == times

        wait_until(told, f"the log says {event!r}")
    time.sleep(0.2)


@pytest.fixture
def target(lake: Lake) -> Iterator[Target]:
    yield lake.target()
    lake.aws.faults.clear()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)], ids=lambda number: number.name
)
def test_terminating_a_run_stops_its_query_and_frees_the_slot(
    lake: Lake, target: Target, tmp_path: Path, number: signal.Signals
) -> None:
    hold = lake.aws.faults.hold_queries()
    process = materialize(lake, target, tmp_path)
    [query_id] = wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    wait_until_told(tmp_path, "running: query")
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    [query] = lake.queries(target.location)
    assert (query.query_id, query.state) == (query_id, "CANCELLED"), output
    register = lake.register(target.location)
    assert register is not None
    assert (register.state, register.publication) == ("free", None), output
    assert run_of(tmp_path).is_failure_or_canceled, output
    assert lake.listing(target.location) == {}
    lake.aws.faults.release(hold)

    result = run(lake, build_unload_asset(target))
    [metadata] = recorded(result)
    assert "athena_assets/adopted" not in metadata
    assert metadata["athena_assets/waited_seconds"] == 0.0  # for no lease to run out
    lake.assert_published_once(target.location)


def test_a_killed_run_leaves_a_query_that_the_next_run_adopts(lake: Lake, target: Target, tmp_path: Path) -> None:
    hold = lake.aws.faults.hold_queries()
    process = materialize(lake, target, tmp_path)
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    wait_until(lambda: (found := lake.register(target.location)) and found.state == "running", "its id is noted")
    process.kill()
    process.communicate(timeout=30)
    lake.aws.faults.release(hold)
    result = run(lake, build_unload_asset(target))
    [metadata] = recorded(result)
    assert metadata["athena_assets/adopted"] is True
    [query] = lake.queries(target.location)
    assert (query.query_id, query.state) == (metadata["athena_assets/query_id"], "SUCCEEDED")
    lake.assert_published_once(target.location)


KEYS = SIZES.get_partition_keys()


@pytest.fixture
def ranged(lake: Lake) -> Iterator[Target]:
    yield sized(lake)
    lake.aws.faults.clear()


def assert_stopped_and_freed(lake: Lake, location: str, output: str) -> None:
    assert [query.state for query in lake.queries(location)] == ["CANCELLED"], output
    register = lake.register(location)
    assert register is not None
    assert (register.state, register.publication) == ("free", None), output


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)], ids=lambda number: number.name
)
def test_terminating_a_run_of_several_partitions_stops_all_queries_and_frees_all_slots(
    lake: Lake, ranged: Target, tmp_path: Path, number: signal.Signals
) -> None:
    hold = lake.aws.faults.hold_queries()
    process = materialize(lake, ranged, tmp_path, partitions=KEYS)
    wait_until(lambda: len(lake.aws.faults.held(hold)) == 3, "all queries are held")
    wait_until_told(tmp_path, "running: query", times=3)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    for size in KEYS:
        assert_stopped_and_freed(lake, at(ranged, size), output)
    assert run_of(tmp_path).is_failure_or_canceled, output


def test_a_run_that_is_terminated_while_dagster_stores_a_partition_stops_the_others_too(
    lake: Lake, ranged: Target, tmp_path: Path
) -> None:
    hold = lake.aws.faults.hold_queries(sql_contains="sized%2F10")
    loggers = json.dumps({"loggers": {"terminating": {"config": {}}}})
    process = materialize(lake, ranged, tmp_path, "--config-json", loggers, partitions=KEYS[:2])
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert lake.aws.faults.held(hold) == []
    assert run_of(tmp_path).is_failure_or_canceled, output
    lake.assert_published_once(at(ranged, "20"), range(20))
    assert_stopped_and_freed(lake, at(ranged, "10"), output)
