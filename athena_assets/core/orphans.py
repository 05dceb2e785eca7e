"""Whether a running query of ours is still somebody's."""

from __future__ import annotations

from athena_assets.core.register import Register, State


def names(found: Register | None, query_id: str, text: str) -> bool:
    """Whether the register waits for this query: by its id, or, before that is noted, by the recorded statement."""
    if found is None or found.attempt is None or found.state not in (State.SUBMITTING, State.RUNNING):
        return False
    if found.attempt.query_id is not None:
        return found.attempt.query_id == query_id
    return any(start.query == text for start in found.attempt.starts)
