"""The owner's process is killed, or frozen, at each stage; the next caller ends with one publication.

The moment is chosen on the server's side: a request of the owner is held there, so that the process stands exactly
between two effects when the signal comes. What is held is let go afterwards: the late arrival of a dead sender's write.
S3's clock then goes on by a day, so that nobody waits for a lease; the frozen owner, by its own clock, is still young.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from athena_assets import Target
from athena_assets.local import Fault, HoldReply, HoldRequest
from athena_assets_tests.e2e.faults.ending import (
    DAY,
    PATIENT,
    assert_ends,
    end,
    files,
    on_register,
    wait_for,
    wait_until_all_arrived,
)
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.processes import ProcessCaller, processes


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the owner stands.

    Args:
        fault: holds its request there.
        late: the status that the held request gets once it is let go, heard or not.
        committed: by the owner: whoever comes next rolls its publication forward, with its file names.
        files: under the location at this moment.
        acquired: the owner's acquisition has been applied.
    """

    fault: Fault
    late: int
    committed: bool = False
    files: int = 0
    acquired: bool = True

    @property
    def register(self) -> str:
        return "free 2" if self.acquired else "free 1"

    @property
    def location(self) -> list[str]:
        return files(1 if self.committed or not self.acquired else 2)


COPY, SOURCE = ("s3", "CopyObject", "published/"), ("s3", "DeleteObject", "/staging/")
STAGES = {
    "acquisition on its way": Stage(on_register(HoldRequest()), 412, acquired=False),
    "submitting": Stage(on_register(HoldReply()), 200),
    "start on its way": Stage(Fault(HoldRequest(), "athena", "StartQueryExecution"), 400),
    "started, reply lost": Stage(Fault(HoldReply(), "athena", "StartQueryExecution"), 200),
    "query id on its way": Stage(on_register(HoldRequest(), skip=1), 412),
    "running": Stage(Fault(HoldReply(), "athena", "GetQueryExecution"), 200),
    "manifest on its way": Stage(Fault(HoldRequest(), "s3", "PutObject", "/manifests/"), 200),
    "commit on its way": Stage(on_register(HoldRequest(), skip=2), 412),
    "committed": Stage(on_register(HoldReply(), skip=2), 200, committed=True),
    "all copies on their way": Stage(Fault(HoldRequest(), *COPY, times=4), 404, committed=True),
    "two copied": Stage(Fault(HoldRequest(), *COPY, times=2), 404, committed=True, files=2),
    "all copied, a reply lost": Stage(Fault(HoldReply(), *COPY), 200, committed=True, files=4),
    "all sources but one deleted": Stage(Fault(HoldRequest(), *SOURCE), 412, committed=True, files=4),
    "release on its way": Stage(on_register(HoldRequest(), skip=3), 412, committed=True, files=4),
}
MORE = range(ROWS, ROWS + 10)


@pytest.fixture
def owner(lake: Lake) -> Iterator[ProcessCaller]:
    with processes(lake, 1, PATIENT) as callers:
        yield callers[0]


def stand(lake: Lake, owner: ProcessCaller, stage: Stage, target: Target) -> str:
    """The owner publishes and stands at the stage; the rule that holds its request."""
    rule = lake.aws.faults.add(stage.fault)
    owner.publish(target)
    wait_for(lake, rule)
    # Copies run side by side: those that are not held have their time.
    wait_until(lambda: len(lake.listing(target.location)) == stage.files, f"{stage.files} files are copied")
    return rule


def assert_ended_late(lake: Lake, stage: Stage) -> None:
    wait_until_all_arrived(lake)
    fault = stage.fault
    found = lake.aws.requests(fault.service, fault.operation, fault.key_contains)
    assert found[fault.skip].status == stage.late


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_owner_killed_at_any_stage_is_finished_and_its_late_request_changes_nothing(
    lake: Lake, owner: ProcessCaller, stage: Stage
) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = stand(lake, owner, stage, target)
    owner.kill()
    lake.aws.faults.advance_clock(DAY)
    outcome = end(publisher, target)
    snapshot = lake.listing(target.location, stamped=True)
    lake.aws.faults.release(rule)
    assert_ended_late(lake, stage)
    assert lake.listing(target.location, stamped=True) == snapshot
    assert_ends(
        lake,
        target,
        [outcome, end(publisher, target)],
        ["Published", "Reused"],
        queries=["SUCCEEDED"],
        register=stage.register,
        location=stage.location,
    )


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_owner_frozen_at_any_stage_changes_nothing_published_when_it_wakes(
    lake: Lake, owner: ProcessCaller, stage: Stage
) -> None:
    target = lake.target()
    rule = stand(lake, owner, stage, target)
    owner.signal(signal.SIGSTOP)
    lake.aws.faults.advance_clock(DAY)
    outcome = end(lake.publisher(PATIENT), target)
    snapshot = lake.listing(target.location, stamped=True)
    lake.aws.faults.release(rule)
    owner.signal(signal.SIGCONT)
    woken = owner.result()
    assert lake.listing(target.location, stamped=True) == snapshot
    assert_ends(
        lake,
        target,
        [outcome, woken],
        ["Published", "Published" if stage.acquired else "Reused"],
        queries=["SUCCEEDED"],
        register=stage.register,
        location=stage.location,
    )


@pytest.mark.parametrize("name", ["committed", "two copied", "all sources but one deleted", "release on its way"])
def test_owner_frozen_in_its_swap_brings_no_file_back_after_the_next_publication(
    lake: Lake, owner: ProcessCaller, name: str
) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    rule = stand(lake, owner, STAGES[name], target)
    owner.signal(signal.SIGSTOP)
    lake.aws.faults.advance_clock(DAY)
    first = done(publisher.unload(target))
    lake.put_rows("numbers", "part-1.parquet", MORE)
    second = end(publisher, target)
    snapshot = lake.listing(target.location, stamped=True)
    lake.aws.faults.release(rule)
    owner.signal(signal.SIGCONT)
    woken = owner.result()
    assert woken["query_id"] == first.publication.query_id
    assert lake.listing(target.location, stamped=True) == snapshot
    assert_ends(
        lake,
        target,
        [first, second, woken],
        ["Published"] * 3,
        queries=["SUCCEEDED"] * 2,
        register="free 3",
        location=files(3, 5),
        rows=range(MORE.stop),
    )


def test_callers_that_wait_finish_what_the_killed_owner_began_when_its_lease_has_run_out(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    with processes(lake, 1) as (owner,):
        owner.publish(target)
        wait_until(lambda: owner.told("running"), "the owner's query runs")
        publisher = lake.publisher(PATIENT)
        callers = [ThreadCaller(publisher, target).start() for _ in range(8)]
        wait_until(lambda: all(each.told("waiting") for each in callers), "all callers wait")
    wait_until(lambda: any(each.told("taken over") for each in callers), "one caller takes over")
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        sorted((caller.end() for caller in callers), key=lambda each: type(each).__name__),
        ["Published", *["Reused"] * 7],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )
