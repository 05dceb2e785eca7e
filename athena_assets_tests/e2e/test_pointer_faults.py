"""Mode `pointer` with Glue: owners that die or freeze at the swap, lost replies, late writes."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from athena_assets import Published, Target, errors
from athena_assets.core.location import parse_location
from athena_assets.local import DropReply, DropRequest, Fault, HoldReply, HoldRequest, Respond, RespondAfterApply
from athena_assets.local.faults import Action
from athena_assets_tests.e2e.lake import LEASE, Lake, done, wait_until
from athena_assets_tests.e2e.processes import ProcessCaller, processes
from athena_assets_tests.e2e.test_pointer import glue, numbers, values

ANSWERS: dict[str, Action] = {
    "applied, reply dropped": DropReply(),
    "not applied, connection dropped": DropRequest(),
    "applied, then 500": RespondAfterApply(500, "InternalServiceException"),
    "not applied, throttled": Respond(400, "ThrottlingException"),
    "conflict": Respond(400, "ConcurrentModificationException"),
    "conflict with our own first write": RespondAfterApply(400, "ConcurrentModificationException"),
}
WRITES = ("CreateTable", "CreatePartition", "UpdateTable", "UpdatePartition")


@pytest.fixture
def owner(lake: Lake) -> Iterator[ProcessCaller]:
    with processes(lake, 1) as callers:
        yield callers[0]


def parts(lake: Lake, size: int) -> Target:
    return glue(lake, "parts", size, location=f"s3://{lake.bucket}/published/parts/dt=${{partition}}/")


def slot_of(lake: Lake, partition: str | None) -> str:
    return f"s3://{lake.bucket}/published/{'t' if partition is None else f'parts/dt={partition}'}/"


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("write", WRITES)
def test_doubtful_answer_to_a_glue_write_points_it_at_the_result(lake: Lake, write: str, answer: str) -> None:
    publisher = lake.publisher(60)
    partition = "a" if "Partition" in write else None
    rule = lake.aws.faults.add(Fault(ANSWERS[answer], "glue", write))  # the first creates, the second updates
    for size in (500, 600):
        target = glue(lake, "t", size) if partition is None else parts(lake, size)
        assert isinstance(publisher.unload(target, partition=partition), Published)
    assert lake.aws.faults.hits(rule) == 1
    slot = slot_of(lake, partition)
    pointed = lake.pointer("t") if partition is None else lake.pointer("parts", partition)
    assert pointed == lake.readers(slot)
    lake.assert_published_once(slot, range(600))
    assert len(lake.queries(slot)) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("action", [HoldRequest(), HoldReply()], ids=["before the swap", "after the swap"])
def test_owner_that_dies_or_freezes_at_the_swap_is_finished(
    lake: Lake, owner: ProcessCaller, action: Action, number: signal.Signals
) -> None:
    publisher = lake.publisher()
    publisher.unload(glue(lake, "t", 500))
    old = lake.pointer("t")
    rule = lake.aws.faults.add(Fault(action, "glue", "UpdateTable"))
    target = glue(lake, "t", 600)
    owner.publish(target)
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner swaps")
    assert (lake.pointer("t") == old) == isinstance(action, HoldRequest)
    owner.signal(number)
    outcome = done(publisher.unload(target))
    assert lake.pointer("t") == lake.readers(target.location) != old
    latest = done(publisher.unload(glue(lake, "t", 700))).publication
    pointed = lake.pointer("t")
    lake.aws.faults.release(rule)  # what was on its way arrives after all
    if number == signal.SIGSTOP:
        owner.signal(signal.SIGCONT)
        assert owner.result().get("query_id") == outcome.publication.query_id
    else:
        wait_until(
            lambda: 0 not in {each.status for each in lake.aws.requests("glue", "UpdateTable")}, "it has arrived"
        )
    assert lake.pointer("t") == pointed == lake.readers(target.location)
    assert values(lake, "t") == Counter(range(700))
    assert len(lake.queries(target.location)) == 3
    register = lake.register(target.location)
    assert register is not None
    assert register.publication == latest


def test_paused_projector_of_a_partition_puts_right_what_it_put_back(lake: Lake, owner: ProcessCaller) -> None:
    slot, publisher = slot_of(lake, "a"), lake.publisher()
    publisher.unload(parts(lake, 500), partition="a")
    rule = lake.aws.faults.add(Fault(HoldRequest(), "glue", "UpdatePartition"))
    owner.publish(parts(lake, 600), partition="a")
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner swaps")
    owner.signal(signal.SIGSTOP)
    publisher.unload(parts(lake, 600), partition="a")
    older = lake.pointer("parts", "a")
    publisher.unload(parts(lake, 700), partition="a")
    assert lake.pointer("parts", "a") == lake.readers(slot)
    lake.aws.faults.release(rule)
    wait_until(lambda: lake.pointer("parts", "a") == older, "Glue has no version of a partition: an older result shows")
    assert lake.rows(older) == Counter(range(600))
    owner.signal(signal.SIGCONT)
    assert owner.result()["outcome"] == "Published"
    assert lake.pointer("parts", "a") == lake.readers(slot)
    assert lake.rows(lake.pointer("parts", "a")) == Counter(range(700))


def test_late_write_of_a_dead_projector_shows_an_older_whole_result_until_it_is_repaired(
    lake: Lake, owner: ProcessCaller
) -> None:
    slot, publisher = slot_of(lake, "a"), lake.publisher()
    location = parse_location(slot)
    publisher.unload(parts(lake, 500), partition="a")
    rule = lake.aws.faults.add(Fault(HoldRequest(), "glue", "UpdatePartition"))
    owner.publish(parts(lake, 600), partition="a")
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner swaps")
    owner.kill()
    publisher.unload(parts(lake, 600), partition="a")
    older = lake.pointer("parts", "a")
    publisher.unload(parts(lake, 700), partition="a")
    assert publisher.scrub(location).clean
    lake.aws.faults.release(rule)
    wait_until(lambda: lake.pointer("parts", "a") == older, "the dead owner's write arrives")
    publisher.collect(location, delete=True, grace=0)
    assert lake.rows(older) == Counter(range(600))  # Glue names it
    report = publisher.scrub(location)
    assert not report.clean
    assert report.astray is not None
    assert older in report.astray
    assert publisher.repair(location) == ()
    assert lake.pointer("parts", "a") == lake.readers(slot)
    assert publisher.scrub(location).clean
    with pytest.raises(errors.NotBlocked):
        publisher.repair(location)


def test_partition_that_others_changed_keeps_their_parameters(lake: Lake) -> None:
    publisher = lake.publisher()
    publisher.unload(parts(lake, 500), partition="a")
    names = {"DatabaseName": lake.database, "TableName": "parts"}
    found = lake.glue.get_partition(**names, PartitionValues=["a"])["Partition"]
    lake.glue.update_partition(
        **names,
        PartitionValueList=["a"],
        PartitionInput={
            "Values": ["a"],
            "StorageDescriptor": found["StorageDescriptor"],
            "Parameters": {**found["Parameters"], "theirs": "1"},
        },
    )
    publisher.unload(parts(lake, 600), partition="a")
    found = lake.glue.get_partition(**names, PartitionValues=["a"])["Partition"]
    assert found["Parameters"]["theirs"] == "1"
    assert lake.pointer("parts", "a") == lake.readers(slot_of(lake, "a"))


def test_restore_that_dies_before_the_swap_is_finished_by_the_next_caller(lake: Lake) -> None:
    publisher = lake.publisher(LEASE)
    for size in (500, 600):
        publisher.unload(glue(lake, "t", size))
    location = parse_location(lake.target("t").location)
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), "glue", "UpdateTable"))
    with pytest.raises(errors.AccessDenied):
        publisher.restore(location, 1, request_id="r")
    outcome = done(publisher.unload(glue(lake, "t", 500)))
    assert outcome.publication.restored == 1
    assert values(lake, "t") == Counter(range(500))
    assert publisher.restore(location, 1, request_id="r").fence == 3
    assert len(lake.queries(str(location))) == 2


def test_killed_owner_without_glue_is_finished_in_a_directory_of_its_own(lake: Lake, owner: ProcessCaller) -> None:
    target = numbers(lake, "t", 600)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "athena", "StartQueryExecution"))
    owner.publish(target)
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the start is on its way")
    owner.kill()
    done(lake.publisher().unload(target))
    before = lake.listing(target.location, stamped=True)
    lake.aws.faults.release(rule)
    wait_until(
        lambda: 0 not in {each.status for each in lake.aws.requests("athena", "StartQueryExecution")}, "it has arrived"
    )
    assert lake.listing(target.location, stamped=True) == before
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location, range(600))
