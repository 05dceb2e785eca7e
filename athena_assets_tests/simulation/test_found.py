"""What the simulation found, each as the shortest story that shows it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from athena_assets import errors
from athena_assets.core import effects, keys
from athena_assets.core.protocol import Caller
from athena_assets.core.reading import read_published
from athena_assets.core.register import Mode, Owner, State
from athena_assets.core.request import Published
from athena_assets.core.restore import restore
from athena_assets.core.slot import Slot
from athena_assets.core.target import Target
from athena_assets_tests.simulation.scenarios import BY_PARTITION, LOCATION, request, target
from athena_assets_tests.simulation.stories import Steps, Story

SLOT = Slot(LOCATION, "a test")
DIRECT = target(mode=Mode.DIRECT, clean_after_failure=True, retries=0)


def caller(name: str, wanted: Target = DIRECT, *, take_over: bool = False, **changes: Any) -> Steps:
    return Caller(request(name, wanted, **changes), "host", 1, take_over=take_over).publish()


def test_whenever_an_owner_dies_cleaning_up_after_it_deletes_no_published_file() -> None:
    """One that had acquired a direct slot and not yet looked at the location left an attempt that nobody checked."""
    for died_after in itertools.count():
        story = Story()
        assert isinstance(story.end(caller("first")), Published)
        published = story.world.listing(LOCATION.prefix)
        dying = caller("second", force=True)
        try:
            for _ in range(died_after):
                story.step(dying)
        except errors.LocationNotEmpty:
            assert died_after > 5
            break
        story.cancels = True
        with pytest.raises(errors.LocationNotEmpty):
            story.end(caller("third", force=True))
        assert story.world.listing(LOCATION.prefix) == published


def test_owner_that_another_has_superseded_before_its_commit_returns_what_that_one_published() -> None:
    """It found files of its own slot that its register did not know, and held the register for lost."""
    story = Story()
    owner = Caller(request("owner", target()), "host", 1).publish()
    story.until(owner, effects.ReadUri)
    story.until(owner, effects.ListObjects)  # of its staging
    story.until(owner, effects.ListObjects)  # of the location, for its plan
    published = story.end(Caller(request("other", target()), "host", 2, take_over=True).publish())
    assert story.end(owner).publication == published.publication
    assert len(story.world.queries) == len(story.world.commits) == 1


def test_restore_that_another_caller_overtakes_calls_the_slot_busy_not_the_table_foreign() -> None:
    """It had looked at the register before the other's publication, and at the table after it."""
    story = Story()
    wanted = target(mode=Mode.POINTER, glue_table="marts.daily")

    def publication(name: str) -> Steps:
        return Caller(request(name, wanted, force=True), "host", 1).publish()

    for name in ("first", "second"):
        story.end(publication(name))
    owner = Owner("00000000000000ff", "host", 1, "restore")
    restoring = restore(Slot(LOCATION, "restore"), fence=1, owner=owner, lease=60.0)
    story.until(restoring, effects.ReadPointer)
    story.end(publication("third"))
    with pytest.raises(errors.SlotBusy):
        story.end(restoring)


def test_a_pointer_that_was_moved_is_not_given_up_because_time_has_passed() -> None:
    """The first call creates the table, the second the partition; the process was suspended in between."""
    story = Story()
    (wish, _) = BY_PARTITION
    owner = Caller(wish, "host", 1).publish()
    for _ in range(2):
        story.until(owner, effects.MovePointer)
    story.until(owner, effects.ReadClock)
    story.pass_by(wish.patience + 1)
    assert isinstance(story.end(owner), Published)


def test_what_another_owner_writes_into_a_direct_location_meanwhile_is_joined_not_refused() -> None:
    story = Story()
    late, owner = caller("late"), caller("owner")
    story.until(late, effects.ListObjects)  # for manifests, at the first use
    story.until(late, effects.ListObjects)
    story.until(owner, effects.CountRows)
    assert story.world.listing(LOCATION.prefix)
    outcome = story.end(late)
    assert len(story.world.queries) == 1
    assert outcome.publication == story.end(owner).publication


def test_owner_that_was_overtaken_before_its_first_commit_joins_and_does_not_miss_the_register() -> None:
    """What it finds at the location is the result of whoever took over; the register in its memory has none."""
    story = Story()
    owner = caller("owner", target())
    story.until(owner, effects.ReadUri)
    story.until(owner, effects.ListObjects)  # of its staging
    story.until(owner, effects.ListObjects)
    published = story.end(caller("taker", target(), take_over=True)).publication
    outcome = story.end(owner)
    assert outcome.publication == published
    assert len(story.world.queries) == 1


def restoring(fence: int) -> Steps:
    return restore(SLOT, fence=fence, owner=Owner("session", "host", 1, "restore"), lease=60.0)


def published_twice() -> Story:
    story = Story()
    for name in ("first", "second"):
        story.end(caller(name, target(), force=True))
    return story


def test_restore_that_was_overtaken_says_so_and_not_that_nothing_is_kept() -> None:
    story = published_twice()
    late = restoring(1)
    story.until(late, effects.ListObjects)  # of what is kept, which the third publication drops
    story.end(caller("third", target(), force=True))
    with pytest.raises(errors.SlotBusy, match="at the same moment"):
        story.end(late)


def test_restore_whose_files_vanished_is_never_told_as_done() -> None:
    """Also not to the one who asks again, with the same request id."""
    story = published_twice()
    first = restoring(1)
    story.until(first, effects.AtOnce)  # it has committed, and copies nothing yet
    story.world.steal(keys.backup_prefix(LOCATION, 1))
    for steps in (first, restoring(1)):
        with pytest.raises(errors.PublicationLost):
            story.end(steps)


def test_query_that_a_paused_owner_may_still_start_is_not_given_up_for_being_throttled() -> None:
    """The slot would be free for another query; in direct mode both would write into one location."""
    story = Story()
    paused = caller("paused")
    story.until(paused, effects.StartQuery)
    story.throttled = True
    with pytest.raises(errors.OutcomeUnknown):
        story.end(caller("taker", take_over=True))
    story.throttled = False
    published = story.end(caller("next", take_over=True)).publication
    assert story.end(paused).publication == published
    assert len(story.world.queries) == 1


def test_throttled_start_that_nobody_else_can_send_is_given_up() -> None:
    story = Story()
    story.throttled = True
    with pytest.raises(errors.QueryThrottled):
        story.end(caller("only"))
    register = story.world.register(LOCATION)
    assert register is not None
    assert register.state is State.FREE


@pytest.mark.parametrize(
    "late", [read_published, partial(restore, fence=1, owner=Owner("late", "host", 1, "late"), lease=60)]
)
def test_who_looked_before_the_first_publication_does_not_take_the_register_for_lost(
    late: Callable[[Slot], Steps],
) -> None:
    """A reader was paused between the register, which was not there yet, and the manifests."""
    story = Story()
    paused = late(SLOT)
    story.until(paused, effects.ListObjects)
    assert isinstance(story.end(caller("first")), Published)
    with pytest.raises((errors.NothingPublished, errors.NotKept)):  # as it was when they looked
        story.end(paused)
