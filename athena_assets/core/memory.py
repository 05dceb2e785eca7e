"""What a caller knows beside the register, so that another process can go on in its place.

A caller that waits (`Sleep` with `handover`) may be given up, and one with the same session and this memory goes on.
It takes over from its predecessor as from any dead owner, but at once. If the memory is lost too (the predecessor
crashed), an older one serves: it makes the caller wait longer, ask AWS again, or at worst run a query of its own where
it had finished another's whose result nobody may reuse.
"""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets.core.codec import SCHEMA
from athena_assets.core.generation import UpstreamVersion


@dataclass(frozen=True, slots=True)
class Since:
    """What is watched (the `write_id` of a lease, the id of a query), and since when."""

    what: str
    when: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Times are seconds on the caller's own clock, which its successors carry on.

    Args:
        upstreams: the versions that were read; None: not yet.
        known: there was a register at the last look.
        since: a publication with this fence or a higher one was in flight when the caller came.
        searched: no publication up to this fence is the request's.
        adopted: the fence under which the caller finished somebody else's attempt.
        waited: seconds spent on others' work.
        asleep: when the wait began that is not in `waited` yet.
        standing: the lease that is watched.
        watched: the query that is watched.
    """

    upstreams: tuple[UpstreamVersion, ...] | None = None
    known: bool = False
    since: int | None = None
    searched: int | None = None
    adopted: int | None = None
    waited: float = 0.0
    asleep: float | None = None
    standing: Since | None = None
    watched: Since | None = None
    schema: int = SCHEMA
