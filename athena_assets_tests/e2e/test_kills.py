"""The owner's process is killed, or frozen past its lease, at each stage; the next caller ends with one publication.

The moment is chosen on the server's side: a request of the owner is held there, so that the process stands exactly
between two effects when the signal comes. What is held is let go afterwards: the late arrival of a dead sender's write.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from athena_assets import Published
from athena_assets.local import Fault, HoldReply, HoldRequest
from athena_assets_tests.e2e.lake import ROWS, Lake, ProcessCaller, ThreadCaller, done, processes, wait_until

# stage: (the request of the owner that is held, whether its query had been started when it died)
STAGES = {
    "before submit": (
        Fault(service="s3", operation="PutObject", key_contains="register.json", action=HoldReply(), times=1),
        False,
    ),
    "start on its way": (
        Fault(service="athena", operation="StartQueryExecution", action=HoldRequest(), times=1),
        False,
    ),
    "after submit": (Fault(service="athena", operation="StartQueryExecution", action=HoldReply(), times=1), True),
    "id being noted": (
        Fault(service="s3", operation="PutObject", key_contains="register.json", action=HoldRequest(), times=1, skip=1),
        True,
    ),
    "while running": (Fault(service="athena", operation="GetQueryExecution", action=HoldReply(), times=1), True),
    "after success": (
        Fault(service="s3", operation="PutObject", key_contains="/manifests/", action=HoldRequest(), times=1),
        True,
    ),
    "before commit": (
        Fault(service="s3", operation="PutObject", key_contains="register.json", action=HoldRequest(), times=1, skip=2),
        True,
    ),
    "after commit": (
        Fault(service="s3", operation="PutObject", key_contains="register.json", action=HoldReply(), times=1, skip=2),
        True,
    ),
    "first copy": (
        Fault(service="s3", operation="CopyObject", key_contains="published/", action=HoldRequest(), times=1),
        True,
    ),
    "mid-copy": (
        Fault(service="s3", operation="CopyObject", key_contains="published/", action=HoldRequest(), times=1, skip=2),
        True,
    ),
    "copied, reply lost": (
        Fault(service="s3", operation="CopyObject", key_contains="published/", action=HoldReply(), times=1, skip=2),
        True,
    ),
    "sources being deleted": (
        Fault(service="s3", operation="DeleteObject", key_contains="/staging/", action=HoldRequest(), times=1, skip=1),
        True,
    ),
    "before release": (
        Fault(service="s3", operation="PutObject", key_contains="register.json", action=HoldRequest(), times=1, skip=3),
        True,
    ),
}


@pytest.fixture
def owner(lake: Lake) -> Iterator[ProcessCaller]:
    with processes(lake, 1) as callers:
        yield callers[0]


def stop_at(lake: Lake, owner: ProcessCaller, fault: Fault) -> tuple[str, str]:
    """The owner publishes a target and stands at the stage; the target's name and the rule that holds the request."""
    target = lake.target()
    rule = lake.aws.faults.add(fault)
    owner.publish(target)
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner stands at the stage")
    return target.name, rule


@pytest.mark.parametrize("stage", STAGES)
def test_killed_owner_is_finished_by_the_next_caller(lake: Lake, owner: ProcessCaller, stage: str) -> None:
    fault, started = STAGES[stage]
    name, rule = stop_at(lake, owner, fault)
    target = lake.target(name)
    before = lake.queries(target.location)
    owner.kill()
    outcome = done(lake.publisher().unload(target))
    lake.assert_published_once(target.location)
    snapshot = lake.listing(target.location, stamped=True)
    history = lake.queries(target.location)
    assert len(history) == 1
    if started:
        assert [each.query_id for each in before] == [outcome.publication.query_id]

    lake.aws.faults.release(rule)  # the dead owner's request arrives after all
    time.sleep(0.3)  # whatever it does, it does it now
    assert lake.listing(target.location, stamped=True) == snapshot
    assert [each.query_id for each in lake.queries(target.location)] == [outcome.publication.query_id]
    assert done(lake.publisher().unload(target)).publication.query_id == outcome.publication.query_id
    lake.assert_published_once(target.location)


@pytest.mark.parametrize("stage", STAGES)
def test_frozen_owner_changes_nothing_published_when_it_wakes(lake: Lake, owner: ProcessCaller, stage: str) -> None:
    name, rule = stop_at(lake, owner, STAGES[stage][0])
    target = lake.target(name)
    owner.signal(signal.SIGSTOP)
    outcome = done(lake.publisher().unload(target))
    lake.assert_published_once(target.location)
    snapshot = lake.listing(target.location, stamped=True)

    lake.aws.faults.release(rule)
    owner.signal(signal.SIGCONT)
    result = owner.result()
    assert result.get("query_id") == outcome.publication.query_id
    assert lake.listing(target.location, stamped=True) == snapshot
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


@pytest.mark.parametrize("stage", ["after commit", "mid-copy", "sources being deleted", "before release"])
def test_frozen_owner_of_a_replaced_publication_brings_no_old_file_back(
    lake: Lake, owner: ProcessCaller, stage: str
) -> None:
    name, rule = stop_at(lake, owner, STAGES[stage][0])
    target = lake.target(name)
    owner.signal(signal.SIGSTOP)
    publisher = lake.publisher()
    first = done(publisher.unload(target))
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    second = done(publisher.unload(target))
    assert second.publication.query_id != first.publication.query_id
    lake.assert_published_once(target.location, range(ROWS + 10))
    snapshot = lake.listing(target.location, stamped=True)

    lake.aws.faults.release(rule)
    owner.signal(signal.SIGCONT)
    result = owner.result()
    assert result["outcome"] == "Published"
    assert result["query_id"] == first.publication.query_id
    assert lake.listing(target.location, stamped=True) == snapshot
    lake.assert_published_once(target.location, range(ROWS + 10))


def test_killed_replacement_leaves_the_new_result_whole(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target()
    publisher = lake.publisher()
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    rule = lake.aws.faults.add(
        Fault(service="s3", operation="DeleteObject", key_contains="published/", action=HoldRequest(), times=1, skip=2)
    )
    owner.publish(target)
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner deletes old files")
    owner.kill()
    assert sum(lake.rows(target.location).values()) < ROWS  # a reader may miss rows, and never sees them twice
    assert max(lake.rows(target.location).values()) == 1
    publisher.unload(target)
    lake.assert_published_once(target.location, range(ROWS + 10))
    lake.aws.faults.release(rule)
    assert len(lake.queries(target.location)) == 2


def test_waiting_callers_finish_what_the_killed_owner_began(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    owner.publish(target)
    wait_until(lambda: owner.told("running"), "the owner's query runs")
    publisher = lake.publisher()
    callers = [ThreadCaller(publisher, target).start() for _ in range(8)]
    wait_until(lambda: all(each.told("waiting") for each in callers), "all callers wait")
    owner.kill()
    wait_until(lambda: any(each.told("taken over") for each in callers), "one caller takes over")
    lake.aws.faults.release(hold)
    outcomes = [caller.join().outcome for caller in callers]
    assert Counter(type(each).__name__ for each in outcomes) == {"Published": 1, "Reused": 7}
    assert [each.adopted for each in outcomes if isinstance(each, Published)] == [True]
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)
