"""How a typed error becomes a failure that Dagster shows, and retries or not."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from athena_assets import errors

_MAY_PASS = (
    errors.OutcomeUnknown,
    errors.ServiceUnavailable,
    errors.SlotBusy,
    errors.ForeignQueryRunning,
    errors.PublicationLost,
    errors.QueryThrottled,
    errors.QueryInternalError,
    errors.ExecutionFailed,
)

_TOLD_IN_FULL = 10  # failed partitions of one step; all of them are in the metadata


def may_pass(error: errors.AthenaAssetsError) -> bool:
    """Whether it may pass without anybody's doing: all that a retry policy applies to.

    Another run of a query that has a mistake, timed out or was cancelled costs money and ends the same way; and a slot
    that is blocked waits for a human.
    """
    return isinstance(error, _MAY_PASS)


def query_of(error: errors.AthenaAssetsError) -> str | None:
    """The query that the error is about, if it is about one."""
    known = errors.QueryFailed | errors.SlotBusy | errors.ForeignQueryRunning
    return error.query_id if isinstance(error, known) else None


def failure(error: errors.AthenaAssetsError, console_url: str | None) -> dg.Failure:
    """A failed step with the error's parts as metadata; raise it `from` the error."""
    metadata: dict[str, dg.MetadataValue] = {
        "athena_assets/error": dg.MetadataValue.text(type(error).__name__),
        "athena_assets/subject": dg.MetadataValue.text(error.subject),
        "athena_assets/next_step": dg.MetadataValue.text(error.next_step),
    }
    query_id = query_of(error)
    if query_id is not None:
        metadata["athena_assets/query_id"] = dg.MetadataValue.text(query_id)
        if console_url is not None:
            metadata["athena_assets/query_console"] = dg.MetadataValue.url(console_url)
    if isinstance(error, errors.SlotBusy):
        metadata["athena_assets/owner"] = dg.MetadataValue.text(error.owner)
    return dg.Failure(f"{type(error).__name__}: {error}", metadata=metadata, allow_retries=may_pass(error))


@contextmanager
def tried_again(policy: dg.RetryPolicy | None, retry_number: int) -> Iterator[None]:
    """Applies a retry policy to a step, as Dagster would, but to nothing that a termination raises.

    Dagster tries a step that has a policy again also when it was interrupted: a run that somebody terminated would
    start its query anew.
    """
    try:
        yield
    except Exception as error:
        lasting = isinstance(error, dg.Failure) and not error.allow_retries
        if policy is None or lasting or retry_number >= policy.max_retries:
            raise
        raise dg.RetryRequested(policy.max_retries, policy.calculate_delay(retry_number + 1)) from error


def failures(failed: Mapping[str, errors.AthenaAssetsError], *, of: int) -> dg.Failure:
    """The one failure of a step in which some of `of` partitions were not published; the others were.

    It is tried again only if every one of them may pass: a retry would run the others' queries for nothing.
    """
    told = [f"{key}: {type(error).__name__}: {error}" for key, error in list(failed.items())[:_TOLD_IN_FULL]]
    if len(failed) > len(told):
        told.append(f"and {len(failed) - len(told)} more: see the metadata.")
    metadata: dict[str, dg.MetadataValue] = {
        "athena_assets/failed_partitions": dg.MetadataValue.json(
            {
                key: {
                    "error": type(error).__name__,
                    "query_id": query_of(error),
                    "next_step": error.next_step,
                }
                for key, error in failed.items()
            }
        )
    }
    description = "\n".join([f"{len(failed)} of {of} partitions were not published.", *told])
    return dg.Failure(description, metadata=metadata, allow_retries=all(may_pass(error) for error in failed.values()))
