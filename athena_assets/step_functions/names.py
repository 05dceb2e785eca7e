"""What executions are called, and under which session they own a slot."""

from __future__ import annotations

import hashlib
import re

from athena_assets.core.location import Location

_READABLE = 30  # characters of the target's name; a name has 80 (Step Functions API reference, StartExecution)


def execution_name(target: str, slot: Location, request_id: str, number: int) -> str:
    """The name of the `number`th try of a request, the same for whoever starts it.

    Step Functions gives one execution for one name. A name stays taken for 90 days after its execution has ended, which
    is why a request that failed is tried again under another one.
    """
    digest = hashlib.sha256(f"{slot}\n{request_id}\n{number}".encode()).hexdigest()
    return f"{re.sub('[^A-Za-z0-9_-]', '-', target)[:_READABLE]}-{digest[:40]}"


def session_of(execution: str) -> str:
    """The owner session of all steps of an execution, by its ARN: 16 hex digits."""
    return hashlib.sha256(execution.encode()).hexdigest()[:16]
