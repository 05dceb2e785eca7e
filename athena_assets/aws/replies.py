"""Sorts botocore's exceptions: a definite refusal, no answer that tells anything, or nothing that a wait can cure.

Branches on the HTTP status first, then on the error code (codes of S3's and Athena's API references).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from botocore.exceptions import (
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    LoginRefreshRequired,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from athena_assets.core.effects import Refused, Unanswered
from athena_assets.errors import AccessDenied

T = TypeVar("T")

_THROTTLED = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded"}
)
_NO_ANSWER = _THROTTLED | {"RequestTimeout", "InternalError", "InternalServerException", "ServiceUnavailable"}
_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "UnrecognizedClientException", "InvalidClientTokenId"}
)
_UNUSABLE = (
    CredentialRetrievalError,
    LoginRefreshRequired,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """AWS's definite refusal: HTTP status, error code and message, and Athena's own code where it gives one."""

    status: int
    code: str
    message: str
    athena_code: str | None = None

    @property
    def throttled(self) -> bool:
        return self.code in _THROTTLED

    def as_answer(self) -> Refused:
        return Refused(self.status, self.code)


def call(
    subject: str, operation: Callable[..., T], arguments: Mapping[str, Any], *, expect: str | None = None
) -> T | Refusal | Unanswered:
    """Performs one SDK call.

    `expect` names what every whole answer has: botocore reads a JSON body that breaks off as an empty one.

    Raises:
        AccessDenied: if there are no valid credentials at all. A refusal for want of a permission is returned: what it
            means depends on the call.
    """
    try:
        answer = operation(**{name: value for name, value in arguments.items() if value is not None})
    except ClientError as error:
        status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
        details: Mapping[str, Any] = error.response
        code = str(details["Error"].get("Code", status))
        message = str(details["Error"].get("Message", ""))
        if code in _CREDENTIALS:
            raise denied(subject, error.operation_name, f"{code}: {message}") from error
        if (status >= 500 and status != 501) or code in _NO_ANSWER - _THROTTLED:
            return Unanswered(f"HTTP {status} {code}")
        athena_code = details.get("AthenaErrorCode")
        return Refusal(status, code, message, None if athena_code is None else str(athena_code))
    except _UNUSABLE as error:
        raise denied(subject, "the call", str(error)) from error
    except (ConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError) as error:
        # Connection refused, reset, closed, timed out, or a reply that can't be read: applied or not, nobody knows.
        return Unanswered(f"{type(error).__name__}: {error}")
    if expect is not None and (not isinstance(answer, Mapping) or expect not in answer):
        return Unanswered(f"the reply broke off before {expect}")
    return answer


def denied(subject: str, operation: str, why: str) -> AccessDenied:
    return AccessDenied(
        subject,
        f"AWS refused {operation} ({why}).",
        not_done="That call changed nothing.",
        next_step="Mend credentials, permissions, or the name of the bucket or workgroup (README, 'Point it at my "
        "account'), then publish again: the next caller goes on from what the register says.",
    )


def question(
    subject: str, operation: Callable[..., T], arguments: Mapping[str, Any], *, expect: str | None = None
) -> T | Refusal | Unanswered:
    """A call that changes nothing: throttled is unanswered, and a missing permission or bucket is raised."""
    answer = call(subject, operation, arguments, expect=expect)
    if not isinstance(answer, Refusal):
        return answer
    if answer.throttled:
        return Unanswered(f"HTTP {answer.status} {answer.code}")
    if answer.code == "EntityNotFoundException":  # Glue's "there is no such thing", with status 400
        return answer
    if answer.status in (301, 400, 401, 403) or answer.code == "NoSuchBucket":
        raise denied(subject, getattr(operation, "__name__", "the call"), f"HTTP {answer.status} {answer.code}")
    return answer
