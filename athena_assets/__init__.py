"""Publish Amazon Athena query results to S3 exactly once, from Dagster or from plain Python."""

from importlib import import_module
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from athena_assets.orchestration.component import AthenaUnloadComponent as AthenaUnloadComponent
else:
    # `dg` calls the component by this short name. Whoever does without Dagster does not wait for its import.
    def __getattr__(name: str) -> object:
        if name != "AthenaUnloadComponent":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module("athena_assets.orchestration.component").AthenaUnloadComponent

    def __dir__() -> list[str]:
        return [*globals(), "AthenaUnloadComponent"]
