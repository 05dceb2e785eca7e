"""Errors: each says what happened, what was not done and the next step, and survives a process boundary."""

import copy
import pickle
from collections.abc import Iterator

import pytest

from athena_assets import errors
from athena_assets.errors import AthenaAssetsError, InvalidTarget, QueryFailed, SlotBusy

SLOT = "s3://lake/daily/"


def subclasses(kind: type[AthenaAssetsError]) -> Iterator[type[AthenaAssetsError]]:
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from subclasses(each)


def example(kind: type[AthenaAssetsError]) -> AthenaAssetsError:
    if issubclass(kind, InvalidTarget):
        return kind("daily", "query", "It is empty.", "Write it.")
    if issubclass(kind, SlotBusy):
        return kind(SLOT, "It is held.", owner="process 1 on host", query_id="q-1", next_step="Wait.")
    if issubclass(kind, errors.ForeignQueryRunning):
        return kind(
            SLOT, "It runs.", query_id="q-1", workgroup="etl", not_done="Nothing was done.", next_step="Stop it."
        )
    if issubclass(kind, QueryFailed):
        return kind(SLOT, "SYNTAX_ERROR: no", query_id="q-1", next_step="Correct it.")
    return kind(SLOT, "It broke.", not_done="Nothing was done.", next_step="Mend it.")


ALL = sorted(set(subclasses(AthenaAssetsError)), key=lambda kind: kind.__name__)


def test_all_errors_of_the_module_are_here() -> None:
    public = {value for name, value in vars(errors).items() if isinstance(value, type) and not name.startswith("_")}
    assert set(ALL) == public
    assert len(ALL) == 35


@pytest.mark.parametrize("kind", ALL)
def test_the_message_says_what_happened_what_was_not_done_and_the_next_step(kind: type[AthenaAssetsError]) -> None:
    error = example(kind)
    for part in (error.subject, error.what, error.not_done, error.next_step):
        assert part
        assert part in str(error)
    assert str(error) == f"{error.subject}: {error.what} {error.not_done} {error.next_step}"


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_a_process_boundary(kind: type[AthenaAssetsError], protocol: int) -> None:
    error = example(kind)
    error.add_note("seen by a test")
    found = pickle.loads(pickle.dumps(error, protocol))
    assert type(found) is kind
    assert str(found) == str(error)
    assert found.args == error.args
    assert vars(found) == vars(error)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_can_be_copied(kind: type[AthenaAssetsError]) -> None:
    assert vars(copy.deepcopy(example(kind))) == vars(example(kind))


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_documented(kind: type[AthenaAssetsError]) -> None:
    assert kind.__doc__
    assert "__doc__" in vars(kind)


def test_a_failed_query_names_its_id_or_says_that_it_never_started() -> None:
    started = QueryFailed(SLOT, "no", query_id="q-1", next_step="Go on.")
    refused = QueryFailed(SLOT, "no", query_id=None, next_step="Go on.")
    assert "query q-1: no" in str(started)
    assert "it was not started" in str(refused)
    assert (started.query_id, refused.query_id) == ("q-1", None)


def test_wrong_input_is_a_value_error_and_the_rest_is_not() -> None:
    assert {kind for kind in ALL if issubclass(kind, ValueError)} == {errors.InvalidTarget, errors.RequestConflict}


def test_an_invalid_target_names_target_and_field() -> None:
    error = InvalidTarget("daily", "query", "it is empty.", "Write it.")
    assert (error.target, error.field, error.subject) == ("daily", "query", "target 'daily', query")


def test_a_busy_slot_names_its_owner_and_query() -> None:
    error = SlotBusy(SLOT, "It is held.", owner="process 1", query_id=None, next_step="Wait.")
    assert (error.owner, error.query_id) == ("process 1", None)
