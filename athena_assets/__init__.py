"""Publish Amazon Athena query results to S3 exactly once, from Dagster or from plain Python."""

from athena_assets.aws.session import AwsSettings
from athena_assets.core.output import OutputFormat
from athena_assets.core.request import Published, Reused, Skipped
from athena_assets.core.target import OnConflict, Reuse, Target, UpstreamTable
from athena_assets.errors import AthenaAssetsError
from athena_assets.unload import Publisher, read_manifest, unload

__all__ = [
    "AthenaAssetsError",
    "AwsSettings",
    "OnConflict",
    "OutputFormat",
    "Published",
    "Publisher",
    "Reuse",
    "Reused",
    "Skipped",
    "Target",
    "UpstreamTable",
    "read_manifest",
    "unload",
]
