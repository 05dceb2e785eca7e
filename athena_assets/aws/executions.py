"""Executions of a Step Functions state machine: start, look, stop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from athena_assets.aws.replies import Refusal, call, denied
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import Unanswered

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
    """What DescribeExecution says. `output` is JSON, if it succeeded; `error` and `cause` tell why it did not."""

    arn: str
    status: Status
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

        Lost reply: starting it again finds the first one (API reference, StartExecution: idempotent by name).
        """
        answer = call(
            self._machine,
            self._clients.states.start_execution,
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
            answer.get("input") or "{}",
            answer.get("output") or "null",
            answer.get("error", ""),
            answer.get("cause", ""),
        )

    def stop(self, arn: str, cause: str) -> Unanswered | None:
        """Ends the execution at once; a step that its function has begun goes on. Repeating it is harmless."""
        answer = call(
            self._machine,
            self._clients.states_once.stop_execution,
            {"executionArn": arn, "error": "Interrupted", "cause": cause},
            expect="stopDate",
        )
        if isinstance(answer, Refusal):
            return None if answer.code == "ExecutionDoesNotExist" else self._refused(answer, "StopExecution")
        return answer if isinstance(answer, Unanswered) else None

    def _refused(self, answer: Refusal, operation: str) -> Unanswered:
        if answer.throttled or answer.code in _PASSES:
            return Unanswered(f"HTTP {answer.status} {answer.code}")
        raise denied(self._machine, operation, f"HTTP {answer.status} {answer.code}: {answer.message}")
