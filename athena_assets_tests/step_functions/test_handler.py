"""What the function asks of a publisher, which a test takes the place of."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from athena_assets import Target
from athena_assets.aws.session import CONNECT_TIMEOUT, READ_TIMEOUT
from athena_assets.core.request import Skipped
from athena_assets.step_functions import handler as function
from athena_assets.step_functions.documents import ALLOWANCE, LONGEST, Wish
from athena_assets_tests.step_functions.conftest import Steps

PLAIN = Target(name="marts/daily", query="SELECT n FROM t", location="s3://lake/daily/")


@dataclass(slots=True)
class Asked:
    """A publisher and the clock, which goes on by `slow` seconds while a request is made."""

    slow: float = 0.0
    now: float = 1000.0
    request_with: dict[str, Any] = field(default_factory=dict)
    step_with: dict[str, Any] = field(default_factory=dict)

    def monotonic(self) -> float:
        return self.now

    def request(self, target: Target, **arguments: Any) -> Target:
        self.request_with = arguments
        self.now += self.slow
        return target

    def step(self, request: Target, **arguments: Any) -> Skipped:
        self.step_with = arguments
        return Skipped("another", None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(function, "_publisher", lambda *_: found)
    monkeypatch.setattr(function, "time", found)
    return found


@pytest.mark.parametrize("request_id", [None, "wish"])
@pytest.mark.parametrize("first_try", [False, True])
def test_only_who_says_so_is_a_first_try(asked: Asked, request_id: str | None, first_try: bool) -> None:
    """An execution's name may be free again, after 90 days or on another state machine, and have published before."""
    steps = Steps(Wish(target=PLAIN, request_id=request_id, first_try=first_try))
    steps.step()
    assert asked.request_with["request_id"] == (request_id or steps.name)
    assert asked.request_with["first_try"] is first_try


def test_the_time_that_it_takes_to_make_a_request_counts(asked: Asked) -> None:
    asked.slow = 100.0
    Steps(Wish(target=PLAIN)).step(900.0)
    assert asked.step_with["until"] == 1000 + 900 - function.MARGIN


def test_the_margin_is_longer_than_a_call_with_all_its_attempts() -> None:
    assert 6 * (CONNECT_TIMEOUT + READ_TIMEOUT) < function.MARGIN


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_an_input_that_leaves_no_room_for_a_memory_is_refused(asked: Asked, letter: str) -> None:
    empty = Wish(target=replace(PLAIN, query="SELECT ''"))
    taken = len(json.dumps(empty.document(), separators=(",", ":")))

    def steps(length: int) -> Steps:
        """With an input of so many bytes, written as short as it can be."""
        count, more = divmod(length - taken, len(letter.encode()))
        return Steps(Wish(target=replace(PLAIN, query=f"SELECT '{letter * count}{'x' * more}'")))

    with pytest.raises(Exception, match=f"it has {LONGEST - ALLOWANCE + 1:,} bytes") as refused:
        steps(LONGEST - ALLOWANCE + 1).step()
    assert type(refused.value).__name__ == "InvalidTarget"
    assert not asked.request_with
    steps(LONGEST - ALLOWANCE).step()
    assert asked.request_with
