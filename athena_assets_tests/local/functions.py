"""Short words for tests of Lambda functions and state machines."""

from __future__ import annotations

import functools
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.config import Config

from athena_assets.local import EmbeddedAws, FunctionRecord
from athena_assets_tests.local.conftest import eventually

ROLE = "arn:aws:iam::123456789012:role/role"
ONE_ATTEMPT = Config(retries={"total_max_attempts": 1}, read_timeout=60)
INVOKE = "arn:aws:states:::lambda:invoke"
State = dict[str, Any]


def zipped(files: Mapping[str, str]) -> bytes:
    """A deployment package."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return sink.getvalue()


@functools.cache
def _client(aws: EmbeddedAws, service: str) -> Any:
    """One for all tests of a server: to make one takes longer than most of them."""
    return aws.client(service, ONE_ATTEMPT)


@dataclass
class Workshop:
    """An embedded AWS with a role, and clients that send each request once."""

    aws: EmbeddedAws
    functions: Any = field(init=False)
    states: Any = field(init=False)
    machines: int = 0

    def __post_init__(self) -> None:
        self.functions = _client(self.aws, "lambda")
        self.states = _client(self.aws, "stepfunctions")
        _client(self.aws, "iam").create_role(RoleName="role", AssumeRolePolicyDocument="{}")

    def function(self, code: str, name: str = "f", **configuration: Any) -> str:
        """CreateFunction of a module `app` with this text; returns the ARN."""
        defaults = {"Runtime": "python3.13", "Role": ROLE, "Handler": "app.handler", "Timeout": 30}
        found = self.functions.create_function(
            FunctionName=name, Code={"ZipFile": zipped({"app.py": code})}, **{**defaults, **configuration}
        )
        return str(found["FunctionArn"])

    def invoke(self, event: Any = None, name: str = "f", **arguments: Any) -> dict[str, Any]:
        """Invoke; the payload is read."""
        answer = self.functions.invoke(FunctionName=name, Payload=json.dumps(event), **arguments)
        payload = answer["Payload"].read()
        return {**answer, "Payload": json.loads(payload) if payload else None}

    def call(self, event: Any = None, name: str = "f") -> Any:
        """The result of an invocation that must succeed."""
        answer = self.invoke(event, name)
        assert "FunctionError" not in answer, answer["Payload"]
        return answer["Payload"]

    def failure(self, event: Any = None, name: str = "f") -> dict[str, Any]:
        """The payload of an invocation that must fail."""
        answer = self.invoke(event, name)
        assert (answer["StatusCode"], answer.get("FunctionError")) == (200, "Unhandled")
        payload: dict[str, Any] = answer["Payload"]
        return payload

    def busy(self) -> FunctionRecord:
        """The first subprocess that is in the middle of an invocation, as soon as there is one."""
        return eventually(lambda: next((record for record in self.aws.functions() if record.busy), None))

    def machine(self, states: Mapping[str, State], **definition: Any) -> str:
        """CreateStateMachine that begins with the first state; returns the ARN."""
        self.machines += 1
        document = {"StartAt": next(iter(states)), "States": dict(states), **definition}
        created = self.states.create_state_machine(
            name=f"m{self.machines}", definition=json.dumps(document), roleArn=ROLE
        )
        return str(created["stateMachineArn"])

    def start(self, machine: str, document: Any = None, **arguments: Any) -> str:
        """StartExecution; returns the ARN."""
        text = json.dumps({} if document is None else document)
        return str(self.states.start_execution(stateMachineArn=machine, input=text, **arguments)["executionArn"])

    def describe(self, execution: str) -> dict[str, Any]:
        """DescribeExecution."""
        found: dict[str, Any] = self.states.describe_execution(executionArn=execution)
        return found

    def wait(self, execution: str) -> dict[str, Any]:
        """Polls until the execution has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.describe(execution)
            return None if found["status"] == "RUNNING" else found

        return eventually(ended, 30)

    def run(self, states: Mapping[str, State], document: Any = None, **definition: Any) -> dict[str, Any]:
        """One execution of a new machine, to its end."""
        return self.wait(self.start(self.machine(states, **definition), document))

    def output(self, states: Mapping[str, State], document: Any = None) -> Any:
        """The output of an execution that must succeed."""
        ended = self.run(states, document)
        assert ended["status"] == "SUCCEEDED", ended
        return json.loads(ended["output"])

    def history(self, execution: str, **arguments: Any) -> list[dict[str, Any]]:
        """GetExecutionHistory, one page."""
        found: list[dict[str, Any]] = self.states.get_execution_history(executionArn=execution, **arguments)["events"]
        return found

    def invocations(self) -> list[int]:
        """The HTTP statuses of all invocations so far."""
        return [request.status for request in self.aws.requests("lambda", "Invoke")]


def task(**fields: Any) -> State:
    """A state that invokes the function `f` with its whole input, and keeps what it returned."""
    return {
        "Type": "Task",
        "Resource": INVOKE,
        "Parameters": {"FunctionName": "f", "Payload.$": "$"},
        "ResultSelector": {"value.$": "$.Payload"},
        **({} if "Next" in fields else {"End": True}),
        **fields,
    }
