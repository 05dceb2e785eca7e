"""Many callers, one slot, one moment. The naive control runs in the same harness and shows what the slot prevents."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from athena_assets import Published, Reused
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.processes import ProcessCaller, processes

THREADS = 64
PROCESSES = 8


def at_one_moment(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    """Runs `work(i)` in threads that pass one barrier together."""
    barrier = threading.Barrier(count)

    def run(index: int) -> None:
        barrier.wait()
        work(index)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    return threads


def race_threads(lake: Lake) -> None:
    """One round: the query is held until every caller has read the register and waits."""
    target = lake.target()
    publisher = lake.publisher(lease=60)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    callers = [ThreadCaller(publisher, target) for _ in range(THREADS)]
    barrier = threading.Barrier(THREADS)
    for caller in callers:
        caller.start(barrier)
    wait_until(lambda: sum(each.told("waiting") for each in callers) == THREADS - 1, "all but one caller wait")
    lake.aws.faults.release(hold)
    outcomes = [caller.join().outcome for caller in callers]
    assert [caller.error for caller in callers if caller.error is not None] == []
    assert Counter(type(each) for each in outcomes) == {Published: 1, Reused: THREADS - 1}
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)
    lake.aws.faults.clear()


def race_processes(lake: Lake, callers: list[ProcessCaller]) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    for caller in callers:
        caller.publish(target)
    wait_until(lambda: sum(each.told("waiting") for each in callers) == len(callers) - 1, "all but one process wait")
    lake.aws.faults.release(hold)
    results = [caller.result() for caller in callers]
    assert Counter(each.get("outcome") for each in results) == {"Published": 1, "Reused": len(callers) - 1}
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)
    lake.aws.faults.clear()


def test_naive_callers_duplicate_every_row(lake: Lake) -> None:
    location = f"s3://{lake.bucket}/naive/"
    statement = f"UNLOAD (SELECT n FROM numbers) TO '{location}' WITH (format = 'PARQUET')"
    hold = lake.aws.faults.hold_queries(sql_contains=location)
    athena = lake.aws.client("athena")

    def start(_: int) -> None:
        athena.start_query_execution(
            QueryString=statement,
            QueryExecutionContext={"Database": lake.database},
            ResultConfiguration={"OutputLocation": lake.settings.output_location},
        )

    for thread in at_one_moment(PROCESSES, start):
        thread.join(30)
    wait_until(lambda: len(lake.aws.faults.held(hold)) == PROCESSES, "all queries have passed their check")
    lake.aws.faults.release(hold)
    wait_until(lambda: all(each.state == "SUCCEEDED" for each in lake.queries(location)), "all queries succeed")
    assert lake.rows(location) == Counter(dict.fromkeys(range(ROWS), PROCESSES))


@pytest.mark.timeout(300)
def test_64_threads_share_one_publication_in_20_rounds(lake: Lake) -> None:
    for _ in range(20):
        race_threads(lake)


@pytest.mark.timeout(300)
def test_8_processes_share_one_publication_in_20_rounds(lake: Lake) -> None:
    with processes(lake, PROCESSES, lease=60) as callers:
        for _ in range(20):
            race_processes(lake, callers)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_64_threads_share_one_publication_in_200_rounds(lake: Lake, first: int) -> None:
    for _ in range(first, first + 50):
        race_threads(lake)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, 200, 100))
def test_8_processes_share_one_publication_in_200_rounds(lake: Lake, first: int) -> None:
    with processes(lake, PROCESSES, lease=60) as callers:
        for _ in range(first, first + 100):
            race_processes(lake, callers)


def test_forced_requests_run_one_after_the_other(lake: Lake) -> None:
    target = lake.target()
    publisher = lake.publisher(lease=60)
    callers = [ThreadCaller(publisher, target, {"force": True}).start() for _ in range(4)]
    outcomes = [caller.join().outcome for caller in callers]
    assert all(isinstance(each, Published) for each in outcomes)
    history = lake.queries(target.location)
    assert len(history) == 4
    assert len({done(each).publication.query_id for each in outcomes}) == 4
    lake.assert_published_once(target.location)


def test_callers_of_unknown_upstream_versions_share_the_query_in_flight_and_no_finished_one(lake: Lake) -> None:
    target = lake.target(query="SELECT n FROM numbers WHERE now() IS NOT NULL")
    publisher = lake.publisher(lease=60)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    callers = [ThreadCaller(publisher, target).start() for _ in range(8)]
    wait_until(lambda: sum(each.told("waiting") for each in callers) == 7, "all but one caller wait")
    lake.aws.faults.release(hold)
    assert all(caller.join().outcome is not None for caller in callers)
    assert len(lake.queries(target.location)) == 1
    assert isinstance(publisher.unload(target), Published)
    assert len(lake.queries(target.location)) == 2
    lake.assert_published_once(target.location)
