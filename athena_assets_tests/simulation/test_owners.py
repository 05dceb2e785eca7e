"""Who owns what, story by story: steps of one request, owners that were overtaken, callers that were interrupted."""

from __future__ import annotations

from typing import Any

import pytest

from athena_assets import errors
from athena_assets.core import effects
from athena_assets.core.abandon import abandon
from athena_assets.core.memory import Memory
from athena_assets.core.protocol import Caller
from athena_assets.core.register import FailureKind, State
from athena_assets.core.request import Published
from athena_assets.core.slot import Slot
from athena_assets_tests.simulation.scenarios import LOCATION, request, target
from athena_assets_tests.simulation.stories import Steps, Story

SLOT = Slot(LOCATION, "a test")
SESSION = "00000000000000aa"


def caller(name: str, *, take_over: bool = False, force: bool = False, **changes: object) -> Steps:
    return Caller(request(name, target(**changes), force=force), "host", 1, take_over=take_over).publish()


def step(memory: Memory | None = None, *, force: bool = False, **changes: object) -> Caller:
    """One step of the one request that is published in steps."""
    return Caller(request("steps", target(**changes), force=force), "function", 1, session=SESSION, memory=memory)


def overtaken(story: Story, **changes: Any) -> tuple[Steps, Steps]:
    """An owner that has slept past its lease, and whoever has taken its query over."""
    owner, taker = caller("owner", **changes), caller("taker", take_over=True)
    story.until(owner, effects.PollQuery)
    story.endless.update(story.world.queries)
    story.until(taker, effects.PollQuery)
    story.pass_by(3600)
    return owner, taker


@pytest.mark.parametrize("policy", ["queue", "skip", "fail"])
def test_an_owner_that_was_overtaken_waits_for_its_own_query_whatever_it_thinks_of_others(policy: str) -> None:
    story = Story()
    owner, taker = overtaken(story, on_conflict=policy)
    assert story.until(owner, effects.Sleep).handover
    story.endless.clear()
    story.end(taker)
    assert isinstance(story.end(owner), Published)
    assert len(story.world.queries) == 1


def test_an_owner_that_was_overtaken_and_waits_no_longer_does_not_say_that_it_began_nothing() -> None:
    story = Story()
    owner, _ = overtaken(story, wait_timeout=1)
    with pytest.raises(errors.SlotBusy, match="What this request has begun was not stopped"):
        story.end(owner)


def test_a_takeover_by_hand_strikes_the_owner_that_was_there_and_no_later_one() -> None:
    story = Story()
    first, hand = caller("first"), caller("hand", take_over=True, on_conflict="queue")
    story.until(first, effects.PollQuery)
    story.until(hand, effects.WriteObject)
    story.end(first)
    later = caller("later", force=True)
    story.until(later, effects.PollQuery)
    story.endless.update(story.world.queries)
    assert story.until(hand, effects.Sleep).handover
    register = story.world.register(LOCATION)
    assert register is not None
    assert register.fence == 2


def test_a_takeover_by_hand_of_a_free_slot_strikes_nobody_who_comes_later() -> None:
    story = Story()
    hand, other = caller("hand", take_over=True, on_conflict="queue"), caller("other")
    story.until(hand, effects.WriteObject)
    story.until(other, effects.PollQuery)
    story.endless.update(story.world.queries)
    assert story.until(hand, effects.Sleep).handover
    register = story.world.register(LOCATION)
    assert register is not None
    assert register.fence == 1


def test_a_foreign_query_that_appears_does_not_keep_a_step_from_the_result_of_the_one_before() -> None:
    for policy in ("join", "skip", "fail"):
        story = Story()
        story.world.perform(story.until(step(guard="takeover").publish(), effects.StartQuery))
        (own,) = story.world.queries.values()
        story.world.succeed(own)
        story.world.by_hand(f"unload (select 1) to '{LOCATION}'", LOCATION.prefix)
        outcome = story.end(step(guard="takeover", on_conflict=policy).publish())
        assert isinstance(outcome, Published)
        assert outcome.publication.query_id == own.id


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("policy", ["join", "queue", "skip", "fail"])
def test_a_failure_that_a_lost_step_recorded_is_raised_by_the_next_one_and_no_query_is_run_again(
    policy: str, force: bool
) -> None:
    story = Story()
    made = step(force=force, on_conflict=policy)
    steps = made.publish()
    story.until(steps, effects.PollQuery)
    memory = made.memory
    story.cancels = True
    for lost in (steps, step(memory, force=force, on_conflict=policy).publish()):
        with pytest.raises(errors.QueryCancelled):
            story.end(lost)
    assert len(story.world.queries) == 1


def test_a_late_step_begins_nothing_once_its_request_was_given_up() -> None:
    story = Story()
    story.world.perform(story.until(step().publish(), effects.StartQuery))
    late = step().publish()
    story.until(late, effects.WriteObject)  # it is about to take over
    story.end(abandon(SLOT, SESSION))
    assert story.state is State.FREE
    assert story.until(late, effects.Report).event == "superseded"
    assert len(story.world.queries) == 1


def test_a_query_that_the_step_before_stopped_for_its_timeout_has_timed_out() -> None:
    story = Story()
    made = step(timeout=20)
    steps = made.publish()
    story.until(steps, effects.PollQuery)
    story.endless.update(story.world.queries)
    story.until(steps, effects.Sleep)
    memory = made.memory
    story.pass_by(30)
    story.world.perform(story.until(steps, effects.StopQuery))
    with pytest.raises(errors.QueryTimedOut):
        story.end(step(memory, timeout=20).publish())


def test_an_interrupted_owner_does_not_stop_the_query_that_another_has_adopted_meanwhile() -> None:
    story = Story()
    story.until(step().publish(), effects.PollQuery)
    interrupted = abandon(SLOT, SESSION)
    story.until(interrupted, effects.WriteObject)
    story.until(caller("taker", take_over=True), effects.PollQuery)
    with pytest.raises(StopIteration):
        story.until(interrupted, effects.StopQuery)
    (query,) = story.world.queries.values()
    assert query.state is effects.QueryState.ACTIVE


def test_a_stop_that_was_not_answered_is_sent_again() -> None:
    story = Story()
    story.until(step().publish(), effects.PollQuery)
    story.endless.update(story.world.queries)
    interrupted: Any = abandon(SLOT, SESSION)
    story.until(interrupted, effects.StopQuery)
    story.tell(interrupted, effects.Unanswered("the reply was lost"))
    story.until(interrupted, effects.StopQuery)
    story.end(interrupted)
    (query,) = story.world.queries.values()
    assert (query.kind, story.state) == (FailureKind.CANCELLED, State.FREE)
