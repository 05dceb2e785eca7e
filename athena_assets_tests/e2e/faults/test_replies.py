"""Every write of a publication loses its reply, its request, or meets an error: one query, one right publication."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from athena_assets.local import (
    ApplyLate,
    Delay,
    DropReply,
    DropRequest,
    Fault,
    HoldRequest,
    Respond,
    RespondAfterApply,
)
from athena_assets.local.faults import Action
from athena_assets_tests.e2e.faults.ending import DAY, PATIENT, assert_ends, end, files, on_register, wait_for
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, wait_until

MORE = range(ROWS, ROWS + 10)


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


def assert_replaced_once(lake: Lake, fault: Fault) -> None:
    """Publishes, changes the upstream, and publishes again while the fault strikes once."""
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", MORE)
    rule = lake.aws.faults.add(fault)
    outcome = end(publisher, target)
    assert lake.aws.faults.hits(rule) == 1
    assert_ends(
        lake,
        target,
        [outcome, end(publisher, target)],
        ["Published", "Reused"],
        queries=["SUCCEEDED"] * 2,
        register="free 2",
        location=files(2, 5),
        rows=range(MORE.stop),
    )


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("write", WRITES)
def test_doubtful_answer_to_one_write_publishes_once(lake: Lake, write: str, answer: str) -> None:
    action = ANSWERS[answer]
    if write == "start" and isinstance(action, Respond):
        action = Respond(action.status, "InternalServerException")
    assert_replaced_once(lake, WRITES[write].fault(action))


@pytest.mark.parametrize("write", [name for name in WRITES if name != "start"])
def test_409_means_look_and_try_again(lake: Lake, write: str) -> None:
    assert_replaced_once(lake, WRITES[write].fault(Respond(409, "ConditionalRequestConflict")))


@pytest.mark.parametrize("write", [name for name in WRITES if name != "start"])
def test_412_after_our_own_applied_write_is_not_taken_as_loss(lake: Lake, write: str) -> None:
    assert_replaced_once(lake, WRITES[write].fault(RespondAfterApply(412, "PreconditionFailed")))


@pytest.mark.parametrize("code", ["TooManyRequestsException", "ThrottlingException"])
def test_throttled_start_is_tried_again_under_its_own_token(lake: Lake, code: str) -> None:
    assert_replaced_once(lake, WRITES["start"].fault(Respond(400, code)))


def test_reply_that_comes_later_than_the_read_timeout_publishes_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("athena_assets.aws.session.READ_TIMEOUT", 1)
    assert_replaced_once(lake, WRITES["start"].fault(Delay(2.5)))


@pytest.mark.parametrize("operation", ["GetObject", "ListObjectsV2", "GetQueryExecution", "GetTable"])
def test_reads_are_tried_again(lake: Lake, operation: str) -> None:
    service = {"GetQueryExecution": "athena", "GetTable": "glue"}.get(operation, "s3")
    rule = lake.aws.faults.add(Fault(DropReply(), service, operation, times=2))
    target = lake.target()
    outcome = end(lake.publisher(PATIENT), target)
    assert lake.aws.faults.hits(rule) == 2
    assert_ends(lake, target, [outcome], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1))


@pytest.mark.parametrize("write", ["acquire", "note the query id", "commit", "release"])
def test_own_first_write_that_arrives_late_makes_the_second_a_412_and_not_a_loss(lake: Lake, write: str) -> None:
    target = lake.target()
    skip = {"acquire": 0, "note the query id": 1, "commit": 2, "release": 3}[write]
    first = lake.aws.faults.add(on_register(ApplyLate(), skip=skip))
    second = lake.aws.faults.add(on_register(HoldRequest(), skip=skip))  # rules count what they see: the next write
    caller = ThreadCaller(lake.publisher(PATIENT), target).start()
    wait_for(lake, second)
    lake.aws.faults.release(first)
    wait_until(lambda: lake.aws.requests("s3", "PutObject", "register.json")[skip].status == 200, "the first arrives")
    lake.aws.faults.release(second)
    outcome = caller.end()
    assert lake.aws.requests("s3", "PutObject", "register.json")[skip + 1].status == 412
    assert_ends(lake, target, [outcome], ["Published"], queries=["SUCCEEDED"], register="free 1", location=files(1))


@pytest.mark.parametrize("write", ["acquire", "write the manifest", "copy a new file", "delete an old file"])
def test_missing_permission_is_named_and_the_slot_can_be_finished(lake: Lake, write: str) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", MORE)
    lake.aws.faults.add(WRITES[write].fault(Respond(403, "AccessDenied")))
    refused = end(publisher, target)
    assert re.search(r"403 AccessDenied.*next caller goes on|s3:PutObject", str(refused))
    lake.aws.faults.advance_clock(DAY)
    outcome = end(publisher, target)
    assert_ends(
        lake,
        target,
        [refused, outcome],
        ["AccessDenied", "Published"],
        queries=["SUCCEEDED"] * 2,
        register="free 2" if write == "acquire" else "free 3",
        location=files(3 if write == "write the manifest" else 2, 5),
        rows=range(MORE.stop),
    )
