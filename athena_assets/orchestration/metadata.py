"""What a materialization says about itself.

Three groups of keys, so that sums over materializations come out right:

- about the request: `request_id`, `mode`, `reused`, `attempts`, `waited_seconds`, `cost_estimate_usd`, and `execution`
  and `execution_console` where a Step Functions execution ran it;
- about the publication that it got: `generation`, `published_at`, `rows`, `files`, `bytes`, `preview`, `s3_console`,
  the `dagster/` keys, and `restored_from_fence` if it is a kept result that was brought back;
- about the query that made that publication, `query_*`. With `reused` true, that query was started for
  `reused_from_request` in `reused_from_run`, and its bytes and seconds are not this request's.

What is not known is left out.
"""

import math
import uuid

import dagster as dg

from athena_assets.aws.result_files import Sample
from athena_assets.core.register import Publication
from athena_assets.core.request import Published, Reused, Skipped
from athena_assets.core.target import Target
from athena_assets.orchestration.preview import markdown

Metadata = dict[str, dg.MetadataValue]

USD_PER_TB = 5.0
_TB = 2**40
_MB = 2**20
_LEAST_MB = 10


def outcome_metadata(
    outcome: Published | Reused,
    *,
    target: Target,
    request_id: str,
    partition: str | None,
    query_console: str | None,
    s3_console: str | None,
    sample: Sample | None,
    execution_console: str | None = None,
) -> Metadata:
    """Every figure that the outcome holds, typed for Dagster's UI; keys as in the module's text.

    Args:
        target: what was published.
        request_id: this request's id.
        partition: its key, which decides between `dagster/partition_row_count` and `dagster/row_count`.
        query_console: the query in the Athena console, if it can be linked to.
        s3_console: the location in the S3 console, likewise.
        sample: columns and first rows that were read from a published file.
        execution_console: the execution in the Step Functions console, if one ran this request.
    """
    publication = outcome.publication
    statistics = publication.statistics
    preview = None if sample is None else markdown(sample)
    row_count = "dagster/row_count" if partition is None else "dagster/partition_row_count"
    known: dict[str, dg.MetadataValue | None] = {
        "dagster/uri": dg.MetadataValue.text(_uri(target, publication, partition)),
        "dagster/table_name": None if target.glue_table is None else dg.MetadataValue.text(target.glue_table),
        row_count: _int(publication.rows),
        "dagster/column_schema": None if sample is None else _schema(sample),
        "athena_assets/request_id": dg.MetadataValue.text(request_id),
        "athena_assets/mode": dg.MetadataValue.text(str(target.mode)),
        **_request(outcome),
        "athena_assets/generation": dg.MetadataValue.text(publication.generation),
        "athena_assets/published_at": dg.MetadataValue.timestamp(publication.at),
        "athena_assets/restored_from_fence": _int(publication.restored),
        "athena_assets/rows": _int(publication.rows),
        "athena_assets/files": _int(publication.files),
        "athena_assets/bytes": _int(publication.bytes),
        "athena_assets/query_id": dg.MetadataValue.text(publication.query_id),
        "athena_assets/query_console": _link(query_console),
        "athena_assets/s3_console": _link(s3_console),
        "athena_assets/execution": None if outcome.execution is None else dg.MetadataValue.text(outcome.execution),
        "athena_assets/execution_console": _link(execution_console),
        "athena_assets/preview": None if preview is None else dg.MetadataValue.md(preview),
        "athena_assets/query_bytes_scanned": _int(statistics.bytes_scanned),
        "athena_assets/query_queue_seconds": _seconds(statistics.queue_ms),
        "athena_assets/query_engine_seconds": _seconds(statistics.engine_ms),
        "athena_assets/query_total_seconds": _seconds(statistics.total_ms),
    }
    return {key: value for key, value in known.items() if value is not None}


def _uri(target: Target, publication: Publication, partition: str | None) -> str:
    """Where this publication is read: the location, or in pointer mode its directory."""
    location = target.location_for(partition)
    return str(location) if publication.directory is None else f"s3://{location.bucket}/{publication.directory}"


def skipped_metadata(outcome: Skipped, *, request_id: str, console_url: str | None) -> Metadata:
    """Who holds the slot, for the observation of an asset that was skipped."""
    known: dict[str, dg.MetadataValue | None] = {
        "athena_assets/skipped": dg.MetadataValue.bool(True),
        "athena_assets/request_id": dg.MetadataValue.text(request_id),
        "athena_assets/owner": dg.MetadataValue.text(outcome.owner),
        "athena_assets/query_id": None if outcome.query_id is None else dg.MetadataValue.text(outcome.query_id),
        "athena_assets/query_console": _link(console_url),
    }
    return {key: value for key, value in known.items() if value is not None}


def _request(outcome: Published | Reused) -> dict[str, dg.MetadataValue | None]:
    publication = outcome.publication
    common: dict[str, dg.MetadataValue | None] = {
        "athena_assets/reused": dg.MetadataValue.bool(isinstance(outcome, Reused)),
        "athena_assets/waited_seconds": dg.MetadataValue.float(round(outcome.waited, 3)),
        "athena_assets/superseded": dg.MetadataValue.bool(True) if outcome.superseded else None,
    }
    if isinstance(outcome, Reused):
        return common | {
            "athena_assets/reused_from_run": None if publication.run is None else _run(publication.run),
            "athena_assets/reused_from_request": dg.MetadataValue.text(publication.request),
            "athena_assets/joined": dg.MetadataValue.bool(outcome.joined),
            "athena_assets/attempts": dg.MetadataValue.int(0),
            "athena_assets/cost_estimate_usd": dg.MetadataValue.float(0.0),
        }
    scanned = publication.statistics.bytes_scanned
    return common | {
        "athena_assets/adopted": dg.MetadataValue.bool(True) if outcome.adopted else None,
        "athena_assets/attempts": dg.MetadataValue.int(outcome.attempts),
        "athena_assets/cost_estimate_usd": None
        if scanned is None
        else dg.MetadataValue.float(cost_estimate_usd(scanned)),
    }


def cost_estimate_usd(bytes_scanned: int) -> float:
    """What the query cost at the public price of us-east-1: 5 USD per TB scanned, whole MB, at least 10 MB.

    Other regions have other prices, and provisioned capacity is not paid by the byte. The page does not say how many
    bytes its TB has; 2^40 is taken. Failed queries are free, so earlier attempts add nothing. Source: Amazon Athena
    pricing page.
    """
    megabytes = max(_LEAST_MB, math.ceil(bytes_scanned / _MB))
    return megabytes * _MB / _TB * USD_PER_TB


def _schema(sample: Sample) -> dg.MetadataValue | None:
    if sample.columns is None:
        return None
    return dg.MetadataValue.table_schema(
        dg.TableSchema([dg.TableColumn(each.name, each.type) for each in sample.columns])
    )


def _link(url: str | None) -> dg.MetadataValue | None:
    return None if url is None else dg.MetadataValue.url(url)


def _int(value: int | None) -> dg.MetadataValue | None:
    return None if value is None else dg.MetadataValue.int(value)


def _seconds(milliseconds: int | None) -> dg.MetadataValue | None:
    return None if milliseconds is None else dg.MetadataValue.float(milliseconds / 1000)


def _run(run: str) -> dg.MetadataValue:
    """A link if it can be a Dagster run; callers without Dagster may record any text."""
    try:
        uuid.UUID(run)
    except ValueError:
        return dg.MetadataValue.text(run)
    return dg.MetadataValue.dagster_run(run)
