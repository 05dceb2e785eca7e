"""Every write of a publication loses its reply, its request, or meets an error: one query, one right publication."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from athena_assets import Published, Reused, errors
from athena_assets.local import Delay, DropReply, DropRequest, Fault, Respond, RespondAfterApply
from athena_assets.local.faults import Action
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, wait_until


@dataclass(frozen=True, slots=True)
class Call:
    """One remote write of a replacing publication: service, operation, part of the key, and which of its kind."""

    service: str
    operation: str
    key_contains: str | None = None
    skip: int = 0

    def fault(self, action: Action) -> Fault:
        return Fault(action, self.service, self.operation, self.key_contains, times=1, skip=self.skip)


WRITES = {
    "acquire": Call("s3", "PutObject", "register.json"),
    "start": Call("athena", "StartQueryExecution"),
    "note the query id": Call("s3", "PutObject", "register.json", 1),
    "write the manifest": Call("s3", "PutObject", "/manifests/"),
    "commit": Call("s3", "PutObject", "register.json", 2),
    "delete an old file": Call("s3", "DeleteObject", "published/", 1),
    "copy a new file": Call("s3", "CopyObject", "published/", 1),
    "delete a staged file": Call("s3", "DeleteObject", "/staging/", 1),
    "release": Call("s3", "PutObject", "register.json", 3),
}
ANSWERS: dict[str, Action] = {
    "applied, reply dropped": DropReply(),
    "not applied, connection dropped": DropRequest(),
    "applied, then 500": RespondAfterApply(500, "InternalError"),
    "not applied, 503": Respond(503, "SlowDown"),
    "not applied, 500": Respond(500, "InternalError"),
}


def replace_under(lake: Lake, fault: Fault) -> None:
    """Publishes, changes the upstream, and publishes again while the fault strikes once."""
    target = lake.target()
    publisher = lake.publisher(lease=60)
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    rule = lake.aws.faults.add(fault)
    outcome = publisher.unload(target)
    assert lake.aws.faults.hits(rule) == 1
    assert isinstance(outcome, Published)
    assert outcome.publication.fence == 2
    assert len(lake.queries(target.location)) == 2
    lake.assert_published_once(target.location, range(ROWS + 10))
    assert isinstance(publisher.unload(target), Reused)
    assert len(lake.queries(target.location)) == 2


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("write", WRITES)
def test_doubtful_answer_to_one_write_publishes_once(lake: Lake, write: str, answer: str) -> None:
    action = ANSWERS[answer]
    if write == "start" and isinstance(action, Respond):
        action = Respond(action.status, "InternalServerException")
    replace_under(lake, WRITES[write].fault(action))


@pytest.mark.parametrize("write", [name for name in WRITES if name != "start"])
def test_409_means_look_and_try_again(lake: Lake, write: str) -> None:
    replace_under(lake, WRITES[write].fault(Respond(409, "ConditionalRequestConflict")))


@pytest.mark.parametrize("write", [name for name in WRITES if name != "start"])
def test_412_after_our_own_applied_write_is_not_taken_as_loss(lake: Lake, write: str) -> None:
    replace_under(lake, WRITES[write].fault(RespondAfterApply(412, "PreconditionFailed")))


@pytest.mark.parametrize("code", ["TooManyRequestsException", "ThrottlingException"])
def test_throttled_start_is_tried_again_under_its_own_token(lake: Lake, code: str) -> None:
    replace_under(lake, WRITES["start"].fault(Respond(400, code)))


def test_reply_that_comes_later_than_the_read_timeout_publishes_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("athena_assets.aws.session.READ_TIMEOUT", 1)
    replace_under(lake, WRITES["start"].fault(Delay(2.5)))


@pytest.mark.parametrize("operation", ["GetObject", "ListObjectsV2", "GetQueryExecution", "GetTable"])
def test_reads_are_tried_again(lake: Lake, operation: str) -> None:
    service = {"GetQueryExecution": "athena", "GetTable": "glue"}.get(operation, "s3")
    lake.aws.faults.add(Fault(DropReply(), service, operation, times=2))
    target = lake.target()
    assert isinstance(lake.publisher().unload(target), Published)
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


def test_reply_lost_to_the_winner_of_a_race_makes_no_second_winner(lake: Lake) -> None:
    target = lake.target()
    lake.aws.faults.add(Fault(DropReply(), "s3", "PutObject", "register.json", times=1))
    publisher = lake.publisher(lease=60)
    barrier = threading.Barrier(8)
    callers = [ThreadCaller(publisher, target).start(barrier) for _ in range(8)]
    outcomes = [caller.join().outcome for caller in callers]
    assert sorted(type(each).__name__ for each in outcomes) == ["Published", *["Reused"] * 7]
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


def test_outage_of_s3_during_renewal_keeps_the_slot(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(lake.publisher(), target).start()
    wait_until(lambda: caller.told("running"), "the query runs")
    storm = lake.aws.faults.add(Fault(Respond(503, "SlowDown"), "s3", "PutObject", "register.json", times=5))
    wait_until(lambda: lake.aws.faults.hits(storm) == 5, "five renewals have met the outage")
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().outcome, Published)
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


@pytest.mark.parametrize("write", ["acquire", "write the manifest", "copy a new file", "delete an old file"])
def test_missing_permission_is_named_and_the_slot_can_be_finished(lake: Lake, write: str) -> None:
    target = lake.target()
    publisher = lake.publisher()
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    lake.aws.faults.add(WRITES[write].fault(Respond(403, "AccessDenied")))
    with pytest.raises(errors.AccessDenied, match=r"403 AccessDenied.*next caller goes on|s3:PutObject"):
        publisher.unload(target)
    publisher.unload(target)
    assert len(lake.queries(target.location)) == 2
    lake.assert_published_once(target.location, range(ROWS + 10))
