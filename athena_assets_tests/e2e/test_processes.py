"""Operating-system processes that publish, and are killed and frozen at random; S3's contents say what came of it.

A round is one slot: callers of two generations under three policies, struck at moments that its seed draws. A frozen
one wakes after its lease has run out, or only after the round's last publication. What the seed can't repeat is how
the processes run between the strikes.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

import pytest

from athena_assets import Target
from athena_assets_tests.e2e.lake import ROWS, Lake, done
from athena_assets_tests.e2e.processes import ProcessCaller

LEASE = 0.5  # seconds; the shortest
AT_ONCE = 3  # rounds
SIZES = (500, ROWS)  # rows of the first and of the last generation
POLICIES = ("join", "join", "queue")
STRIKES = (None, signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGSTOP)


@dataclass(frozen=True, slots=True)
class Part:
    """One caller of a round. Times are seconds since the round began."""

    generation: int
    policy: str
    begins: float
    strike: signal.Signals | None
    strikes: float
    wakes_last: bool  # a frozen one of the last generation: after the last publication


def schedule(seed: int) -> list[Part]:
    """Three or four callers, of whom the first is of the first generation."""
    draw = random.Random(seed)
    parts = []
    for index in range(draw.choice((3, 4))):
        generation = 0 if index == 0 else draw.choice((0, 1))
        begins = draw.uniform(0, 0.6)
        strike = draw.choice(STRIKES)
        wakes_last = strike is signal.SIGSTOP and generation == 1 and draw.random() < 0.5
        parts.append(
            Part(generation, draw.choice(POLICIES), begins, strike, begins + draw.expovariate(1.5), wakes_last)
        )
    return parts


class Workers:
    """Idle workers, forked when there is none."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._idle: SimpleQueue[ProcessCaller] = SimpleQueue()

    def take(self) -> ProcessCaller:
        return self._idle.get() if not self._idle.empty() else ProcessCaller(self._lake, LEASE)

    def give_back(self, worker: ProcessCaller) -> None:
        if worker.alive and worker.ended() is not None:
            self._idle.put(worker)
        else:
            worker.close()

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get().close()


@contextmanager
def workers(lake: Lake) -> Iterator[Workers]:
    found = Workers(lake)
    try:
        yield found
    finally:
        found.close()


def play(lake: Lake, pool: Workers, seed: int) -> None:
    parts = schedule(seed)
    targets = [
        lake.target(f"round_{seed}", query=f"SELECT n FROM numbers WHERE n < {size}", on_conflict="join")
        for size in SIZES
    ]
    cast = [pool.take() for _ in parts]
    try:
        strike_all(lake, parts, cast, targets)
        # Without force it would be content with an earlier publication, beside a dead owner of the other generation.
        done(lake.publisher(LEASE).unload(targets[1], force=True))
        for part, caller in zip(parts, cast, strict=True):
            if part.wakes_last:
                caller.signal(signal.SIGCONT)
        live = [caller for part, caller in zip(parts, cast, strict=True) if part.strike is not signal.SIGKILL]
        ended = [caller.result() for caller in live]
        assert [each for each in ended if "error" in each] == []
        lake.assert_published_once(targets[1].location, range(SIZES[1]))
        assert_one_query_each(lake, targets[1])
    finally:
        for caller in cast:
            pool.give_back(caller)


def strike_all(lake: Lake, parts: list[Part], cast: list[ProcessCaller], targets: list[Target]) -> None:
    """Plays the schedule to the end of everybody who is to end before the last publication."""
    moments: list[tuple[float, int, str]] = []
    for index, part in enumerate(parts):
        moments.append((part.begins, index, "begin"))
        if part.strike is not None:
            moments.append((part.strikes, index, "strike"))
        if part.strike is signal.SIGSTOP and not part.wakes_last:
            moments.append((part.strikes + 3 * LEASE, index, "wake"))
    began = time.monotonic()
    for moment, index, what in sorted(moments):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        part, caller = parts[index], cast[index]
        if what == "begin":
            target = targets[part.generation]
            caller.publish(lake.target(target.name, query=target.query, on_conflict=part.policy))
        elif what == "wake":
            caller.signal(signal.SIGCONT)
        else:
            assert part.strike is not None
            caller.signal(part.strike)
    for part, caller in zip(parts, cast, strict=True):
        if part.strike is signal.SIGKILL:
            caller.wait()
        elif not part.wakes_last:
            caller.result()


def assert_one_query_each(lake: Lake, target: Target) -> None:
    """Every publication is one succeeded query's, its fence is higher than the one before, and its request is new."""
    register = lake.register(target.location)
    assert register is not None
    assert register.publication is not None
    published = [*reversed(register.history), register.publication]
    states = {each.query_id: each.state for each in lake.queries(target.location)}
    assert [states[each.query_id] for each in published] == ["SUCCEEDED"] * len(published)
    assert len({each.query_id for each in published}) == len(published)
    assert len({each.request for each in published}) == len(published)
    fences = [each.fence for each in published]
    assert fences == sorted(set(fences))
    assert not any(each.lost for each in published)


def play_rounds(lake: Lake, seeds: range) -> None:
    def one(seed: int) -> str | None:
        try:
            play(lake, pool, seed)
        except AssertionError as error:
            return f"seed {seed}, {schedule(seed)}: {error}"
        return None

    with workers(lake) as pool, ThreadPoolExecutor(AT_ONCE) as threads:
        failures = [each for each in threads.map(one, seeds) if each is not None]
    assert not failures, "\n".join(failures)


@pytest.mark.timeout(300)
def test_processes_struck_at_random_end_in_one_right_publication_in_6_rounds(lake: Lake) -> None:
    play_rounds(lake, range(6))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_processes_struck_at_random_end_in_one_right_publication_in_300_rounds(lake: Lake, first: int) -> None:
    play_rounds(lake, range(first, first + 50))
