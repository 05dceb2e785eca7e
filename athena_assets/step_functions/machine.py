"""The state machine around the handler, in the Amazon States Language.

    Begin -> Step -> Decide -> Success -> [Notify] -> Done
              ^         |
              +- Pause -+      Step fails for good: Abandon -> Failure -> [NotifyFailure] -> Failed

It waits, tries a lost step again, and says how an execution ended. Whatever is decided about a publication is decided
by the handler: no state looks at more than the status that the handler returned.

The execution's input is read from the context object, not carried from state to state. A state's data may have
256 KiB, as the input may: an input of nearly that size would leave no room for an error's cause beside it, and
States.DataLimitExceeded can't be caught.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FUNCTION_TIMEOUT = 900
"""Seconds that a step may take: the longest that Lambda grants. deploy/step_functions.yaml sets it."""

STEP_TIMEOUT = FUNCTION_TIMEOUT + 60
"""Above the function's own, so that its end is told by Lambda; this one is for an answer that never comes."""

NOTIFY_TIMEOUT = 60

EVENT_SOURCE = "athena_assets"
FINISHED, FAILED = "Publication Finished", "Publication Failed"
"""Detail types on an EventBridge bus."""

LAMBDA_BUSY = ("Lambda.TooManyRequestsException",)
"""All of the account's, or the function's, concurrency is in use. Nothing was run."""

LAMBDA_TRANSIENT = (
    "Lambda.ClientExecutionTimeoutException",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
)
"""Step Functions developer guide, "Handle Lambda service exceptions". The step may have run."""

STEP_LOST = ("Lambda.Unknown", "Runtime.ExitError", "Runtime.OutOfMemory", "Sandbox.Timedout", "States.Timeout")
"""A step that ended without an answer: the process died or ran out of memory (`Lambda.Unknown` in the same guide;
`Runtime.ExitError` and `Runtime.OutOfMemory` are what Lambda itself calls it), it passed the function's timeout, or the
state's own."""

OURS = ("OutcomeUnknown", "ServiceUnavailable")
"""The errors of athena_assets that say nothing about the query. All others are final: the protocol inside the step has
already tried again what may be tried again."""

_PUBLISHED = ("published", "reused", "skipped")


@dataclass(frozen=True, slots=True)
class Topic:
    """An SNS topic to which results are published."""

    arn: str


@dataclass(frozen=True, slots=True)
class Bus:
    """An EventBridge bus to which results are sent; a name, or an ARN."""

    name: str


Notify = Topic | Bus


def state_machine(function: str, notify: Notify | None = None) -> dict[str, Any]:
    """The definition, for a state machine of type STANDARD.

    Args:
        function: name or ARN of the Lambda function whose code is `athena_assets.step_functions.handler.handler`.
        notify: who is told how an execution ended; None: nobody. A notification that fails changes nothing.
    """
    done, failed = ("Done", "Failed") if notify is None else ("Notify", "NotifyFailure")
    states: dict[str, Any] = {
        "Begin": {
            "Type": "Pass",
            # noCause: an error that is caught has a Cause "usually", and Failed must not end in another error for
            # want of one.
            "Result": {"step": {"memory": None}, "noCause": {"Cause": ""}},
            "Next": "Step",
        },
        "Step": {
            **_invoke(function, "step"),
            "ResultSelector": {
                "status.$": "$.Payload.status",
                "seconds.$": "$.Payload.seconds",
                "memory.$": "$.Payload.memory",
                "outcome.$": "$.Payload.outcome",
            },
            "ResultPath": "$.step",
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Abandon"}],
            "Next": "Decide",
        },
        "Decide": {
            "Type": "Choice",
            # Without a default: a status that this state machine does not know, of a newer function, is no success.
            "Choices": [
                {"Variable": "$.step.status", "StringEquals": "waiting", "Next": "Pause"},
                *({"Variable": "$.step.status", "StringEquals": each, "Next": "Success"} for each in _PUBLISHED),
            ],
        },
        "Pause": {"Type": "Wait", "SecondsPath": "$.step.seconds", "Next": "Step"},
        "Success": {
            "Type": "Pass",
            "Parameters": {"status.$": "$.step.status", "outcome.$": "$.step.outcome"},
            "Next": done,
        },
        "Done": {"Type": "Succeed"},
        "Abandon": {
            **_invoke(function, "abandon"),
            "ResultPath": None,
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "Failure"}],
            "Next": "Failure",
        },
        "Failure": {
            "Type": "Pass",
            "Parameters": {"error.$": "States.JsonMerge($.noCause, $.error, false)"},
            "Next": failed,
        },
        "Failed": {"Type": "Fail", "ErrorPath": "$.error.Error", "CausePath": "$.error.Cause"},
    }
    if notify is not None:
        result = {"status.$": "$.status", "outcome.$": "$.outcome"}
        error = {"status": "failed", "error.$": "$.error.Error", "cause.$": "$.error.Cause"}
        states["Notify"] = _told(notify, FINISHED, result, {"StringValue.$": "$.status"}, "Done")
        states["NotifyFailure"] = _told(notify, FAILED, error, {"StringValue": "failed"}, "Failed")
    return {
        "Comment": "Publishes an Athena query result exactly once (athena_assets).",
        "QueryLanguage": "JSONPath",
        "StartAt": "Begin",
        "States": states,
    }


def _invoke(function: str, action: str) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {
            "FunctionName": function,
            "Payload": {
                "action": action,
                "execution.$": "$$.Execution.Id",
                "name.$": "$$.Execution.Name",
                "input.$": "$$.Execution.Input",
                "memory.$": "$.step.memory",
            },
        },
        "TimeoutSeconds": STEP_TIMEOUT,
        "Retry": [
            _retry(LAMBDA_BUSY, interval=2, attempts=12),
            _retry(LAMBDA_TRANSIENT + STEP_LOST, interval=2, attempts=6),
            _retry(OURS, interval=5, attempts=6),
        ],
    }


def _retry(names: Sequence[str], interval: int, attempts: int) -> dict[str, Any]:
    return {
        "ErrorEquals": list(names),
        "IntervalSeconds": interval,
        "MaxAttempts": attempts,
        "BackoffRate": 2,
        "MaxDelaySeconds": 30,  # half a lease of 60 s: the slot is usually still ours when we come back
        "JitterStrategy": "FULL",
    }


def _told(notify: Notify, detail_type: str, what: dict[str, Any], status: dict[str, str], then: str) -> dict[str, Any]:
    """A task that tells `what` and goes on, whatever comes of it. `status`: as an attribute of an SNS message."""
    message = {
        "execution.$": "$$.Execution.Id",
        "name.$": "$$.Execution.Name",
        "started.$": "$$.Execution.StartTime",
        **what,
    }
    parameters: dict[str, Any]
    if isinstance(notify, Topic):
        resource = "sns:publish"
        parameters = {
            "TopicArn": notify.arn,
            "Message": message,
            "MessageAttributes": {"status": {"DataType": "String", **status}},
        }
    else:
        resource = "events:putEvents"
        entry = {"Source": EVENT_SOURCE, "DetailType": detail_type, "EventBusName": notify.name, "Detail": message}
        parameters = {"Entries": [entry]}
    return {
        "Type": "Task",
        "Resource": f"arn:aws:states:::{resource}",
        "Parameters": parameters,
        "TimeoutSeconds": NOTIFY_TIMEOUT,
        "ResultPath": None,
        "Retry": [_retry(["States.ALL"], interval=2, attempts=3)],
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": then}],
        "Next": then,
    }


def definition_text(definition: dict[str, Any], width: int = 100) -> str:
    """The definition as JSON for people: whatever fits into a line stands in one."""
    return "\n".join(_lines(definition, width, 0))


def _lines(value: Any, width: int, taken: int) -> list[str]:
    """`taken`: columns of the first line that are in use."""
    flat = json.dumps(value)
    if len(flat) <= width - taken or not isinstance(value, dict | list):
        return [flat]
    items = value.items() if isinstance(value, dict) else (("", each) for each in value)
    body: list[str] = []
    for name, each in items:
        start = f"{json.dumps(name)}: " if isinstance(value, dict) else ""
        first, *more = _lines(each, width - 2, len(start) + 1)  # 1: the comma
        body += [f"  {start}{first}", *(f"  {line}" for line in more)]
        body[-1] += ","
    body[-1] = body[-1].removesuffix(",")
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return [opening, *body, closing]
