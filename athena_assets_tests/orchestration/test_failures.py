"""Which errors a retry policy tries again, and what the failed step shows."""

import pytest

from athena_assets import errors
from athena_assets.orchestration.failures import failure

TEXTS = {"not_done": "Nothing was published.", "next_step": "Try again."}
ALL: set[type[errors.AthenaAssetsError]] = {
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, errors.AthenaAssetsError)
    and kind not in (errors.AthenaAssetsError, errors.QueryFailed)
}
MAY_PASS = {
    errors.OutcomeUnknown,
    errors.ServiceUnavailable,
    errors.SlotBusy,
    errors.PublicationLost,
    errors.QueryThrottled,
    errors.QueryInternalError,
}


def example(kind: type[errors.AthenaAssetsError]) -> errors.AthenaAssetsError:
    if issubclass(kind, errors.InvalidTarget):
        return kind("t", "query", "It is wrong.", "Mend it.")
    if issubclass(kind, errors.SlotBusy):
        return kind("s3://b/p/", "It is held.", owner="process 1 on h", query_id="1234", next_step="Wait.")
    if issubclass(kind, errors.QueryFailed):
        return kind("s3://b/p/", "SYNTAX_ERROR", query_id="1234", next_step="Mend it.")
    return kind("s3://b/p/", "It happened.", **TEXTS)


@pytest.mark.parametrize("kind", sorted(ALL, key=str))
def test_only_what_may_pass_by_itself_is_tried_again(kind: type[errors.AthenaAssetsError]) -> None:
    assert failure(example(kind), None).allow_retries is (kind in MAY_PASS)


@pytest.mark.parametrize("kind", sorted(ALL, key=str))
def test_the_failure_says_what_the_error_says(kind: type[errors.AthenaAssetsError]) -> None:
    error = example(kind)
    shown = failure(error, None)
    assert shown.description == f"{kind.__name__}: {error}"
    assert shown.metadata["athena_assets/next_step"].value == error.next_step


def test_a_failed_query_is_linked_to() -> None:
    shown = failure(example(errors.QueryUserError), "https://example.test/1234").metadata
    assert shown["athena_assets/query_id"].value == "1234"
    assert shown["athena_assets/query_console"].value == "https://example.test/1234"


def test_a_busy_slot_names_its_owner() -> None:
    assert failure(example(errors.SlotBusy), None).metadata["athena_assets/owner"].value == "process 1 on h"
