"""The state machine and its function as deploy/step_functions.yaml makes them, on the embedded AWS of a lake."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from typing import Any

from athena_assets.dev.states import make_state_machine
from athena_assets.step_functions.machine import Notify
from athena_assets.step_functions.publisher import StepFunctionsPublisher
from athena_assets_tests.e2e.lake import Lake, wait_until

LEASE = 6.0  # seconds; the pauses between steps are shorter


@dataclass(slots=True)
class Machine:
    """One state machine, whose executions publish to the lake."""

    lake: Lake
    notify: Notify | None = None
    arn: str = field(init=False)
    states: Any = field(init=False)

    def __post_init__(self) -> None:
        self.states = self.lake.aws.client("stepfunctions")
        settings = {"ATHENA_ASSETS_LEASE_SECONDS": str(LEASE)}
        self.arn = make_state_machine(self.lake.aws, settings, notify=self.notify, timeout=60)

    def publisher(self) -> StepFunctionsPublisher:
        return StepFunctionsPublisher(self.lake.settings, state_machine=self.arn, lease_seconds=LEASE)

    def start(self, document: dict[str, Any], name: str) -> str:
        """StartExecution with a document, as a script would; returns the ARN."""
        answer = self.states.start_execution(stateMachineArn=self.arn, name=name, input=json.dumps(document))
        return str(answer["executionArn"])

    def executions(self) -> list[str]:
        """The statuses of all executions, oldest first."""
        found = self.states.list_executions(stateMachineArn=self.arn)["executions"]
        return [each["status"] for each in sorted(found, key=lambda each: each["startDate"])]

    def wait(self, execution: str) -> dict[str, Any]:
        """DescribeExecution, once it has ended."""

        def ended() -> dict[str, Any] | None:
            found: dict[str, Any] = self.states.describe_execution(executionArn=execution)
            return None if found["status"] == "RUNNING" else found

        answer: dict[str, Any] = wait_until(ended, "the execution ends", 120)
        return answer

    def kill_step(self) -> None:
        """SIGKILL to the function's process that is in the middle of a step."""
        busy = wait_until(lambda: [each for each in self.lake.aws.functions() if each.busy], "a step runs")
        os.kill(busy[0].pid, signal.SIGKILL)
