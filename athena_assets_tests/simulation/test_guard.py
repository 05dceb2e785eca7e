"""The guard, story by story: which of the queries that run is adopted, and which is waited for."""

from __future__ import annotations

import pytest

from athena_assets import errors
from athena_assets.core import effects
from athena_assets.core.protocol import Caller
from athena_assets.core.register import FailureKind, Mode, State
from athena_assets.core.request import Published, Reused, Skipped
from athena_assets.core.statement import Label, render_unload
from athena_assets.core.target import Guard
from athena_assets_tests.simulation.scenarios import LOCATION, request, target
from athena_assets_tests.simulation.stories import Steps, Story


def caller(name: str, *, take_over: bool = False, **changes: object) -> Steps:
    return Caller(request(name, target(**changes)), "host", 1, take_over=take_over).publish()


def sent_twice(story: Story, mode: Mode) -> list[str]:
    """Two queries of one start: the owner sent it again, after Athena had forgotten the token, and died; their ids."""
    owner = caller("owner", mode=mode)
    start = story.until(owner, effects.StartQuery)
    for _ in range(2):
        story.world.perform(start)
        story.world.tokens.clear()
    return list(story.world.queries)


def test_staged_the_older_of_two_twins_is_adopted_at_once() -> None:
    story = Story()
    older, younger = sent_twice(story, Mode.STAGED)
    story.endless.add(younger)
    outcome = story.end(caller("taker", guard="takeover", take_over=True))
    assert isinstance(outcome, Published)
    assert outcome.publication.query_id == older
    assert len(story.world.queries) == 2


@pytest.mark.parametrize("mode", list(Mode))
def test_the_twin_of_an_adopted_query_is_stopped_before_anything_is_published(mode: Mode) -> None:
    story = Story()
    older, younger = sent_twice(story, mode)
    taker = caller("taker", mode=mode, guard="takeover", take_over=True)
    assert story.until(taker, effects.StopQuery).query_id == younger
    story.world.fail(story.world.queries[younger], FailureKind.CANCELLED, partial=False)
    outcome = story.end(taker)
    assert isinstance(outcome, Published)
    assert outcome.publication.query_id == older
    assert len(story.world.queries) == 2


@pytest.mark.parametrize("mode", list(Mode))
def test_the_twin_is_stopped_by_the_next_owner_if_the_one_that_found_it_dies(mode: Mode) -> None:
    """It had noted the adoption, so that nobody looked again, and the twin wrote among what was published."""
    story = Story()
    older, younger = sent_twice(story, mode)
    dying, taker = (caller(name, mode=mode, guard="takeover", take_over=True) for name in ("dying", "taker"))
    for steps in (dying, taker):
        assert story.until(steps, effects.StopQuery).query_id == younger
    outcome = story.end(taker)
    assert outcome.publication.query_id == older
    assert story.world.queries[younger].kind is FailureKind.CANCELLED


def test_direct_twins_that_both_wrote_are_never_published() -> None:
    story = Story()
    _, younger = sent_twice(story, Mode.DIRECT)
    taker = caller("taker", mode="direct", guard="takeover", take_over=True)
    story.until(taker, effects.StopQuery)
    story.world.succeed(story.world.queries[younger])  # the stop came too late
    with pytest.raises(errors.MixedLocation):
        story.end(taker)
    assert story.state is State.BLOCKED


@pytest.mark.parametrize("guard", ["takeover", "always"])
def test_a_query_of_a_dead_owner_that_ended_before_the_look_is_found_by_its_token(guard: str) -> None:
    story = Story()
    start = story.until(caller("owner"), effects.StartQuery)
    story.world.perform(start)
    (query,) = story.world.queries.values()
    story.world.succeed(query)
    outcome = story.end(caller("taker", guard=guard, take_over=True))
    assert outcome.publication.query_id == query.id
    assert len(story.world.queries) == 1


def test_a_copy_of_a_text_that_was_not_sent_yet_is_foreign() -> None:
    """Whoever copied it may have read older data than the publication would claim."""
    story = Story()
    wanted = target(mode="direct")
    text = render_unload(wanted.query, LOCATION, wanted.format, Label(str(LOCATION), 1, 1))
    story.world.by_hand(text, LOCATION.prefix)
    (copy,) = story.world.queries
    with pytest.raises(errors.ForeignQueryRunning) as caught:
        story.end(caller("caller", mode="direct", guard="always", on_conflict="fail"))
    assert caught.value.query_id == copy
    assert list(story.world.queries) == [copy]
    assert story.world.register(LOCATION) is None


@pytest.mark.parametrize("policy", ["skip", "fail"])
@pytest.mark.parametrize("taken_over", [False, True])
def test_a_refusal_changes_nothing(policy: str, taken_over: bool) -> None:
    story = Story()
    if taken_over:
        story.until(caller("owner"), effects.StartQuery)
    story.world.by_hand(f"unload (select 1) to '{LOCATION}'", LOCATION.prefix)
    before = story.world.register(LOCATION)
    late = caller("late", guard=Guard.ALWAYS, on_conflict=policy, take_over=taken_over)
    if policy == "skip":
        assert isinstance(story.end(late), Skipped)
    else:
        with pytest.raises(errors.ForeignQueryRunning):
            story.end(late)
    assert story.world.register(LOCATION) == before
    assert len(story.world.queries) == 1


@pytest.mark.parametrize("mode", list(Mode))
def test_an_own_query_is_adopted_whatever_else_writes_to_the_location(mode: Mode) -> None:
    """To wait for the other one could lose it: it ends meanwhile, and its token is forgotten."""
    story = Story()
    story.world.perform(story.until(caller("owner", mode=mode), effects.StartQuery))
    story.world.tokens.clear()
    (own,) = story.world.queries
    story.world.by_hand(f"unload (select 1) to '{LOCATION}'", LOCATION.prefix)
    taker = caller("taker", mode=mode, guard="takeover", take_over=True)
    assert story.until(taker, effects.PollQuery).query_id == own
    assert story.state is State.RUNNING


def test_the_wait_for_a_foreign_query_is_part_of_the_one_wait() -> None:
    story = Story()
    story.world.by_hand(f"unload (select 1) to '{LOCATION}'", LOCATION.prefix)
    story.endless.update(story.world.queries)
    with pytest.raises(errors.ForeignQueryRunning, match=r"after 6\d\d s of waiting"):
        story.end(caller("waiting", guard="always", wait_timeout=600))
    assert story.world.register(LOCATION) is None


def test_who_waits_for_a_foreign_query_gets_what_another_publishes_meanwhile() -> None:
    story = Story()
    story.world.by_hand(f"unload (select 1) to '{LOCATION}'", LOCATION.prefix)
    story.endless.update(story.world.queries)
    waiting = caller("waiting", guard="always")
    story.until(waiting, effects.PollQuery)
    published = story.end(caller("other"))
    outcome = story.end(waiting)
    assert isinstance(outcome, Reused)
    assert outcome.publication == published.publication


def test_a_query_that_was_started_otherwise_than_recorded_is_not_adopted() -> None:
    """Its result may lie where nobody can read it."""
    for changes in ({"workgroup": "theirs"}, {"database": "another"}):
        story = Story()
        start = story.until(caller("owner"), effects.StartQuery)
        story.world.by_hand(start.parameters.query, start.parameters.staging, **changes)
        outcome = story.end(caller("taker", guard="takeover", take_over=True, database="default"))
        assert isinstance(outcome, Published)
        assert len(story.world.queries) == 2
