"""When the register already answers a request, and when the caller has to go on."""

from dataclasses import replace

import pytest

from athena_assets import errors
from athena_assets.core.answers import Expectation, answered_by, describe, in_flight
from athena_assets.core.register import Failure, FailureKind, Publication, Register, State
from athena_assets.core.request import Outcome, Published, Request, Reused
from athena_assets_tests.core.examples import (
    ATTEMPT,
    FREE,
    OWNER,
    PUBLICATION,
    PUBLISHING,
    RUNNING,
    SUBMITTING,
    request,
    target,
)

GENERATION = "a" * 64
OTHER_GENERATION = "b" * 64
SLOT = "s3://lake/marts/daily/"

JOINER = request(id="me")
FAILER = request(id="me", target=target(on_conflict="fail"))


def expecting(
    wish: Request = JOINER, *, since: int = 8, reusable: bool = True, adopted: int | None = None, waited: float = 0.0
) -> Expectation:
    return Expectation(wish, GENERATION, reusable, since, adopted, waited)


def published(fence: int, by: str = "other", generation: str = GENERATION, **changes: object) -> Publication:
    return replace(
        PUBLICATION,
        fence=fence,
        request=by,
        generation=generation,
        definition=JOINER.definition,
        **changes,  # type: ignore[arg-type]
    )


def free(*publications: Publication, failure: Failure | None = None) -> Register:
    """A free register whose publications are given newest first."""
    return replace(
        FREE,
        fence=20,
        publication=publications[0] if publications else None,
        history=publications[1:],
        failure=failure,
    )


def failed(fence: int, generation: str = GENERATION, kind: FailureKind = FailureKind.USER_ERROR) -> Failure:
    return Failure(generation, "other", fence, "q-9", kind, "line 1:8: mismatched input")


# --- this request's own publication ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", [JOINER, FAILER, request(id="me", force=True)])
def test_a_retry_finds_its_own_publication_whatever_its_policy(wish: Request) -> None:
    mine = published(7, by="me", attempt=2)
    assert answered_by(free(mine), expecting(wish, waited=3.0)) == Published(mine, attempts=2, waited=3.0)


def test_a_retry_finds_its_publication_under_any_generation_of_its_definition() -> None:
    mine = published(7, by="me", generation=OTHER_GENERATION)
    assert answered_by(free(mine), expecting()) == Published(mine, attempts=1)


def test_a_retry_is_told_that_others_have_published_since() -> None:
    mine = published(5, by="me")
    found = free(published(9), published(7, generation=OTHER_GENERATION), mine)
    assert answered_by(found, expecting()) == Published(mine, attempts=1, superseded=True)


def test_of_its_own_publication_and_anothers_a_request_gets_its_own() -> None:
    mine = published(9, by="me")
    assert answered_by(free(published(10), mine), expecting()) == Published(mine, attempts=1, superseded=True)


def test_an_own_publication_that_the_caller_finished_for_a_dead_owner_is_marked_adopted() -> None:
    mine = published(9, by="me")
    assert answered_by(free(mine), expecting(adopted=9)) == Published(mine, attempts=1, adopted=True)


@pytest.mark.parametrize("lost", [False, True])
def test_a_request_id_that_comes_back_with_another_definition_is_a_conflict(lost: bool) -> None:
    before = replace(published(7, by="me", lost=lost), definition="e" * 64)
    for found in (free(before), free(published(9), before)):
        with pytest.raises(errors.RequestConflict) as caught:
            answered_by(found, expecting())
        assert caught.value.subject == SLOT
        assert before.query_id in caught.value.what


def test_another_requests_other_definition_is_no_conflict() -> None:
    found = free(replace(published(7, generation=OTHER_GENERATION), definition="e" * 64))
    assert answered_by(found, expecting()) is None


def test_a_request_whose_files_vanished_while_it_waited_is_told() -> None:
    with pytest.raises(errors.PublicationLost) as caught:
        answered_by(free(published(8, by="me", lost=True)), expecting(since=8))
    assert PUBLICATION.query_id in caught.value.what


def test_a_request_that_comes_back_after_the_loss_runs_anew() -> None:
    assert answered_by(free(published(7, by="me", lost=True)), expecting(since=8)) is None


def test_a_later_publication_of_the_request_answers_over_its_lost_one() -> None:
    mine = published(9, by="me")
    found = free(mine, published(7, by="me", lost=True))
    assert answered_by(found, expecting()) == Published(mine, attempts=1)


# --- joined ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", [8, 9, 15])
@pytest.mark.parametrize("reuse", ["auto", "always", "never"])
@pytest.mark.parametrize("reusable", [True, False])
def test_a_joiner_takes_what_was_in_flight_when_it_came(fence: int, reuse: str, reusable: bool) -> None:
    theirs = published(fence, reusable=reusable)
    wish = request(id="me", target=target(reuse=reuse))
    found = answered_by(free(theirs), expecting(wish, reusable=reusable, waited=2.5))
    assert found == Reused(theirs, waited=2.5, joined=True)


def test_a_joiner_takes_it_from_the_history_too() -> None:
    theirs = published(9)
    found = answered_by(free(published(10, generation=OTHER_GENERATION), theirs), expecting())
    assert found == Reused(theirs, joined=True, superseded=True)


def test_of_several_a_joiner_takes_the_newest() -> None:
    newest = published(11)
    assert answered_by(free(newest, published(9)), expecting()) == Reused(newest, joined=True)


@pytest.mark.parametrize(
    ("theirs", "wish"),
    [
        (published(7, reusable=False), JOINER),
        (published(9, generation=OTHER_GENERATION), JOINER),
        (published(9, lost=True), JOINER),
        (published(9, reusable=False), FAILER),
        (published(9), request(id="me", force=True)),
        (published(9), request(id="me", force=True, target=target(reuse="always"))),
    ],
    ids=["finished before", "another generation", "lost", "does not join", "forced", "forced over always"],
)
def test_what_can_not_be_joined_is_no_answer(theirs: Publication, wish: Request) -> None:
    assert answered_by(free(theirs), expecting(wish)) is None


def test_a_lost_publication_hides_no_earlier_one() -> None:
    theirs = published(9)
    assert answered_by(free(published(10, lost=True), theirs), expecting()) == Reused(
        theirs, joined=True, superseded=True
    )


@pytest.mark.parametrize("wish", [JOINER, FAILER])
def test_what_the_caller_finished_for_a_dead_owner_is_its_publication(wish: Request) -> None:
    theirs = published(9, attempt=2)
    assert answered_by(free(theirs), expecting(wish, adopted=9, waited=1.0)) == Published(
        theirs, attempts=2, waited=1.0, adopted=True
    )


def test_a_forced_request_does_not_take_even_what_it_finished_itself() -> None:
    assert answered_by(free(published(9)), expecting(request(id="me", force=True), adopted=9)) is None


# --- reused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reuse", "recorded", "wanted", "reused"),
    [
        ("auto", True, True, True),
        ("auto", True, False, False),
        ("auto", False, True, False),
        ("auto", False, False, False),
        ("always", False, False, True),
        ("always", True, True, True),
        ("never", True, True, False),
        ("never", False, False, False),
    ],
)
@pytest.mark.parametrize("on_conflict", ["join", "fail"])
def test_a_finished_publication_is_reused_by_policy(
    reuse: str, recorded: bool, wanted: bool, reused: bool, on_conflict: str
) -> None:
    theirs = published(7, reusable=recorded)
    wish = request(id="me", target=target(reuse=reuse, on_conflict=on_conflict))
    expected: Outcome | None = Reused(theirs) if reused else None
    assert answered_by(free(theirs), expecting(wish, reusable=wanted)) == expected


@pytest.mark.parametrize("reuse", ["auto", "always"])
@pytest.mark.parametrize(
    "theirs", [published(7, generation=OTHER_GENERATION), published(7, lost=True)], ids=["another generation", "lost"]
)
def test_what_is_not_there_or_not_the_same_is_never_reused(reuse: str, theirs: Publication) -> None:
    wish = request(id="me", target=target(reuse=reuse))
    assert answered_by(free(theirs), expecting(wish)) is None


def test_a_superseded_publication_is_never_reused() -> None:
    found = free(published(7, generation=OTHER_GENERATION), published(5))
    assert answered_by(found, expecting(request(id="me", target=target(reuse="always")))) is None


def test_force_reuses_nothing() -> None:
    wish = request(id="me", force=True, target=target(reuse="always"))
    assert answered_by(free(published(7)), expecting(wish)) is None


def test_an_empty_register_answers_nobody() -> None:
    assert answered_by(free(), expecting()) is None


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", [8, 9])
def test_a_joiner_raises_the_failure_that_it_waited_for(fence: int) -> None:
    with pytest.raises(errors.QueryUserError) as caught:
        answered_by(free(failure=failed(fence)), expecting(since=8))
    assert (caught.value.query_id, caught.value.reason) == ("q-9", "line 1:8: mismatched input")
    assert caught.value.subject == SLOT


@pytest.mark.parametrize("kind", FailureKind)
def test_a_joiner_raises_every_kind_of_failure(kind: FailureKind) -> None:
    with pytest.raises(errors.QueryFailed):
        answered_by(free(failure=failed(8, kind=kind)), expecting())


@pytest.mark.parametrize(
    ("failure", "wish"),
    [
        (failed(7), JOINER),
        (failed(9, generation=OTHER_GENERATION), JOINER),
        (failed(9), FAILER),
        (failed(9), request(id="me", force=True)),
    ],
    ids=["of before", "another generation", "does not join", "forced"],
)
def test_a_failure_that_the_caller_did_not_wait_for_is_no_answer(failure: Failure, wish: Request) -> None:
    assert answered_by(free(failure=failure), expecting(wish)) is None


def test_a_publication_answers_before_a_failure_does() -> None:
    theirs = published(9)
    assert answered_by(free(theirs, failure=failed(10)), expecting()) == Reused(theirs, joined=True)


# --- what is in flight -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "fence"),
    [
        (None, 1),
        (replace(FREE, fence=7), 8),
        (replace(SUBMITTING, fence=7), 7),
        (replace(RUNNING, fence=7), 7),
        (replace(PUBLISHING, fence=9, publication=replace(PUBLICATION, fence=7)), 7),
    ],
)
def test_the_lowest_fence_that_is_not_finished(found: Register | None, fence: int) -> None:
    assert in_flight(found) == fence


def test_whoever_comes_during_the_swap_joins_that_publication() -> None:
    during = replace(PUBLISHING, fence=9, publication=published(7))
    done = replace(during, state=State.FREE, owner=None, attempt=None)
    assert answered_by(done, expecting(since=in_flight(during), reusable=False)) == Reused(published(7), joined=True)


def test_a_publication_of_ones_own_answers_as_soon_as_it_stands_there_also_while_another_replaces_it() -> None:
    mine = published(7, by="me")
    during = replace(PUBLISHING, fence=8, publication=mine)
    assert answered_by(during, expecting()) is None
    replacing = replace(PUBLISHING, fence=9, publication=published(8), history=(mine,))
    assert answered_by(replacing, expecting()) == Published(mine, attempts=1, superseded=True)
    assert answered_by(replacing, expecting(request(id="another"))) is None


def test_whoever_comes_after_it_does_not() -> None:
    done = free(published(7))
    assert answered_by(done, expecting(since=in_flight(done), reusable=False)) is None


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (FREE, "nobody"),
        (replace(SUBMITTING, fence=7), "process 4711 on worker-1, run run-1, fence 7"),
        (
            replace(RUNNING, fence=7),
            "process 4711 on worker-1, run run-1, query 11111111-2222-3333-4444-555555555555, fence 7",
        ),
        (
            replace(SUBMITTING, owner=replace(OWNER, run=None), attempt=replace(ATTEMPT, query_id=None)),
            "process 4711 on worker-1, fence 7",
        ),
    ],
)
def test_the_holder_is_described_for_people(found: Register, text: str) -> None:
    assert describe(found) == text
