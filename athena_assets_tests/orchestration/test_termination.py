"""A run that is told to stop, in a process of its own, as `dagster` starts it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from athena_assets import Target
from athena_assets.orchestration import build_unload_asset
from athena_assets_tests.e2e.lake import Lake, wait_until
from athena_assets_tests.orchestration import one_asset
from athena_assets_tests.orchestration.runs import recorded, run

PROJECT = Path(__file__).parents[2]


def materialize(lake: Lake, target: Target, home: Path) -> subprocess.Popen[str]:
    """`dagster asset materialize`: it captures signals as a run worker does."""
    (home / "dagster.yaml").touch()
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", one_asset.ASSET]
    return subprocess.Popen(
        [*command, "-m", one_asset.__name__],
        env=os.environ | one_asset.environment(lake, target, home) | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_of(home: Path) -> dg.DagsterRun:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        [record] = instance.get_run_records()
        return record.dagster_run


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
    wait_until(lambda: (found := lake.register(target.location)) and found.state == "running", "its id is noted")
    before = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    assert time.monotonic() - before < 10
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
