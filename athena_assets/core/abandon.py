"""What an interrupted caller does before it goes: stop its query, or finish its swap, and free the slot.

Only what is still its own.
"""

from __future__ import annotations

from athena_assets.core import attempt as attempts
from athena_assets.core import register
from athena_assets.core.effects import (
    Effects,
    PollQuery,
    QueryState,
    QueryStatus,
    Report,
    Sleep,
    StopQuery,
    Unanswered,
    perform,
)
from athena_assets.core.register import Mode, State
from athena_assets.core.slot import Slot
from athena_assets.core.swap import project
from athena_assets.core.tenure import LeaseLost, Tenure, look


def abandon(slot: Slot, session: str) -> Effects[None]:
    """Stops the query of `session` and frees the slot once Athena confirms the end; what is committed is put in place.

    The interruption may have struck in any effect, or between two: the register, not memory, says what is ours. The
    driver gives this a few seconds; if they run out the register stays as it is, and the next caller goes on from it.
    """
    while True:
        try:
            yield from _stop_and_release(slot, session)
        except LeaseLost:
            owner = found.owner if (found := (yield from look(slot)).register) is not None else None
            if owner is not None and owner.session == session:
                continue  # a write of our own that was under way has been applied meanwhile
            yield from perform(Report("superseded", "another owner holds the slot; nothing more was touched"))
        return


def _stop_and_release(slot: Slot, session: str) -> Effects[None]:
    seen = yield from look(slot)
    found = seen.register
    if found is None or found.owner is None or found.owner.session != session:
        return
    tenure = Tenure(slot, seen)
    if found.state is State.PUBLISHING:
        yield from project(tenure)
        return
    if found.state not in (State.SUBMITTING, State.RUNNING):
        return
    if found.state is State.RUNNING:
        yield from tenure.renew()  # or whoever took over since our look would lose the query that it has adopted
    # Athena may have accepted the query although its id was not noted: the token tells.
    elif (yield from attempts.submit(tenure)) is not None:
        if tenure.register.current.settings.mode is not Mode.DIRECT:
            yield from tenure.change(register.released)
        return  # direct: the start that was interrupted may run and write to the location; the next caller finds out
    query_id = tenure.register.current.accepted_query
    stopped = False
    while True:
        stopped = stopped or not isinstance((yield from perform(StopQuery(query_id))), Unanswered)
        status = yield from perform(PollQuery(query_id))
        if isinstance(status, QueryStatus) and status.state is not QueryState.ACTIVE:
            if tenure.register.current.settings.mode is Mode.DIRECT:
                return  # the next caller looks at what the query left at the location
            yield from tenure.change(register.released)
            yield from perform(Report("stopped", f"query {query_id}; the slot is free"))
            return
        yield from perform(Sleep(0.1))
