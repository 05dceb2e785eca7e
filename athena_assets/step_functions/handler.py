"""The Lambda function of the state machine: one step of a request, or the clean-up after a failed one.

The state machine only calls it, waits, and calls it again; what is decided is decided by the protocol in here. Nothing
has to survive in the function: the register and the execution's own state hold all that the next step needs.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from typing import Any, Protocol

from athena_assets.aws.session import AwsSettings
from athena_assets.aws.steps import Pause, Progress
from athena_assets.core.codec import UnreadableRegister, decode, encode
from athena_assets.core.policy import LEASE_SECONDS
from athena_assets.core.request import Request
from athena_assets.errors import AthenaAssetsError, ServiceUnavailable
from athena_assets.step_functions.documents import Wish, check_length, outcome_document, raised, read_wish
from athena_assets.step_functions.names import session_of
from athena_assets.unload import Publisher

logging.getLogger("athena_assets").setLevel(logging.INFO)  # each request's story, in the function's log

MARGIN = 180.0
"""Seconds of the function's time in which no call is begun: about what one call may take with the SDK's own retries.
Glue's has six attempts of 5 s to connect and 20 s to answer (aws/session.py): 150 s, and up to 31 s between them."""


class Context(Protocol):
    """What is used of Lambda's context object."""

    def get_remaining_time_in_millis(self) -> int: ...


def handler(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Serves `{"action", "execution", "name", "input", "memory"}`, which machine.py sends.

    `action`: `step` or `abandon`; `execution`, `name`: the execution's ARN and name; `input`: the execution's, a Wish;
    `memory`: what the last step returned as such, None at first.

    Returns:
        `{"status", "seconds", "memory", "outcome"}`; with status `waiting`, the next step is due after `seconds`.

    Raises:
        An exception of the name of the error that `Publisher.unload` would have raised.
    """
    seconds = context.get_remaining_time_in_millis() / 1000
    until = time.monotonic() + seconds - min(MARGIN, seconds / 3)
    try:
        return _served(event, until)
    except AthenaAssetsError as error:
        raise raised(error) from error


def _served(event: dict[str, Any], until: float) -> dict[str, Any]:
    wish, execution = read_wish(event["input"]), event["execution"]
    publisher, session = _publisher(wish.output_location, wish.guard_workgroups), session_of(execution)
    if event["action"] == "abandon":
        _abandon(publisher, wish, session)
        return {"status": "abandoned"}
    check_length(event["input"])
    request = _request(publisher, wish, event["name"], execution)
    found = publisher.step(
        request,
        session=session,
        host="Step Functions",
        progress=_read(event["memory"]),
        until=until,
    )
    if isinstance(found, Pause):
        memory = json.loads(encode(found.progress))
        return {"status": "waiting", "seconds": found.seconds, "memory": memory, "outcome": None}
    status = type(found).__name__.lower()
    return {"status": status, "seconds": 0, "memory": None, "outcome": outcome_document(found)}


def _request(publisher: Publisher, wish: Wish, name: str, execution: str) -> Request:
    return publisher.request(
        wish.target,
        partition=wish.partition,
        request_id=wish.request_id or name,
        force=wish.force,
        upstream_versions=wish.upstream_versions,
        run=wish.run or execution,
        first_try=wish.first_try,  # a name, too, may have been used before: years ago, or on another state machine
    )


def _abandon(publisher: Publisher, wish: Wish, session: str) -> None:
    location = wish.target.location_for(wish.partition)
    try:
        publisher.give_up(location, session)
    except TimeoutError as error:
        raise ServiceUnavailable(
            location,
            "the query was not stopped in time.",
            not_done="The slot is not free.",
            next_step="Nothing has to be done: the next caller goes on once the lease has run out.",
        ) from error


def _read(memory: object) -> Progress | None:
    """What the last step gave; None also for that of another version, which is as if it had been lost."""
    try:
        return None if memory is None else decode(json.dumps(memory).encode(), Progress)
    except UnreadableRegister:
        return None


@functools.lru_cache(maxsize=8)
def _publisher(output_location: str | None, guard_workgroups: tuple[str, ...]) -> Publisher:
    """Kept while the function is warm: making clients takes longer than most steps."""
    settings = AwsSettings(
        workgroup=os.environ.get("ATHENA_ASSETS_WORKGROUP") or "primary",
        output_location=output_location or os.environ.get("ATHENA_ASSETS_OUTPUT_LOCATION") or None,
        expected_bucket_owner=os.environ.get("ATHENA_ASSETS_EXPECTED_BUCKET_OWNER") or None,
        guard_workgroups=guard_workgroups,
    )
    return Publisher(settings, lease_seconds=float(os.environ.get("ATHENA_ASSETS_LEASE_SECONDS") or LEASE_SECONDS))
