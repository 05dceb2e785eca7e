"""The guard: what runs already is found before one more query is started, and nothing more is promised of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from athena_assets import Publisher, Skipped, Target, errors
from athena_assets.core.statement import Label, parse_label, render_label
from athena_assets.local import Fault, HoldReply
from athena_assets_tests.e2e.faults.ending import DAY, PATIENT, assert_ends, end, files, on_register, wait_for
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, wait_until
from athena_assets_tests.e2e.processes import ProcessCaller, processes

LIST = ("athena", "ListQueryExecutions")
HAND = "/* by hand */"


@pytest.fixture
def owner(lake: Lake) -> Iterator[ProcessCaller]:
    with processes(lake, 1, PATIENT) as callers:
        yield callers[0]


def by_hand(lake: Lake, destination: str, *, label: Label | None = None, workgroup: str = "primary") -> str:
    """Somebody unloads to a place, and the query runs until it is released or stopped; its id."""
    head = "" if label is None else f"{render_label(label)}\n"
    lake.aws.faults.hold_queries(sql_contains=HAND)
    answer = lake.aws.client("athena").start_query_execution(
        QueryString=f"{head}unload {HAND} (select n from numbers) -- to 's3://nowhere/'\nto '{destination}'"
        " with (format = 'PARQUET')",
        QueryExecutionContext={"Database": lake.database},
        ResultConfiguration={"OutputLocation": str(lake.settings.output_location)},
        WorkGroup=workgroup,
    )
    return str(answer["QueryExecutionId"])


def stop(lake: Lake, query_id: str) -> None:
    lake.aws.client("athena").stop_query_execution(QueryExecutionId=query_id)


def ours(lake: Lake) -> list[str]:
    """The states of the queries with our label, oldest first."""
    return [each.state for each in lake.aws.queries() if parse_label(each.sql) is not None]


def looks(lake: Lake) -> int:
    return len(lake.aws.requests(*LIST))


# --- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["published/{}", "published/", "published/{}/inside/"])
def test_an_unlabelled_query_that_overlaps_the_location_is_caught(lake: Lake, place: str) -> None:
    target = lake.target(guard="always", on_conflict="fail")
    query_id = by_hand(lake, f"s3://{lake.bucket}/{place.format(target.name)}")
    ended = end(lake.publisher(PATIENT), target)
    assert isinstance(ended, errors.ForeignQueryRunning)
    assert (ended.query_id, ended.workgroup) == (query_id, "primary")
    assert HAND in str(ended)
    assert ours(lake) == []
    assert lake.register(target.location) is None
    assert lake.listing(target.location) == {}


def test_a_query_to_another_location_is_not_caught(lake: Lake) -> None:
    target = lake.target(guard="always", on_conflict="fail")
    for place in (f"published/{target.name}_old/", "elsewhere/", f"elsewhere/published/{target.name}/"):
        by_hand(lake, f"s3://{lake.bucket}/{place}")
    by_hand(lake, f"s3://another-{lake.bucket}/published/{target.name}/")
    assert_ends(
        lake,
        target,
        [end(lake.publisher(PATIENT), target)],
        ["Published"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )


@pytest.mark.long
def test_a_stale_attempt_in_a_directory_of_its_own_is_not_foreign_and_one_without_the_label_is(lake: Lake) -> None:
    target = lake.target(guard="always", on_conflict="fail", mode="pointer")
    directory = f"{target.location}00000001-01-{'0' * 16}/"
    stale = by_hand(lake, directory, label=Label(target.location, 1, 1))
    other = by_hand(lake, directory.replace("01-0", "02-0"), label=Label(f"s3://{lake.bucket}/another/", 1, 1))
    ended = end(lake.publisher(PATIENT), target)
    assert isinstance(ended, errors.ForeignQueryRunning)
    assert ended.query_id == other
    stop(lake, other)
    wait_until(lambda: "CANCELLED" in ours(lake), "the other one has ended")
    assert_ends(
        lake,
        target,
        [end(lake.publisher(PATIENT), target)],
        ["Published"],
        queries=["RUNNING", "CANCELLED", "SUCCEEDED"],
        register="free 1",
        location=4,
    )
    stop(lake, stale)


@pytest.mark.long
def test_a_query_in_another_workgroup_is_caught_where_that_one_is_named(lake: Lake) -> None:
    lake.aws.client("athena").create_work_group(Name="theirs", Configuration={"EnforceWorkGroupConfiguration": False})
    target = lake.target(guard="always", on_conflict="fail")
    query_id = by_hand(lake, target.location, workgroup="theirs")
    settings = replace(lake.settings, guard_workgroups=("theirs",))
    ended = end(Publisher(settings, lease_seconds=PATIENT), target)
    assert isinstance(ended, errors.ForeignQueryRunning)
    assert (ended.query_id, ended.workgroup) == (query_id, "theirs")
    assert looks(lake) == 2
    assert_ends(
        lake,
        target,
        [end(lake.publisher(PATIENT), target)],
        ["Published"],
        queries=["RUNNING", "SUCCEEDED"],
        register="free 1",
        location=files(1),
    )


# --- what is done about it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["join", pytest.param("queue", marks=pytest.mark.long)])
def test_a_foreign_query_is_waited_for_before_the_slot_is_taken(lake: Lake, policy: str) -> None:
    target = lake.target(guard="always", on_conflict=policy)
    query_id = by_hand(lake, target.location)
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: caller.told("foreign query"), "the caller waits")
    assert (lake.register(target.location), ours(lake)) == (None, [])
    stop(lake, query_id)
    assert_ends(
        lake,
        target,
        [caller.end()],
        ["Published"],
        queries=["CANCELLED", "SUCCEEDED"],
        register="free 1",
        location=files(1),
    )


def test_a_foreign_query_that_outlasts_the_wait_timeout_is_named_and_the_slot_is_not_taken(lake: Lake) -> None:
    target = lake.target(guard="always", wait_timeout=0.2)
    query_id = by_hand(lake, target.location)
    ended = end(lake.publisher(PATIENT), target)
    assert isinstance(ended, errors.ForeignQueryRunning)
    assert "wait_timeout" in ended.next_step
    assert (ended.query_id, lake.register(target.location), ours(lake)) == (query_id, None, [])


@pytest.mark.long
def test_who_is_interrupted_while_a_foreign_query_runs_has_started_none_and_holds_nothing(
    lake: Lake, owner: ProcessCaller
) -> None:
    target = lake.target(guard="always")
    query_id = by_hand(lake, target.location)
    owner.publish(target)
    wait_until(lambda: owner.told(f"foreign query: query {query_id}"), "it waits")
    owner.signal(signal.SIGINT)
    owner.wait()
    assert (lake.register(target.location), ours(lake)) == (None, [])
    assert len(lake.aws.requests("athena", "StartQueryExecution")) == 1


def test_skip_names_the_foreign_query_and_does_not_take_the_slot(lake: Lake) -> None:
    target = lake.target(guard="always", on_conflict="skip")
    query_id = by_hand(lake, target.location)
    skipped = end(lake.publisher(PATIENT), target)
    assert isinstance(skipped, Skipped)
    assert (skipped.query_id, skipped.owner) == (query_id, f"query {query_id} in workgroup primary")
    assert (lake.register(target.location), ours(lake)) == (None, [])


@pytest.mark.long
def test_what_an_earlier_owner_began_is_left_to_the_next_caller(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target(on_conflict="fail")
    wait_for(lake, stand_before_the_start(lake, owner, target))
    owner.kill()
    query_id = by_hand(lake, target.location)
    lake.aws.faults.advance_clock(DAY)
    refused = end(lake.publisher(PATIENT), target)
    assert isinstance(refused, errors.ForeignQueryRunning)
    assert "not taken" in refused.not_done
    assert (lake.state(target.location), ours(lake)) == ("submitting", [])
    stop(lake, query_id)
    assert_ends(
        lake,
        target,
        [refused, end(lake.publisher(PATIENT), target)],
        ["ForeignQueryRunning", "Published"],
        queries=["CANCELLED", "SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


def stand_before_the_start(lake: Lake, owner: ProcessCaller, target: Target) -> str:
    rule = lake.aws.faults.add(on_register(HoldReply()))
    owner.publish(target)
    return rule


@pytest.mark.parametrize(
    ("mode", "location"),
    [
        ("staged", files(2)),
        pytest.param("pointer", 4, marks=pytest.mark.long),
        pytest.param("direct", 4, marks=pytest.mark.long),
    ],
)
def test_the_query_of_a_dead_owner_whose_token_is_forgotten_is_adopted_and_no_other_is_started(
    lake: Lake, owner: ProcessCaller, mode: str, location: list[str] | int
) -> None:
    target = lake.target(mode=mode)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    lake.aws.faults.add(Fault(HoldReply(), "athena", "StartQueryExecution"))
    owner.publish(target)
    query_id = lake.wait_until_held(hold)
    owner.kill()
    lake.aws.faults.forget_tokens()
    lake.aws.faults.advance_clock(DAY)
    taker = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: taker.told(f"adopted: query {query_id}"), "the query is adopted")
    lake.aws.faults.release(hold)
    ended = taker.end()
    assert_ends(
        lake,
        target,
        [ended, end(lake.publisher(PATIENT), target)],
        ["Published", "Reused"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=location,
        rows=range(ROWS),
    )
    assert len(lake.aws.requests("athena", "StartQueryExecution")) == 1
