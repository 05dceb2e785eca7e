"""The state machine's definition: what can be said of it without running it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from athena_assets import errors
from athena_assets.step_functions.machine import (
    FUNCTION_TIMEOUT,
    Bus,
    Notify,
    Topic,
    definition_text,
    state_machine,
)

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:publish"
TOPIC = Topic("arn:aws:sns:us-east-1:123456789012:results")
BUS = Bus("results")
VARIANTS = [None, TOPIC, BUS]

SFN_LAMBDA = "Step Functions developer guide, Handle Lambda service exceptions"
DOCUMENTED = {
    "Lambda.ClientExecutionTimeoutException": SFN_LAMBDA,
    "Lambda.ServiceException": SFN_LAMBDA,
    "Lambda.AWSLambdaException": SFN_LAMBDA,
    "Lambda.SdkClientException": SFN_LAMBDA,
    "Lambda.TooManyRequestsException": SFN_LAMBDA,
    "Lambda.Unknown": SFN_LAMBDA,
    "States.Timeout": "Step Functions developer guide, Handling errors in workflows",
    "Sandbox.Timedout": "Lambda developer guide, Troubleshoot invocation issues",
    "Runtime.ExitError": "AWS re:Post knowledge center, lambda-runtime-error",
    "Runtime.OutOfMemory": "nasa-gcn/gcn.nasa.gov, pull request 3628: what a function on AWS was seen to end with",
}
"""Names of AWS for a step that did not run, or whose end is not known, and where they are found."""

EVENTS = {"Task": 5, "Choice": 2, "Wait": 2, "Pass": 2, "Succeed": 2, "Fail": 1}
"""Events in an execution's history for a state that is passed through (API reference, "HistoryEvent"): entered and
exited; of a task also scheduled, started and succeeded."""


@pytest.fixture(params=VARIANTS, ids=["quiet", "topic", "bus"])
def notify(request: pytest.FixtureRequest) -> Notify | None:
    found: Notify | None = request.param
    return found


@pytest.fixture
def states(notify: Notify | None) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = state_machine(FUNCTION, notify)["States"]
    return found


def following(state: dict[str, Any]) -> list[str]:
    return [
        *([state["Next"]] if "Next" in state else []),
        *(each["Next"] for each in (*state.get("Choices", ()), *state.get("Catch", ()))),
    ]


def reached(states: dict[str, dict[str, Any]], start: str) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        if (name := pending.pop()) not in found:
            found.add(name)
            pending += following(states[name])
    return found


def tasks(states: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: state for name, state in states.items() if state["Type"] == "Task"}


def test_every_state_is_reached_and_every_path_ends(states: dict[str, dict[str, Any]]) -> None:
    assert reached(states, "Begin") == states.keys()
    for name in states:
        assert reached(states, name) & {"Done", "Failed"}
    assert [name for name, state in states.items() if not following(state)] == ["Done", "Failed"]


def test_whatever_fails_in_a_task_is_caught(states: dict[str, dict[str, Any]]) -> None:
    for state in tasks(states).values():
        assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"]
        assert state["TimeoutSeconds"] > 0


@pytest.mark.parametrize("name", ["Step", "Abandon"])
def test_a_lost_step_is_tried_again_and_no_decision_of_the_protocol_is(
    states: dict[str, dict[str, Any]], name: str
) -> None:
    ours = {name for name, value in vars(errors).items() if isinstance(value, type)}
    retried = [each for retry in states[name]["Retry"] for each in retry["ErrorEquals"]]
    assert len(retried) == len(set(retried))
    assert set(retried) - DOCUMENTED.keys() == {"OutcomeUnknown", "ServiceUnavailable"} <= ours
    assert set(retried) >= DOCUMENTED.keys()


def test_every_retry_backs_off_with_full_jitter(states: dict[str, dict[str, Any]]) -> None:
    for retry in (retry for state in tasks(states).values() for retry in state["Retry"]):
        assert (retry["JitterStrategy"], retry["BackoffRate"]) == ("FULL", 2)
        assert 0 < retry["IntervalSeconds"] <= retry["MaxDelaySeconds"]
        assert retry["MaxAttempts"] < 99_999_999


def test_a_step_may_take_as_long_as_its_function(states: dict[str, dict[str, Any]]) -> None:
    assert states["Step"]["TimeoutSeconds"] > FUNCTION_TIMEOUT
    assert states["Abandon"]["TimeoutSeconds"] > FUNCTION_TIMEOUT


def test_both_actions_are_sent_the_same_event(states: dict[str, dict[str, Any]]) -> None:
    step, abandon = (states[name]["Parameters"] for name in ("Step", "Abandon"))
    assert step["FunctionName"] == abandon["FunctionName"] == FUNCTION
    assert step["Payload"] | {"action": "abandon"} == abandon["Payload"]
    assert [name.removesuffix(".$") for name in step["Payload"]] == ["action", "execution", "name", "input", "memory"]


def test_only_the_handler_decides() -> None:
    """The one choice looks at the handler's status and nothing else, and takes no unknown status for a success."""
    decide = state_machine(FUNCTION)["States"]["Decide"]
    assert {each["Variable"] for each in decide["Choices"]} == {"$.step.status"}
    assert [(each["StringEquals"], each["Next"]) for each in decide["Choices"]] == [
        ("waiting", "Pause"),
        ("published", "Success"),
        ("reused", "Success"),
        ("skipped", "Success"),
    ]
    assert "Default" not in decide


def test_a_failed_notification_leads_where_a_sent_one_does() -> None:
    for notify in (TOPIC, BUS):
        states = state_machine(FUNCTION, notify)["States"]
        for name, end in (("Notify", "Done"), ("NotifyFailure", "Failed")):
            assert set(following(states[name])) == {end}
            assert states[name]["ResultPath"] is None
            assert all(each["ResultPath"] is None for each in states[name]["Catch"])


def test_a_failed_abandonment_keeps_the_first_error(states: dict[str, dict[str, Any]]) -> None:
    assert set(following(states["Abandon"])) == {"Failure"}
    assert all(each["ResultPath"] is None for each in states["Abandon"]["Catch"])
    assert (states["Failed"]["ErrorPath"], states["Failed"]["CausePath"]) == ("$.error.Error", "$.error.Cause")


def test_nobody_is_notified_of_the_input(notify: Notify | None) -> None:
    """It holds the query's text."""
    states = state_machine(FUNCTION, notify)["States"]
    told = json.dumps([state["Parameters"] for name, state in states.items() if name.startswith("Notify")])
    assert "Execution.Input" not in told
    assert ("Execution.Id" in told) == (notify is not None)


def test_a_loop_costs_nine_events_of_the_history_and_three_transitions(states: dict[str, dict[str, Any]]) -> None:
    loop = [name for name in states if name in reached(states, "Step") and "Step" in reached(states, name)]
    assert loop == ["Step", "Decide", "Pause"]
    assert sum(EVENTS[states[name]["Type"]] for name in loop) == 9


@pytest.mark.long  # in every run it looks at the template, which has the same definitions
def test_cfn_lint_has_nothing_to_say_of_any_variant() -> None:
    """It looks into no definition behind an Fn::If, as those of deploy/step_functions.yaml are."""
    from cfnlint.api import lint  # a second to import

    def resource(definition: dict[str, Any]) -> dict[str, Any]:
        text = definition_text(definition)
        properties = {"RoleArn": "arn:aws:iam::123456789012:role/states", "DefinitionString": text}
        return {"Type": "AWS::StepFunctions::StateMachine", "Properties": properties}

    broken = state_machine(FUNCTION)
    broken["States"]["Pause"]["Type"] = "Sleep"
    machines = {f"Machine{number}": resource(state_machine(FUNCTION, each)) for number, each in enumerate(VARIANTS)}
    template = {"AWSTemplateFormatVersion": "2010-09-09", "Resources": machines | {"Broken": resource(broken)}}
    found = lint(json.dumps(template, indent=1), regions=["us-east-1"])
    assert {each.path[1] for each in found} == {"Broken"}


@pytest.mark.parametrize("width", [20, 60, 10_000])
def test_the_text_is_the_definition(notify: Notify | None, width: int) -> None:
    definition = state_machine(FUNCTION, notify)
    assert json.loads(definition_text(definition, width)) == definition


def test_no_line_of_the_text_is_longer_than_its_width(notify: Notify | None) -> None:
    text = definition_text(state_machine(FUNCTION, notify), 100)
    assert not [line for line in text.splitlines() if len(line) > 100]
