"""A request in steps: the function's code against S3 and Athena, with a test in the place of Step Functions."""

from __future__ import annotations

import json

import pytest

from athena_assets import Published, Reused, errors
from athena_assets.core.request import Outcome
from athena_assets.step_functions.documents import read_error, read_outcome
from athena_assets_tests.e2e.lake import Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.test_guard import by_hand, stop
from athena_assets_tests.step_functions.conftest import Function, Steps


def outcome_of(steps: Steps) -> Outcome:
    return read_outcome(steps.to_the_end()["outcome"], steps.execution)


def error_of(steps: Steps, action: str = "to_the_end") -> errors.AthenaAssetsError:
    """What Step Functions would tell of the exception with which the function ends, read back."""
    with pytest.raises(Exception) as ended:
        getattr(steps, action)()
    error = read_error(type(ended.value).__name__, json.dumps({"errorMessage": str(ended.value)}))
    assert error is not None
    return error


def test_a_request_in_steps_is_one_query_and_one_publication(lake: Lake, function_of: Function) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    steps = function_of.steps(target)
    waits = [steps.step() for _ in range(3)]
    assert [each["status"] for each in waits] == ["waiting"] * 3
    assert all(each["seconds"] >= 1 for each in waits)
    lake.aws.faults.release(hold)
    outcome = outcome_of(steps)
    assert isinstance(outcome, Published)
    assert not outcome.adopted
    assert outcome.execution == steps.execution
    assert outcome.publication.request == steps.name
    assert outcome.publication.run == steps.execution
    assert outcome.publication.fence == steps.taken  # each took the slot over from the one before
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


def test_an_execution_is_answered_with_its_own_publication_as_often_as_it_asks(
    lake: Lake, function_of: Function
) -> None:
    target = lake.target()
    steps = function_of.steps(target)
    first = outcome_of(steps)
    assert outcome_of(steps) == first
    other = outcome_of(function_of.steps(target, request_id=steps.name))
    assert done(other).publication == done(first).publication
    assert len(lake.queries(target.location)) == 1


def test_a_step_that_is_tried_again_goes_on_at_once_from_what_the_lost_one_did(
    lake: Lake, function_of: Function
) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    steps = function_of.steps(target)
    steps.step()
    steps.memory = None  # the reply of the first step was lost
    assert steps.step()["status"] == "waiting"
    register = lake.register(target.location)
    assert register is not None
    assert register.fence == 2  # it did not wait for the lease
    lake.aws.faults.release(hold)
    assert isinstance(outcome_of(steps), Published)
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


def test_a_step_without_time_does_nothing_and_the_next_goes_on(lake: Lake, function_of: Function) -> None:
    target = lake.target()
    steps = function_of.steps(target)
    assert steps.step(0.0)["status"] == "waiting"
    assert lake.register(target.location) is None
    assert isinstance(outcome_of(steps), Published)


def test_the_pauses_count_for_the_targets_timeout(lake: Lake, function_of: Function) -> None:
    target = lake.target(timeout=3)
    lake.aws.faults.hold_queries()
    steps = function_of.steps(target)
    error = error_of(steps)
    assert isinstance(error, errors.QueryTimedOut)
    assert steps.taken >= 3
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]
    assert lake.state(target.location) == "free"


def test_a_step_joins_a_thread_and_a_thread_joins_the_steps(lake: Lake, function_of: Function) -> None:
    target = lake.target(reuse="never")
    hold = lake.aws.faults.hold_queries()
    thread = ThreadCaller(lake.publisher(60), target).start()
    lake.wait_until_held(hold)
    steps = function_of.steps(target)
    assert steps.step()["status"] == "waiting"
    lake.aws.faults.release(hold)
    outcome = outcome_of(steps)
    assert isinstance(outcome, Reused)
    assert outcome.joined
    assert outcome.waited >= 1  # the pause that was asked for
    assert isinstance(thread.end(), Published)

    hold = lake.aws.faults.hold_queries()
    forced = function_of.steps(target, force=True)
    forced.step()
    lake.wait_until_held(hold)
    thread = ThreadCaller(lake.publisher(60), target).start()
    wait_until(lambda: thread.told("waiting"), "the thread waits")
    lake.aws.faults.release(hold)
    assert isinstance(outcome_of(forced), Published)
    assert isinstance(thread.end(), Reused)
    assert len(lake.queries(target.location)) == 2
    lake.assert_published_once(target.location)


def test_the_pauses_count_for_the_wait_timeout(lake: Lake, function_of: Function) -> None:
    target = lake.target(wait_timeout=2.5)
    hold = lake.aws.faults.hold_queries()
    thread = ThreadCaller(lake.publisher(60), target).start()
    query_id = lake.wait_until_held(hold)
    error = error_of(function_of.steps(target))
    assert isinstance(error, errors.SlotBusy)
    assert error.query_id == query_id
    lake.aws.faults.release(hold)
    assert isinstance(thread.end(), Published)


def test_a_query_that_fails_is_run_once_and_raised_under_its_errors_name(lake: Lake, function_of: Function) -> None:
    target = lake.target(query="SELECT n / 0 AS n FROM numbers")
    error = error_of(function_of.steps(target))
    assert type(error) is errors.QueryUserError
    (query,) = lake.queries(target.location)
    assert error.query_id == query.query_id
    assert lake.state(target.location) == "free"


def test_abandoned_steps_leave_no_query_and_a_free_slot(lake: Lake, function_of: Function) -> None:
    target = lake.target()
    lake.aws.faults.hold_queries()
    steps = function_of.steps(target)
    steps.step()
    assert steps.step(action="abandon") == {"status": "abandoned"}
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]
    assert lake.state(target.location) == "free"
    assert steps.step(action="abandon") == {"status": "abandoned"}


def test_nobody_abandons_what_another_owns(lake: Lake, function_of: Function) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    thread = ThreadCaller(lake.publisher(60), target).start()
    lake.wait_until_held(hold)
    function_of.steps(target).step(action="abandon")
    lake.aws.faults.release(hold)
    assert isinstance(thread.end(), Published)
    assert len(lake.queries(target.location)) == 1


def test_an_input_that_makes_no_sense_is_refused_before_anything_is_sent(lake: Lake, function_of: Function) -> None:
    steps = function_of.steps(lake.target(location=f"s3://{lake.bucket}/published/${{partition}}/"))
    before = len(lake.aws.requests("athena"))
    error = error_of(steps, "step")
    assert isinstance(error, errors.InvalidTarget)
    assert "partition" in str(error)
    assert len(lake.aws.requests("athena")) == before


def test_a_memory_of_another_version_is_as_one_that_was_lost(lake: Lake, function_of: Function) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    steps = function_of.steps(target)
    steps.step()
    steps.memory["memory"]["another"] = 1
    lake.aws.faults.release(hold)
    assert isinstance(outcome_of(steps), Published)
    assert len(lake.queries(target.location)) == 1


def test_the_wait_for_a_foreign_query_is_a_pause_like_any_other(lake: Lake, function_of: Function) -> None:
    target = lake.target(guard="always", wait_timeout=2.5)
    query_id = by_hand(lake, target.location)
    steps = function_of.steps(target)
    assert steps.step()["status"] == "waiting"
    assert lake.register(target.location) is None
    error = error_of(steps)
    assert isinstance(error, errors.ForeignQueryRunning)
    assert error.query_id == query_id
    stop(lake, query_id)
    wait_until(lambda: lake.aws.queries()[0].state == "CANCELLED", "the foreign query has ended")
    assert isinstance(outcome_of(function_of.steps(target)), Published)


def test_the_callers_guard_workgroups_go_with_the_input(lake: Lake, function_of: Function) -> None:
    lake.aws.client("athena").create_work_group(Name="theirs", Configuration={"EnforceWorkGroupConfiguration": False})
    target = lake.target(guard="always", on_conflict="fail")
    query_id = by_hand(lake, target.location, workgroup="theirs")
    error = error_of(function_of.steps(target, guard_workgroups=("theirs",)), "step")
    assert isinstance(error, errors.ForeignQueryRunning)
    assert (error.query_id, error.workgroup) == (query_id, "theirs")
