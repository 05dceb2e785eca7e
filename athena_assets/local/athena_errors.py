"""How a query fails: refused at the start, or FAILED later.

The numbers in `ErrorType` are this package's own where AWS documents none; branch on the category and the message's
prefix.
"""

from __future__ import annotations

SYSTEM, USER, OTHER = 1, 2, 3
GENERIC_USER_ERROR = 1000


class RequestRefused(Exception):
    """The API call is answered by an error; no query was created and no token used up."""

    def __init__(
        self,
        message: str,
        athena_error_code: str = "INVALID_INPUT",
        code: str = "InvalidRequestException",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.athena_error_code = athena_error_code


class QueryFailed(Exception):
    """The query ends as FAILED with this reason."""

    def __init__(
        self,
        reason: str,
        category: int = USER,
        error_type: int = GENERIC_USER_ERROR,
        retryable: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.category = category
        self.error_type = error_type
        self.retryable = retryable


class QueryStopped(Exception):
    """StopQueryExecution reached the query; it ends as CANCELLED."""


def not_supported(what: str) -> QueryFailed:
    """For SQL that real Athena may run, but this one cannot run faithfully."""
    return QueryFailed(f"NOT_SUPPORTED: embedded Athena does not run {what}: its answer could differ from Athena's")
