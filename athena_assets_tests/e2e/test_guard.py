"""The guard: what runs already is found before one more query is started, and nothing more is promised of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from athena_assets import Publisher, Skipped, Target, errors
from athena_assets.aws.running import MOST_PAGES, PAGE
from athena_assets.core.statement import Label, parse_label, render_label
from athena_assets.local import Fault, HoldReply, Respond
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
    register = lake.register(target.location)
    assert register is not None
    assert (register.state, register.fence, register.attempt) == ("free", 1, None)
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
        register="free 2",
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
        register="free 2",
        location=files(2),
    )


# --- what is done about it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["join", pytest.param("queue", marks=pytest.mark.long)])
def test_a_foreign_query_is_waited_for_with_the_slot_held(lake: Lake, policy: str) -> None:
    target = lake.target(guard="always", on_conflict=policy)
    query_id = by_hand(lake, target.location)
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_until(lambda: caller.told("foreign query"), "the caller waits")
    assert (lake.state(target.location), ours(lake)) == ("submitting", [])
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


def test_a_foreign_query_that_outlasts_the_wait_timeout_is_named_and_the_slot_is_free(lake: Lake) -> None:
    target = lake.target(guard="always", wait_timeout=0.2)
    query_id = by_hand(lake, target.location)
    ended = end(lake.publisher(PATIENT), target)
    assert isinstance(ended, errors.ForeignQueryRunning)
    assert "wait_timeout" in ended.next_step
    assert (ended.query_id, lake.state(target.location), ours(lake)) == (query_id, "free", [])


def test_skip_names_the_foreign_query_and_leaves_the_slot_free(lake: Lake) -> None:
    target = lake.target(guard="always", on_conflict="skip")
    query_id = by_hand(lake, target.location)
    skipped = end(lake.publisher(PATIENT), target)
    assert isinstance(skipped, Skipped)
    assert (skipped.query_id, skipped.owner) == (query_id, f"query {query_id} in workgroup primary")
    assert (lake.state(target.location), ours(lake)) == ("free", [])


@pytest.mark.long
def test_what_an_earlier_owner_began_is_left_to_the_next_caller(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target(on_conflict="fail")
    wait_for(lake, stand_before_the_start(lake, owner, target))
    owner.kill()
    query_id = by_hand(lake, target.location)
    lake.aws.faults.advance_clock(DAY)
    refused = end(lake.publisher(PATIENT), target)
    assert isinstance(refused, errors.ForeignQueryRunning)
    assert "left to the next caller" in refused.not_done
    assert (lake.state(target.location), ours(lake)) == ("submitting", [])
    stop(lake, query_id)
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [refused, end(lake.publisher(PATIENT), target)],
        ["ForeignQueryRunning", "Published"],
        queries=["CANCELLED", "SUCCEEDED"],
        register="free 3",
        location=files(3),
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


# --- what it costs, and where it sees nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["takeover", "off"])
def test_nothing_is_listed_for_a_publication_that_nothing_disturbs(lake: Lake, guard: str) -> None:
    target = lake.target(guard=guard)
    assert_ends(
        lake,
        target,
        [end(lake.publisher(PATIENT), target)],
        ["Published"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )
    assert looks(lake) == 0


@pytest.mark.long
def test_nothing_is_listed_with_the_guard_off_at_a_takeover_either(lake: Lake, owner: ProcessCaller) -> None:
    target = lake.target(guard="off", on_conflict="fail")
    by_hand(lake, f"s3://{lake.bucket}/published/")
    wait_for(lake, stand_before_the_start(lake, owner, target))
    owner.kill()
    lake.aws.faults.advance_clock(DAY)
    assert_ends(
        lake,
        target,
        [end(lake.publisher(PATIENT), target)],
        ["Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )
    assert looks(lake) == 0


def test_throttling_is_waited_out(lake: Lake) -> None:
    target = lake.target(guard="always", on_conflict="fail")
    by_hand(lake, target.location)
    rule = lake.aws.faults.add(Fault(Respond(400, "ThrottlingException"), *LIST, times=5))  # the SDK asks four times
    assert isinstance(end(lake.publisher(PATIENT), target), errors.ForeignQueryRunning)
    assert lake.aws.faults.hits(rule) == 5


@pytest.mark.long
def test_throttling_that_takes_all_the_time_of_a_look_is_told_and_ends_no_publication(lake: Lake) -> None:
    target = lake.target(guard="always")
    lake.aws.faults.add(Fault(Respond(400, "ThrottlingException"), *LIST, times=None))
    caller = ThreadCaller(lake.publisher(1.0), target).start()
    assert_ends(
        lake,
        target,
        [caller.end()],
        ["Published"],
        queries=["SUCCEEDED"],
        register="free 1",
        location=files(1),
    )
    assert caller.told("looked in part")


@pytest.mark.long
@pytest.mark.parametrize(
    ("guard", "told", "register"),
    [("takeover", "Published", "free 2"), ("always", "AccessDenied", "submitting 2")],
)
def test_who_may_not_list_goes_on_unless_the_guard_is_always(
    lake: Lake, owner: ProcessCaller, guard: str, told: str, register: str
) -> None:
    target = lake.target(guard=guard)
    wait_for(lake, stand_before_the_start(lake, owner, target))
    owner.kill()
    lake.aws.faults.advance_clock(DAY)
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), *LIST, times=None))
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    published = told == "Published"
    assert_ends(
        lake,
        target,
        [caller.end()],
        [told],
        queries=["SUCCEEDED"] if published else [],
        register=register,
        location=files(2) if published else [],
        rows=range(ROWS if published else 0),
    )
    assert caller.told("no look") == published


def test_who_may_not_list_with_guard_always_leaves_a_slot_of_his_own_free(lake: Lake) -> None:
    target = lake.target(guard="always")
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), *LIST))
    denied = end(lake.publisher(PATIENT), target)
    assert "list_query_executions" in str(denied)
    again = end(lake.publisher(PATIENT), target)
    assert_ends(
        lake,
        target,
        [denied, again],
        ["AccessDenied", "Published"],
        queries=["SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_thousand_queries_in_the_history_stay_within_the_bounds_of_a_look(lake: Lake) -> None:
    target = lake.target(guard="always", on_conflict="fail")
    query_id = by_hand(lake, target.location)
    athena = lake.aws.client("athena")
    for _ in range(2_000):
        athena.start_query_execution(
            QueryString="SELECT 1 AS one", ResultConfiguration={"OutputLocation": str(lake.settings.output_location)}
        )
    before = len(lake.aws.requests(service="athena"))
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    caller.join(300)
    assert isinstance(caller.error, errors.ForeignQueryRunning)
    assert caller.error.query_id == query_id
    pages = looks(lake)
    assert pages == 2_000 // PAGE + 1 <= MOST_PAGES
    assert len(lake.aws.requests(service="athena")) - before <= 2 * pages + 1  # and GetWorkGroup
    hurried = ThreadCaller(lake.publisher(1.0), target).start()
    hurried.join(300)
    assert hurried.told("looked in part")  # a fifth of a second
    assert hurried.outcome is not None or isinstance(hurried.error, errors.LocationNotEmpty)
