"""The guard, story by story: which of the queries that run is adopted, and which is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from athena_assets import errors
from athena_assets.core import effects
from athena_assets.core.protocol import Caller
from athena_assets.core.register import FailureKind, Mode, State
from athena_assets.core.request import Published, Skipped
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


@pytest.mark.parametrize("mode", [Mode.DIRECT, Mode.POINTER])
def test_where_readers_list_the_place_of_twins_the_older_is_adopted_once_the_younger_has_ended(mode: Mode) -> None:
    story = Story()
    older, younger = sent_twice(story, mode)
    taker = caller("taker", mode=mode, guard="takeover", take_over=True)
    assert story.until(taker, effects.PollQuery).query_id == younger
    assert story.state is State.SUBMITTING
    story.world.fail(story.world.queries[younger], FailureKind.DESTINATION_EXISTS, partial=False)
    outcome = story.end(taker)
    assert isinstance(outcome, Published)
    assert outcome.publication.query_id == older
    assert len(story.world.queries) == 2


def test_direct_twins_that_both_wrote_are_never_published() -> None:
    story = Story()
    sent_twice(story, Mode.DIRECT)
    with pytest.raises(errors.MixedLocation):
        story.end(caller("taker", mode="direct", guard="takeover", take_over=True))
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
    assert story.state is State.FREE


@pytest.mark.parametrize("policy", ["skip", "fail"])
@pytest.mark.parametrize("taken_over", [False, True])
def test_the_slot_is_free_after_a_refusal_unless_an_earlier_owner_may_have_sent_the_start(
    policy: str, taken_over: bool
) -> None:
    story = Story()
    if taken_over:
        story.until(caller("owner"), effects.StartQuery)
    story.world.by_hand(f"unload (select 1) to '{LOCATION}'", LOCATION.prefix)
    late = caller("late", guard=Guard.ALWAYS, on_conflict=policy, take_over=taken_over)
    if policy == "skip":
        assert isinstance(story.end(late), Skipped)
    else:
        with pytest.raises(errors.ForeignQueryRunning):
            story.end(late)
    assert story.state is (State.SUBMITTING if taken_over else State.FREE)
    assert len(story.world.queries) == 1


def test_the_lease_is_kept_while_a_foreign_query_is_waited_for() -> None:
    story = Story()
    story.world.by_hand(f"unload (select 1) to '{LOCATION}'", LOCATION.prefix)
    story.endless.update(story.world.queries)
    waiting = caller("waiting", guard="always", wait_timeout=600)
    written: list[str] = []

    def watch() -> None:
        while True:
            story.until(waiting, effects.WriteObject)
            register = story.world.register(LOCATION)
            written.append("" if register is None else register.write_id)

    with pytest.raises(errors.ForeignQueryRunning, match="after 600 s of waiting"):
        watch()
    assert len(set(written)) > 600 / 60  # more than one within each lease


def test_a_foreign_query_that_a_list_still_has_after_its_end_is_not_waited_for_again() -> None:
    story = Story()
    story.world.by_hand(f"unload (select 1) to '{LOCATION}'", LOCATION.prefix)
    (query,) = story.world.queries.values()
    waiting = caller("waiting", guard="always", on_conflict="queue")
    story.until(waiting, effects.PollQuery)
    story.endless.add(query.id)
    story.world.queries[query.id] = replace(query, known=False)  # listed as running, and GetQueryExecution has no such
    assert isinstance(story.end(waiting), Published)
