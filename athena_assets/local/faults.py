"""Values that travel between a test and the embedded AWS: faults, and the records of what was served.

Everything here is plain data with a JSON form, because the server is another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_args


@dataclass(frozen=True, slots=True)
class DropReply:
    """Apply the request, then close the connection without an answer."""


@dataclass(frozen=True, slots=True)
class DropRequest:
    """Close the connection; nothing is applied."""


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer with a well-formed error of the service; nothing is applied."""

    status: int
    code: str
    message: str = "injected fault"


@dataclass(frozen=True, slots=True)
class RespondAfterApply:
    """Apply the request, then answer with a well-formed error of the service."""

    status: int
    code: str
    message: str = "injected fault"


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait this many seconds of real time, then apply and answer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """Wait until the rule is released, then apply and answer."""


@dataclass(frozen=True, slots=True)
class HoldReply:
    """Apply at once; hold the answer until the rule is released."""


@dataclass(frozen=True, slots=True)
class ApplyLate:
    """Close the connection at once without an answer; apply the request when the rule is released."""


@dataclass(frozen=True, slots=True)
class CutReply:
    """Apply and answer, but close the connection after so many bytes of the answer's body."""

    after: int


Action = DropReply | DropRequest | Respond | RespondAfterApply | Delay | HoldRequest | HoldReply | ApplyLate | CutReply

_ACTIONS: dict[str, type[Action]] = {kind.__name__: kind for kind in get_args(Action)}


@dataclass(frozen=True, slots=True)
class Fault:
    """Which requests to disturb, and how. `None` matches everything.

    `service` is the signing name (`s3`, `athena`, `glue`, `lambda`, `states`), `operation` the SDK's operation name.
    `key_contains` is looked for in the request's key (see `RequestRecord`). The first `skip` matching requests pass,
    the next `times` are caught (`times=None`: all of them). A task of a state machine whose answer is dropped or cut
    fails with the service's SdkClientException.
    """

    action: Action
    service: str | None = None
    operation: str | None = None
    key_contains: str | None = None
    times: int | None = 1
    skip: int = 0

    def to_json(self) -> dict[str, Any]:
        """The form that travels to the server."""
        return {
            "action": {"kind": type(self.action).__name__, **asdict(self.action)},
            "service": self.service,
            "operation": self.operation,
            "key_contains": self.key_contains,
            "times": self.times,
            "skip": self.skip,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Fault:
        """Inverse of `to_json`; an unknown kind or field is a `KeyError` or `TypeError`."""
        action = dict(document["action"])
        kind = _ACTIONS[action.pop("kind")]
        return cls(**{**document, "action": kind(**action)})


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One HTTP request in the order in which the server finished reading them.

    `key` is: the object key (S3); the prefix (S3 listings); all keys joined by newlines (DeleteObjects); the query
    string (StartQueryExecution), otherwise the query id (Athena); `database.table` (Glue); the function's name or ARN
    (Lambda); the ARN of an execution or the name of a new one (Step Functions). It is cut at 2,048 characters in the
    log, never for the matching of faults. `status` is 0 while unanswered and -1 if the connection was dropped; of a
    request that is applied late (`ApplyLate`) it then says what nobody was told.
    """

    sequence: int
    service: str
    operation: str
    bucket: str | None
    key: str | None
    status: int
    user_agent: str


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One query of the embedded Athena, as its own history has it (not as the API would show it)."""

    query_id: str
    sql: str
    state: str
    client_request_token: str
    submitted_at: float
    output_location: str
    state_change_reason: str | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """A subprocess of a Lambda function: one execution environment. `invocations` counts the present one too."""

    function_name: str
    pid: int
    busy: bool
    invocations: int
