"""The guard: a look at what runs already, before a slot is taken for one more query.

It finds the query of a dead owner whose id was not noted, also where Athena has forgotten the token that it was started
with. And it finds queries that are not the attempt's and write to the location: one typed into the console, or one that
nobody waits for any more.

It is an aid, never the lock. Another query can begin between the look and the start; a look sees the workgroups that it
is told, as far as its time goes; and who may not list queries sees none. What keeps a publication right are the token,
the prefix that only one attempt writes to, and the proof of the files afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from athena_assets import errors
from athena_assets.core import keys
from athena_assets.core.effects import Effects, LookForQueries, Report, RunningQuery, Unanswered, perform
from athena_assets.core.location import Location
from athena_assets.core.register import Register, StartParameters, State
from athena_assets.core.request import Request
from athena_assets.core.statement import parse_label, unload_destination
from athena_assets.core.target import Guard, OnConflict

SECONDS = 30.0  # for the look into one workgroup
WORKGROUP = "primary"  # where a query runs whose start names none
SHOWN = 100  # characters of a query's text


@dataclass(frozen=True, slots=True)
class Own:
    """A running query of the attempt that is taken over, and which of its recorded starts it is.

    `twins`: ids of others of the attempt, which Athena took for new ones; nobody wants their results.
    """

    query: RunningQuery
    start: int
    twins: tuple[str, ...] = ()


def running_already(request: Request, found: Register | None) -> Effects[Own | RunningQuery | None]:
    """What is to be dealt with before the slot is taken: our own query, to adopt, or else a foreign one.

    None: there is neither, or the target's guard does not ask for a look. Nothing is held meanwhile, so that a long
    look costs no lease, and a wait for a foreign query is as any other wait. An own query is adopted whoever else
    writes there: it was started, and to wait for the other could lose it.

    Raises:
        AccessDenied: queries may not be listed, and the guard is `always`.
    """
    guard = request.target.guard
    taken_over = found is not None and found.state is State.SUBMITTING
    begun_anew = found is None or found.state is State.FREE
    if guard is Guard.OFF or not (taken_over or (begun_anew and guard is Guard.ALWAYS)):
        return None
    starts = found.current.starts if found is not None and taken_over else ()
    seen = yield from _look(request, starts)
    # Of several the oldest: where two write to one prefix, only the later one can have been refused for it.
    own = sorted(_own(starts, seen), key=lambda each: each.query.submitted)
    if own:
        return replace(own[0], twins=tuple(each.query.query_id for each in own[1:]))
    return next((each for each in seen if _is_foreign(each, request.location)), None)


def told(query: RunningQuery) -> str:
    """A foreign query, for people."""
    text = " ".join(query.text.split())
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return (
        f"query {query.query_id} in workgroup {query.workgroup}, which is not this publication's, writes to "
        f"{unload_destination(query.text)} ({shown})"
    )


def refusal(request: Request, query: RunningQuery, waited: float) -> errors.ForeignQueryRunning:
    """The error for a foreign query that is not, or no longer, waited for."""
    if request.target.on_conflict is OnConflict.FAIL:
        why, advice = "on_conflict is 'fail', and", "use on_conflict='join' to wait for it"
    else:
        why, advice = f"after {waited:.0f} s of waiting", "give the target a longer wait_timeout"
    return errors.ForeignQueryRunning(
        request.slot,
        f"{why} {told(query)}.",
        query_id=query.query_id,
        workgroup=query.workgroup,
        not_done="The slot was not taken, and nothing was started or published meanwhile.",
        next_step=f"Find out who started it, let it end or stop it, and publish again; or {advice}.",
    )


def _look(request: Request, starts: Sequence[StartParameters]) -> Effects[tuple[RunningQuery, ...]]:
    """What runs in each of the workgroups; the story tells where that is not known."""
    asked = (request.workgroup or WORKGROUP, *request.guard_workgroups)
    found: tuple[RunningQuery, ...] = ()
    for workgroup in dict.fromkeys((*asked, *(each.workgroup or WORKGROUP for each in starts))):
        try:
            answer = yield from perform(LookForQueries(workgroup, SECONDS))
        except errors.AccessDenied as error:
            # One in which only an earlier owner started its query may be gone.
            if request.target.guard is Guard.ALWAYS and workgroup in asked:
                raise
            yield from perform(Report("no look", f"at what runs in workgroup {workgroup}: {error}"))
            continue
        if isinstance(answer, Unanswered):
            yield from perform(Report("no look", f"at what runs in workgroup {workgroup}: {answer.reason}"))
            continue
        if answer.cut_short is not None:
            yield from perform(Report("looked in part", f"at what runs in workgroup {workgroup}: {answer.cut_short}"))
        found += answer.queries
    return found


def _own(starts: Sequence[StartParameters], queries: Sequence[RunningQuery]) -> Iterator[Own]:
    """Queries that were started with all that a recorded start says."""
    for query in queries:
        for index, start in enumerate(starts):
            if _is_of(query, start):
                yield Own(query, index)


def _is_of(query: RunningQuery, start: StartParameters) -> bool:
    """Athena takes the names of catalog and database in any case, and may tell them in lower case."""
    return (
        query.text == start.query
        and query.catalog.lower() == start.catalog.lower()
        and query.database.lower() == start.database.lower()
        and query.workgroup == (start.workgroup or WORKGROUP)
        and query.output_location.startswith(start.output_location or "")
    )


def _is_foreign(query: RunningQuery, location: Location) -> bool:
    """Whether it writes to the location, above it or inside it; not so a stale attempt in a directory of its own."""
    destination = unload_destination(query.text)
    if destination is None or not destination.overlaps(location):
        return False
    label = parse_label(query.text)
    private = keys.directory_of(location, destination.prefix) == destination.prefix
    return not (private and label is not None and label.slot == str(location))
