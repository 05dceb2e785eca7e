"""Many partitions in one call: concurrent, polled together, one's failure never another's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from athena_assets import Published, Reused, Target, errors
from athena_assets.local import Fault, HoldRequest
from athena_assets_tests.e2e.faults.ending import wait_for
from athena_assets_tests.e2e.lake import Lake, wait_until

KEYS = [f"k{number:02d}" for number in range(24)]


def partitioned(lake: Lake, query: str = "SELECT n FROM numbers WHERE ${partition} <> ''", **changes: Any) -> Target:
    location = f"s3://{lake.bucket}/published/parts/${{partition}}/"
    return lake.target("parts", query=query, location=location, **changes)


def at(target: Target, key: str) -> str:
    return target.location.replace("${partition}", key)


def test_partitions_run_at_once_and_are_told_as_they_commit(lake: Lake) -> None:
    target = partitioned(lake)
    hold = lake.aws.faults.hold_queries(sql_contains="published%2Fparts%2Fk00")
    ended: list[str] = []
    for key, result in lake.publisher().unload_partitions(target, KEYS, limit=6):
        assert isinstance(result, Published)
        ended.append(key)
        if len(ended) == len(KEYS) - 1:  # all others were told while the first one's query was still held
            assert "k00" not in ended
            lake.aws.faults.release(hold)
    assert sorted(ended) == KEYS
    for key in KEYS:
        lake.assert_published_once(at(target, key))
        assert len(lake.queries(at(target, key))) == 1
    assert lake.aws.requests("athena", "GetQueryExecution") == []
    assert len(lake.aws.requests("athena", "BatchGetQueryExecution")) > 0


def test_a_failed_partition_does_not_lose_the_others(lake: Lake) -> None:
    target = partitioned(lake)
    lake.aws.faults.fail_queries(sql_contains="published%2Fparts%2Fk03", error_category=2, retryable=False, times=None)
    results = dict(lake.publisher().unload_partitions(target, KEYS[:8]))
    assert isinstance(results.pop("k03"), errors.QueryUserError)
    assert [type(each) for each in results.values()] == [Published] * 7
    lake.aws.faults.clear()
    again = dict(lake.publisher().unload_partitions(target, KEYS[:8]))
    assert isinstance(again.pop("k03"), Published)
    assert [type(each) for each in again.values()] == [Reused] * 7


def test_an_interrupted_fleet_stops_every_query_and_frees_every_slot(lake: Lake) -> None:
    target = partitioned(lake)
    hold = lake.aws.faults.hold_queries(sql_contains="published%2Fparts")
    script = textwrap.dedent(
        f"""
        from athena_assets import AwsSettings, Publisher, Target
        settings = AwsSettings(endpoint_url={lake.aws.endpoint_url!r}, region="us-east-1", access_key_id="x",
                               secret_access_key="y", output_location={lake.settings.output_location!r})
        target = Target(name="parts", query={target.query!r}, location={target.location!r},
                        database={target.database!r})
        list(Publisher(settings).unload_partitions(target, {KEYS[:6]!r},
                                                   observe=lambda key, line: print(line, flush=True)))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    running = 0
    for line in process.stdout:
        running += line.startswith("running")
        if running == 6:
            break
    wait_until(lambda: len(lake.aws.faults.held(hold)) == 6, "all queries are held")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode != 0
    for key in KEYS[:6]:
        assert [each.state for each in lake.queries(at(target, key))] == ["CANCELLED"]
        register = lake.register(at(target, key))
        assert register is not None
        assert register.state == "free"


def test_an_interrupted_fleet_does_not_wait_for_a_look_whose_caller_holds_nothing(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    target = partitioned(lake, guard="always")
    rule = lake.aws.faults.add(Fault(HoldRequest(), "athena", "ListQueryExecutions", times=None))

    def interrupt() -> None:
        wait_for(lake, rule)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)  # a test runner may ignore SIGINT
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            list(lake.publisher().unload_partitions(target, KEYS[:2]))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "could not be freed" not in caplog.text
    assert [lake.register(at(target, key)) for key in KEYS[:2]] == [None, None]
    assert lake.aws.requests("athena", "StartQueryExecution") == []
    lake.aws.faults.release(rule)


def test_closing_the_iteration_stops_what_is_under_way(lake: Lake) -> None:
    target = partitioned(lake)
    hold = lake.aws.faults.hold_queries(sql_contains="published%2Fparts%2Fk01")
    results = lake.publisher().unload_partitions(target, KEYS[:2])
    key, _ = next(results)
    assert key == "k00"
    wait_until(lambda: lake.aws.faults.held(hold), "the other query is held")
    results.close()
    assert [each.state for each in lake.queries(at(target, "k01"))] == ["CANCELLED"]
    register = lake.register(at(target, "k01"))
    assert register is not None
    assert register.state == "free"
