"""The state machine and its function as deploy/step_functions.yaml makes them, on the embedded AWS of a lake."""

from __future__ import annotations

import io
import json
import os
import signal
import zipfile
from dataclasses import dataclass, field
from typing import Any

from athena_assets.step_functions.machine import Notify, definition_text, state_machine
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
        aws = self.lake.aws
        self.states = aws.client("stepfunctions")
        role = aws.client("iam").create_role(RoleName="publisher", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w") as archive:
            archive.writestr("README", "The function finds the project among the server's own packages.")
        function = aws.client("lambda").create_function(
            FunctionName="publish",
            Runtime="python3.13",
            Role=role,
            Handler="athena_assets.step_functions.handler.handler",
            Code={"ZipFile": sink.getvalue()},
            Timeout=60,
            Environment={"Variables": {"ATHENA_ASSETS_LEASE_SECONDS": str(LEASE)}},
        )
        text = definition_text(state_machine(function["FunctionArn"], self.notify))
        created = self.states.create_state_machine(name="unload", definition=text, roleArn=role)
        self.arn = created["stateMachineArn"]

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
