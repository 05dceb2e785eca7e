"""Executions that are started, looked at and stopped over a bad line; their state machines need no function."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from athena_assets import errors
from athena_assets.aws import executions
from athena_assets.aws.executions import Execution, Executions, Status
from athena_assets.aws.session import AwsClients
from athena_assets.local import DropReply, DropRequest, Fault, Respond
from athena_assets.step_functions.publisher import LOOK_SECONDS, StepFunctionsPublisher
from athena_assets_tests.e2e.lake import Lake
from athena_assets_tests.local.functions import Workshop

FAILS = {"Type": "Fail", "Error": "Boom", "Cause": "at once"}
WAITS = {"Type": "Wait", "Seconds": 600, "End": True}


@dataclass(slots=True)
class Machine:
    """A state machine of one state."""

    lake: Lake
    states: Any
    arn: str

    def publisher(self) -> StepFunctionsPublisher:
        return StepFunctionsPublisher(self.lake.settings, state_machine=self.arn)

    def statuses(self) -> list[str]:
        return [each["status"] for each in self.states.list_executions(stateMachineArn=self.arn)["executions"]]


def machine(lake: Lake, state: dict[str, Any]) -> Machine:
    shop = Workshop(lake.aws)
    return Machine(lake, shop.states, shop.machine({"Only": state}))


@pytest.mark.long
def test_a_start_whose_reply_was_lost_is_no_second_execution_when_the_first_has_ended(lake: Lake) -> None:
    fails = machine(lake, FAILS)
    rule = lake.aws.faults.add(Fault(DropReply(), "states", "StartExecution"))
    with pytest.raises(errors.ExecutionFailed, match="Boom"):
        fails.publisher().unload(lake.target(), request_id="wish")
    assert lake.aws.faults.hits(rule) == 1
    assert fails.statuses() == ["FAILED"]
    with pytest.raises(errors.ExecutionFailed):
        fails.publisher().unload(lake.target(), request_id="wish")
    assert fails.statuses() == ["FAILED"] * 2  # another try


@pytest.mark.long
def test_an_older_execution_is_not_taken_for_that_of_a_start_which_was_not_answered(lake: Lake) -> None:
    fails = machine(lake, FAILS)
    for _ in range(2):
        with pytest.raises(errors.ExecutionFailed):
            fails.publisher().unload(lake.target(), request_id="wish")
        time.sleep(3)
        lake.aws.faults.add(Fault(DropRequest(), "states", "StartExecution"))
    assert fails.statuses() == ["FAILED"] * 2


@pytest.mark.parametrize("unseen", [2, None])
def test_an_execution_that_can_not_be_seen_yet_is_stopped(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, unseen: int | None
) -> None:
    waits = machine(lake, WAITS)
    monkeypatch.setattr(executions, "UNSEEN_SECONDS", 0.6)
    found = Executions(AwsClients(lake.settings), waits.arn)
    assert found.start("one", "{}") is True
    rule = lake.aws.faults.add(Fault(Respond(400, "ExecutionDoesNotExist"), "states", "StopExecution", times=unseen))
    assert found.stop(found.arn("one"), "interrupted") is None
    assert lake.aws.faults.hits(rule) == unseen or unseen is None
    assert waits.statuses() == ["RUNNING" if unseen is None else "ABORTED"]


def test_three_hundred_long_executions_can_be_waited_for_within_the_quota(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of DescribeExecution: ten calls a second in the regions with the smallest one."""
    publisher = machine(lake, WAITS).publisher()
    run = publisher._run(0, publisher.request(lake.target()), None, lambda _: None)
    run.arn, run.began = "arn", time.monotonic() - 3600
    monkeypatch.setattr(publisher._executions, "describe", lambda arn: Execution(arn, Status.RUNNING))
    assert publisher._look(run) is None
    assert run.next_look - time.monotonic() == pytest.approx(LOOK_SECONDS[1], abs=1)
    assert LOOK_SECONDS[1] * 10 >= 300
