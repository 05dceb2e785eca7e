"""Callers that ask the same at the same time share an answer, which is never older than the question."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from athena_assets.aws.shared import PACE, Shared
from athena_assets_tests.e2e.lake import wait_until


class Clock:
    def __init__(self) -> None:
        self.read = itertools.count()
        self.times = 0

    def __call__(self) -> float:
        self.times = next(self.read)
        return time.monotonic()


def test_callers_who_come_while_another_asks_share_one_asking_that_begins_afterwards() -> None:
    clock, gate, numbers = Clock(), threading.Event(), itertools.count(1)
    shared = Shared[int](clock, lambda _: None)

    def ask() -> int:
        number = next(numbers)
        assert gate.wait(60)
        return number

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(shared.ask, "w", ask, 60.0)
        wait_until(lambda: clock.times >= 2, "the first one asks")
        others = [pool.submit(shared.ask, "w", ask, 60.0) for _ in range(8)]
        wait_until(lambda: clock.times >= 10, "all others have come")
        gate.set()
        assert (first.result(60), {each.result(60) for each in others}) == (1, {2})
    assert shared.ask("another", lambda: 0, 60.0) == 0
    assert shared.ask("w", lambda: 7, 60.0) == 7  # whoever comes later gets no answer of before


def test_two_askings_are_a_pace_apart() -> None:
    now = 100.0
    slept: list[float] = []
    shared = Shared[int](lambda: now, slept.append)
    assert shared.ask("w", lambda: 1, 60.0) == 1
    now += 0.1
    assert shared.ask("w", lambda: 2, 60.0) == 2
    assert slept == [0.0, pytest.approx(PACE - 0.1)]


def test_who_has_no_time_left_gets_no_answer() -> None:
    shared = Shared[int]()
    assert shared.ask("w", lambda: -1 if _hurried(shared) is None else 1, 60.0) == -1


def _hurried(shared: Shared[int]) -> int | None:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(shared.ask, "w", lambda: 2, 0.0).result(60)


def test_an_error_is_the_askers_own() -> None:
    shared = Shared[int](sleep=lambda _: None)

    def fail() -> int:
        raise PermissionError

    with pytest.raises(PermissionError):
        shared.ask("w", fail, 60.0)
    assert shared.ask("w", lambda: 1, 60.0) == 1
