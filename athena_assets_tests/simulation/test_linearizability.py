"""Whatever is lost or late, the clients of a register are told of one register."""

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from athena_assets_tests.simulation.linearizability import (
    TROUBLES,
    Clients,
    Looked,
    NotLinearizable,
    Wrote,
    check,
)

HISTORIES = 500


def test_every_history_of_the_register_is_linearizable() -> None:
    concluded: Counter[bool | None] = Counter()
    troubles: Counter[str] = Counter()
    for seed in range(HISTORIES):
        clients = Clients(random.Random(seed))
        check(clients.history)
        concluded.update(each.applied for each in clients.history if isinstance(each, Wrote))
        troubles.update(clients.timeline.counts)
    assert min(concluded[each] for each in (True, False, None)) > 100
    assert all(troubles[each] for each in TROUBLES)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_hypothesis_finds_no_history_that_is_not(chance: random.Random) -> None:
    check(Clients(chance).history)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [Looked(0, 1, None), Wrote(1, None, "a", 2, True), Looked(3, 4, "a")],
        # At once: each may come first.
        [Wrote(0, None, "a", 9, True), Looked(1, 2, None), Looked(3, 4, "a")],
        [Wrote(0, None, "a", 9, True), Looked(1, 4, "a"), Looked(2, 3, None)],
        # Nobody knows, and it was applied; late, after the death of its client; or never.
        [Wrote(0, None, "a"), Looked(5, 6, "a")],
        [Wrote(0, None, "a"), Looked(5, 6, None), Looked(7, 8, "a")],
        [Wrote(0, None, "a"), Wrote(1, None, "b", 2, True), Looked(3, 4, "b")],
        # Another write stands there: one's own was too late, or has been replaced.
        [Wrote(0, None, "a", 4, False), Wrote(1, None, "b", 2, True)],
        [Wrote(0, None, "a", 9, False), Looked(1, 2, "a"), Wrote(3, "a", "b", 4, True)],
    ],
)
def test_a_history_with_an_explanation_is_linearizable(history: list[Looked | Wrote]) -> None:
    check(history)


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ([Looked(0, 1, "a")], "never written"),
        ([Wrote(0, "a", "b", 1, True)], "never written"),
        ([Wrote(0, "a", "b", 1, True), Wrote(0, "b", "a", 1, True)], "do not follow"),
        ([Wrote(0, None, "a", 1, True), Wrote(0, None, "b", 1, True)], "both replaced None"),
        ([Wrote(0, None, "a", 1, True), Looked(2, 3, None)], "can't have been before"),
        ([Looked(0, 1, "a"), Wrote(2, None, "a", 3, True)], "can't have been before"),
        ([Wrote(0, None, "a", 1, True), Wrote(4, "a", "b", 5, True), Looked(2, 3, "b")], "can't have been before"),
        ([Wrote(0, None, "a", 1, True), Wrote(2, "a", "b", 3, True), Looked(4, 5, "a")], "can't have been before"),
        ([Wrote(0, None, "a"), Looked(1, 2, "a"), Looked(3, 4, None)], "can't have been before"),
        # Told that another write stands there, when none does, or none does yet.
        ([Wrote(0, None, "a", 1, False)], "there was none"),
        ([Wrote(0, None, "a", 1, False), Wrote(2, None, "b", 3, True)], "there was none"),
        ([Wrote(0, None, "a", 3, False), Looked(1, 2, "a")], "there was none"),
        # Applied, and nobody ever saw it although others went on from what it replaced.
        ([Wrote(0, None, "a", 1, True), Wrote(2, None, "b"), Looked(5, 6, "b")], "both replaced None"),
    ],
)
def test_a_history_without_an_explanation_is_told(history: list[Looked | Wrote], why: str) -> None:
    with pytest.raises(NotLinearizable, match=why):
        check(history)
