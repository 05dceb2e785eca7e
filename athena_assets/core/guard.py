"""The guard: a look at what runs already, before one more query is started.

It finds the attempt's own query where Athena has forgotten the token that it was started with. And it finds queries
that are not the attempt's and write to the location: one typed into the console, or one that nobody waits for any more.

It is an aid, never the lock. Another query can begin between the look and the start; a look sees the workgroups that it
is told, as far as its time goes; and who may not list queries sees none. What keeps a publication right are the token,
the prefix that only one attempt writes to, and the proof of the files afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from athena_assets import errors
from athena_assets.core import keys, policy, register
from athena_assets.core.effects import (
    Effects,
    LookForQueries,
    PollQuery,
    QueryMissing,
    QueryState,
    QueryStatus,
    ReadClock,
    Report,
    RunningQuery,
    Sleep,
    Unanswered,
    perform,
)
from athena_assets.core.location import Location
from athena_assets.core.register import Attempt, Mode
from athena_assets.core.request import Request
from athena_assets.core.statement import parse_label, unload_destination
from athena_assets.core.target import Guard, OnConflict
from athena_assets.core.tenure import Tenure

SHARE = 0.4  # of the lease, for the look into one workgroup and the wait for it: a third may have passed before
WORKGROUP = "primary"  # where a query runs whose start names none
SHOWN = 100  # characters of a query's text


@dataclass(frozen=True, slots=True)
class Own:
    """A running query of the attempt, and which of its recorded starts it is."""

    query: RunningQuery
    start: int


def running_already(tenure: Tenure, request: Request) -> Effects[Own | None]:
    """The attempt's own query, if it is found running, once nothing foreign writes to the location.

    None: there is none, or the target's guard does not ask for a look.

    Raises:
        ForeignQueryRunning: as the target's on_conflict has it. An attempt that was never sent is given up first; one
            that was taken over is left for the next caller.
        AccessDenied: queries may not be listed, and the guard is `always`.
    """
    guard, attempt = request.target.guard, tenure.register.current
    if guard is Guard.OFF or (guard is Guard.TAKEOVER and _unsent(attempt)):
        return None
    began: float | None = None
    ended: tuple[str, ...] = ()
    while True:
        seen = yield from _look(tenure, request)
        own, foreign = _assess(attempt, request.location, [each for each in seen if each.query_id not in ended])
        if not foreign:
            return own
        now = yield from perform(ReadClock())
        if began is None:
            began = now
            yield from perform(Report("foreign query", _told(foreign[0])))
        yield from _check_patience(tenure, request, foreign[0], now - began)
        if (yield from _has_ended(tenure, foreign[0].query_id, began + request.target.wait_timeout)):
            # Not waited for again, though a list that lags behind may still have it.
            ended = (*ended, foreign[0].query_id)


def _unsent(attempt: Attempt) -> bool:
    """Nobody but us has recorded a start for it, and we look before we send."""
    return len(attempt.starts) == 1


# --- looking ---------------------------------------------------------------------------------------------------------


def _look(tenure: Tenure, request: Request) -> Effects[tuple[RunningQuery, ...]]:
    """What runs in each of the workgroups; the story tells where that is not known."""
    starts = tenure.register.current.starts
    workgroups = dict.fromkeys((*(each.workgroup or WORKGROUP for each in starts), *request.guard_workgroups))
    found: tuple[RunningQuery, ...] = ()
    for workgroup in workgroups:
        yield from tenure.keep()
        try:
            answer = yield from perform(LookForQueries(workgroup, SHARE * tenure.register.lease))
        except errors.AccessDenied as error:
            if request.target.guard is Guard.ALWAYS:
                yield from _give_up_unsent(tenure)
                raise
            yield from perform(Report("no look", f"at what runs in workgroup {workgroup}: {error}"))
            continue
        if isinstance(answer, Unanswered):
            yield from perform(Report("no look", f"at what runs in workgroup {workgroup}: {answer.reason}"))
            continue
        if answer.cut_short is not None:
            yield from perform(Report("looked in part", f"at what runs in workgroup {workgroup}: {answer.cut_short}"))
        found += answer.queries
    yield from tenure.keep()
    return found


def _assess(
    attempt: Attempt, location: Location, queries: Sequence[RunningQuery]
) -> tuple[Own | None, tuple[RunningQuery, ...]]:
    """The query to adopt, and those whose end is to be awaited first.

    Of several the oldest is adopted: where two write to one prefix, only the later one can have been refused for it.
    While two of them do, and readers list that prefix (direct, pointer), neither has a result of its own. An own query
    in a private prefix is adopted at once, whoever else writes to the location: waiting for them could lose it.
    """
    own = sorted(_own(attempt, queries), key=lambda each: each.query.submitted)
    if not own:
        return None, tuple(each for each in queries if _is_foreign(each, location))
    written = attempt.starts[own[0].start].staging
    twins = tuple(each.query for each in own[1:] if attempt.starts[each.start].staging == written)
    if attempt.settings.mode is Mode.STAGED:
        return own[0], ()
    if attempt.settings.mode is Mode.POINTER:
        return own[0], twins
    ours = {each.query.query_id for each in own}
    others = (each for each in queries if each.query_id not in ours and _is_foreign(each, location))
    return own[0], (*twins, *others)


def _own(attempt: Attempt, queries: Sequence[RunningQuery]) -> Iterator[Own]:
    """Queries with the text, catalog and database of a recorded start: the token's, for Athena compares no more."""
    if _unsent(attempt):
        return  # a query of the same text is a copy that somebody made, and may have read older data
    for query in queries:
        for index, start in enumerate(attempt.starts):
            if query.text == start.query and _context(query.catalog, query.database) == _context(
                start.catalog, start.database
            ):
                yield Own(query, index)


def _context(catalog: str, database: str) -> tuple[str, str]:
    """Athena takes these names in any case, and may tell them in lower case."""
    return catalog.lower(), database.lower()


def _is_foreign(query: RunningQuery, location: Location) -> bool:
    """Whether it writes to the location, above it or inside it; not so a stale attempt in a directory of its own."""
    destination = unload_destination(query.text)
    if destination is None or not destination.overlaps(location):
        return False
    label = parse_label(query.text)
    private = keys.directory_of(location, destination.prefix) == destination.prefix
    return not (private and label is not None and label.slot == str(location))


# --- waiting ---------------------------------------------------------------------------------------------------------


def _has_ended(tenure: Tenure, query_id: str, until: float) -> Effects[bool]:
    """Polls somebody else's query, renewing the lease in between; False once our clock has passed `until`."""
    began = yield from perform(ReadClock())
    while True:
        yield from tenure.keep()
        status = yield from perform(PollQuery(query_id))
        if isinstance(status, QueryMissing):
            return True
        if isinstance(status, QueryStatus) and status.state is not QueryState.ACTIVE:
            return True
        now = yield from perform(ReadClock())
        if now >= until:
            return False
        yield from perform(Sleep(min(policy.poll_delay(now - began), until - now)))


def _check_patience(tenure: Tenure, request: Request, query: RunningQuery, waited: float) -> Effects[None]:
    target = request.target
    if target.on_conflict in (OnConflict.FAIL, OnConflict.SKIP):
        why, advice = f"on_conflict is '{target.on_conflict}', and", "use on_conflict='join' to wait for it"
    elif waited >= target.wait_timeout:
        why, advice = f"after {waited:.0f} s of waiting", "give the target a longer wait_timeout"
    else:
        return
    unsent = _unsent(tenure.register.current)
    yield from _give_up_unsent(tenure)
    raise errors.ForeignQueryRunning(
        tenure.slot,
        f"{why} {_told(query)}.",
        query_id=query.query_id,
        workgroup=query.workgroup,
        not_done="This request started no query and published nothing."
        + ("" if unsent else " What an earlier owner began is left to the next caller."),
        next_step=f"Find out who started it, let it end or stop it, and publish again; or {advice}.",
    )


def _give_up_unsent(tenure: Tenure) -> Effects[None]:
    """Nothing is in doubt about an attempt that was never sent: the slot is free for whoever comes next."""
    if _unsent(tenure.register.current):
        yield from tenure.change(register.released)


def _told(query: RunningQuery) -> str:
    text = " ".join(query.text.split())
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return (
        f"query {query.query_id} in workgroup {query.workgroup}, which is not this publication's, writes to "
        f"{unload_destination(query.text)} ({shown})"
    )
