"""Executions of a Step Functions state machine: start, look, stop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from athena_assets.aws.replies import Refusal, call, denied
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import Unanswered

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef

UNSEEN_SECONDS = 2.0
"""For so long after its start an execution may be told not to exist (API reference, DescribeExecution: its answers are
eventually consistent), or its start be on the way."""

# A quota of open executions; and what is told of one that was started a moment ago.
_PASSES = frozenset({"ExecutionLimitExceeded", "ExecutionDoesNotExist"})


class Status(StrEnum):
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    ABORTED = "ABORTED"
    PENDING_REDRIVE = "PENDING_REDRIVE"


@dataclass(frozen=True, slots=True)
class Execution:
    """What DescribeExecution says. `output` is JSON, if it succeeded; `error` and `cause` tell why it did not.

    `age`: seconds since its start by AWS's clock, up to a second too few.
    """

    arn: str
    status: Status
    age: float = 0.0
    input: str = "{}"
    output: str = "null"
    error: str = ""
    cause: str = ""

    @property
    def ended(self) -> bool:
        return self.status not in (Status.RUNNING, Status.PENDING_REDRIVE)


class Executions:
    """The executions of one STANDARD state machine.

    Raises, in each method:
        AccessDenied: the call was refused, or there is no such state machine.
    """

    def __init__(self, clients: AwsClients, state_machine: str) -> None:
        self._clients = clients
        self._machine = state_machine

    def arn(self, name: str) -> str:
        """The ARN of the execution of this name, whether there is one or not."""
        return f"{self._machine.replace(':stateMachine:', ':execution:')}:{name}"

    def start(self, name: str, text: str) -> bool | Unanswered:
        """Starts an execution, or finds that it runs already with the same input. False: the name is taken otherwise.

        Lost reply: starting it again finds the first one while that runs (API reference, StartExecution). Once it has
        ended the answer is False, as if it were another caller's.
        """
        answer = call(
            self._machine,
            self._clients.states_start.start_execution,
            {"stateMachineArn": self._machine, "name": name, "input": text},
            expect="executionArn",
        )
        if isinstance(answer, Refusal):
            if answer.code == "ExecutionAlreadyExists":
                return False
            return self._refused(answer, "StartExecution")
        return answer if isinstance(answer, Unanswered) else True

    def describe(self, arn: str) -> Execution | Unanswered:
        answer = call(
            self._machine, self._clients.states.describe_execution, {"executionArn": arn}, expect="executionArn"
        )
        if isinstance(answer, Refusal):
            return self._refused(answer, "DescribeExecution")
        if isinstance(answer, Unanswered):
            return answer
        return Execution(
            answer["executionArn"],
            Status(answer["status"]),
            _age(answer),
            answer.get("input") or "{}",
            answer.get("output") or "null",
            answer.get("error", ""),
            answer.get("cause", ""),
        )

    def stop(self, arn: str, cause: str) -> Unanswered | None:
        """Ends the execution at once; a step that its function has begun goes on. Repeating it is harmless.

        There is none: it is asked for again, because it may just have been started.
        """
        until = time.monotonic() + UNSEEN_SECONDS
        while True:
            answer = call(
                self._machine,
                self._clients.states_once.stop_execution,
                {"executionArn": arn, "error": "Interrupted", "cause": cause},
                expect="stopDate",
            )
            if not isinstance(answer, Refusal):
                return answer if isinstance(answer, Unanswered) else None
            if answer.code != "ExecutionDoesNotExist":
                return self._refused(answer, "StopExecution")
            if time.monotonic() >= until:
                return None
            time.sleep(0.25)

    def _refused(self, answer: Refusal, operation: str) -> Unanswered:
        if answer.throttled or answer.code in _PASSES:
            return Unanswered(f"HTTP {answer.status} {answer.code}")
        raise denied(self._machine, operation, f"HTTP {answer.status} {answer.code}: {answer.message}")


def _age(answer: DescribeExecutionOutputTypeDef) -> float:
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = datetime.now(UTC) if date is None else parsedate_to_datetime(date)
    return (now - answer["startDate"]).total_seconds()
