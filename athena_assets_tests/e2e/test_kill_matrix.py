"""SIGKILL and SIGSTOP at every request that a publication makes, in each mode.

The owner's requests are counted once without a fault; then each of them in turn is held on the server, the owner is
killed or frozen there, the next caller publishes, and what was held is let go.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from athena_assets import Target
from athena_assets.local import Fault, HoldReply, HoldRequest
from athena_assets.local.faults import Action
from athena_assets_tests.e2e.lake import ROWS, Lake, done, wait_until
from athena_assets_tests.e2e.processes import ProcessCaller, processes

LEASE = 1.0
# mode: what the target has, and whether there is a publication to replace
MODES: dict[str, tuple[dict[str, Any], bool]] = {
    "staged, first": ({}, False),
    "staged, replacing": ({}, True),
    "direct": ({"mode": "direct", "clean_after_failure": True}, False),
    "pointer": ({"mode": "pointer"}, True),
    "pointer with Glue, first": ({"mode": "pointer", "glue_table": ""}, False),
    "pointer with Glue, replacing": ({"mode": "pointer", "glue_table": ""}, True),
}
# With its reply held, a request has been applied; held itself, it is applied when its sender is gone or frozen.
SIGNALS: dict[str, tuple[signal.Signals, Action]] = {
    "SIGKILL, applied": (signal.SIGKILL, HoldReply()),
    "SIGKILL, applied later": (signal.SIGKILL, HoldRequest()),
    "SIGSTOP, applied": (signal.SIGSTOP, HoldReply()),
    "SIGSTOP, applied later": (signal.SIGSTOP, HoldRequest()),
}


def prepared(lake: Lake, name: str, mode: str) -> tuple[Target, int]:
    """A target, and how many rows its next publication has."""
    changes, replacing = MODES[mode]
    if "glue_table" in changes:  # one for each target
        changes = {**changes, "glue_table": f"{lake.database}.{name}"}
    target = lake.target(name, **changes)
    if replacing:
        lake.publisher(LEASE).unload(lake.target(name, query="SELECT n FROM numbers WHERE n < 500", **changes))
    return target, ROWS


def count_requests(lake: Lake, mode: str) -> tuple[int, int]:
    """Of one publication that nobody strikes; and how many of them are polls, which depend on how long it takes."""
    target, _ = prepared(lake, "counted", mode)
    before = len(lake.aws.requests())
    with processes(lake, 1, LEASE) as (owner,):
        owner.publish(target)
        assert owner.result()["outcome"] == "Published"
    sent = lake.aws.requests()[before:]
    return len(sent), sum(each.operation == "GetQueryExecution" for each in sent)


def strike(lake: Lake, owner: ProcessCaller, mode: str, step: int, how: str) -> bool:
    """One publication that is struck at its request number `step`; False if it has ended before."""
    number, action = SIGNALS[how]
    target, rows = prepared(lake, f"struck_{step}", mode)
    already = len(lake.queries(target.location))
    rule = lake.aws.faults.add(Fault(action, skip=step))
    owner.publish(target)
    wait_until(lambda: lake.aws.faults.hits(rule) or owner.ended(), f"request {step} is held")
    if not lake.aws.faults.hits(rule):
        lake.aws.faults.clear()  # or it would hold a request of the next step
        return False
    owner.signal(number)
    outcome = done(lake.publisher(LEASE).unload(target))
    lake.assert_published_once(target.location, range(rows))
    snapshot = lake.listing(target.location, stamped=True)
    lake.aws.faults.release(rule)
    if number == signal.SIGSTOP:
        owner.signal(signal.SIGCONT)
        assert owner.result().get("query_id") == outcome.publication.query_id
    assert lake.listing(target.location, stamped=True) == snapshot, f"request {step} changed what was published"
    assert len(lake.queries(target.location)) - already == 1, f"request {step}"
    lake.assert_published_once(target.location, range(rows))
    if target.glue_table is not None:
        assert lake.pointer(target.name) == lake.readers(target.location), f"request {step}"
    lake.aws.faults.clear()
    lake.aws.faults.rows_per_file(250)
    return True


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("mode", MODES)
def test_owner_struck_at_any_request_is_finished(lake: Lake, mode: str, how: str) -> None:
    requests, polls = count_requests(lake, mode)
    assert requests - polls > 10
    struck = 0
    for step in range(requests):
        with processes(lake, 1, LEASE) as (owner,):
            struck += strike(lake, owner, mode, step, how)
    assert struck >= requests - polls - 5  # renewals may differ by a few
