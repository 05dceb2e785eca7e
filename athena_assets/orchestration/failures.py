"""How a typed error becomes a failure that Dagster shows, and retries or not."""

import dagster as dg

from athena_assets import errors

_MAY_PASS = (
    errors.OutcomeUnknown,
    errors.ServiceUnavailable,
    errors.SlotBusy,
    errors.PublicationLost,
    errors.QueryThrottled,
    errors.QueryInternalError,
)


def failure(error: errors.AthenaAssetsError, console_url: str | None) -> dg.Failure:
    """A failed step with the error's parts as metadata; raise it `from` the error.

    A RetryPolicy of the asset applies to what may pass without anybody's doing, and to nothing else: another run of a
    query that has a mistake, timed out or was cancelled costs money and ends the same way.
    """
    metadata: dict[str, dg.MetadataValue] = {
        "athena_assets/error": dg.MetadataValue.text(type(error).__name__),
        "athena_assets/subject": dg.MetadataValue.text(error.subject),
        "athena_assets/next_step": dg.MetadataValue.text(error.next_step),
    }
    if isinstance(error, errors.QueryFailed | errors.SlotBusy) and error.query_id is not None:
        metadata["athena_assets/query_id"] = dg.MetadataValue.text(error.query_id)
        if console_url is not None:
            metadata["athena_assets/query_console"] = dg.MetadataValue.url(console_url)
    if isinstance(error, errors.SlotBusy):
        metadata["athena_assets/owner"] = dg.MetadataValue.text(error.owner)
    return dg.Failure(f"{type(error).__name__}: {error}", metadata=metadata, allow_retries=isinstance(error, _MAY_PASS))
