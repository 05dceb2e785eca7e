"""What an interrupted caller does before it goes: stop its query and free the slot, if both are still its own."""

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
    perform,
)
from athena_assets.core.register import Mode, State
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import LeaseLost, Tenure, look


def abandon(slot: Slot, session: str) -> Effects[None]:
    """Stops the query of `session` and frees the slot once Athena confirms the end.

    The interruption may have struck between any two effects: the register, not memory, says what is ours. The driver
    gives this a few seconds; where they run out the register stays as it is, and the next caller goes on from it.
    """
    try:
        yield from _stop_and_release(slot, session)
    except LeaseLost:
        yield from perform(Report("superseded", "another owner holds the slot; nothing more was touched"))


def _stop_and_release(slot: Slot, session: str) -> Effects[None]:
    seen = yield from look(slot)
    found = seen.register
    if found is None or found.owner is None or found.owner.session != session:
        return
    if found.state not in (State.SUBMITTING, State.RUNNING):
        return  # a committed publication is rolled forward by whoever comes next
    tenure = Tenure(slot, seen)
    # Athena may have accepted the query although its id was not noted: the token tells.
    if found.state is State.SUBMITTING and (yield from attempts.submit(tenure)) is not None:
        yield from tenure.change(register.released)
        return
    query_id = tenure.register.current.accepted_query
    yield from perform(StopQuery(query_id))
    while True:
        status = yield from perform(PollQuery(query_id))
        if isinstance(status, QueryStatus) and status.state is not QueryState.ACTIVE:
            if tenure.register.current.settings.mode is Mode.DIRECT:
                return  # the next caller looks at what the query left at the location
            yield from tenure.change(register.released)
            yield from perform(Report("stopped", f"query {query_id}; the slot is free"))
            return
        yield from perform(Sleep(0.1))
