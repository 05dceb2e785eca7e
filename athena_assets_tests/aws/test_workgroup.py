"""Reading a workgroup from an Athena that has too much to do."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from athena_assets.aws.session import AwsClients, AwsSettings
from athena_assets.aws.workgroup import KEPT, PATIENCE, read_workgroup
from athena_assets.errors import AccessDenied, ServiceUnavailable
from athena_assets.unload import Publisher

SERVED: Any = {"WorkGroup": {"Configuration": {"ResultConfiguration": {"OutputLocation": "s3://results/"}}}}


def refusal(code: str) -> ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError(answer, "GetWorkGroup")


THROTTLED = refusal("ThrottlingException")


@dataclass(slots=True)
class Athena:
    """`answers`: the last one for ever."""

    answers: list[Any]
    now: float = 0.0
    asked: int = 0
    waited: list[float] = field(default_factory=list)

    def get_work_group(self, **_: Any) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.waited.append(seconds)

    @property
    def clients(self) -> AwsClients:
        return cast("AwsClients", SimpleNamespace(athena=self))

    def read(self, seconds: float = PATIENCE) -> str | None:
        found = read_workgroup(self.clients, "etl", seconds=seconds, clock=self.monotonic, sleep=self.sleep)
        return found.output_location


@pytest.mark.parametrize("trouble", [THROTTLED, ConnectionClosedError(endpoint_url="http://athena")])
def test_throttling_and_lost_replies_are_waited_out(trouble: Exception) -> None:
    athena = Athena([*[trouble] * 8, SERVED])
    assert athena.read() == "s3://results/"
    assert athena.asked == 9
    longest = [0.5, 1, 2, 4, 5, 5, 5, 5]
    assert all(most / 2 <= wait <= most for wait, most in zip(athena.waited, longest, strict=True))
    assert len(set(athena.waited[-4:])) == 4  # callers that were throttled together part


def test_they_are_not_waited_out_for_ever() -> None:
    athena = Athena([THROTTLED])
    with pytest.raises(ServiceUnavailable, match="ThrottlingException"):
        athena.read()
    assert PATIENCE - 5 <= athena.now <= PATIENCE


def test_who_has_no_time_asks_once() -> None:
    athena = Athena([THROTTLED])
    with pytest.raises(ServiceUnavailable):
        athena.read(seconds=-3)
    assert (athena.asked, athena.waited) == (1, [])


def test_a_refusal_is_not_asked_again() -> None:
    athena = Athena([refusal("InvalidRequestException")])
    with pytest.raises(AccessDenied):
        athena.read()
    assert athena.asked == 1


def test_an_answer_holds_for_a_while_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    athena = Athena([SERVED])
    publisher = Publisher(AwsSettings(region="us-east-1"))
    monkeypatch.setattr(sys.modules[Publisher.__module__], "time", athena)
    monkeypatch.setattr(publisher, "_clients", athena.clients)
    for now, asked in ((0, 1), (KEPT, 1), (KEPT + 1, 2), (2 * KEPT, 2), (2 * KEPT + 2, 3)):
        athena.now = now
        assert publisher._workgroup("etl").output_location == "s3://results/"
        assert athena.asked == asked
