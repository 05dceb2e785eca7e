"""The command line: `athena-assets`, or `python -m athena_assets.cli`. It works without Dagster."""

from athena_assets.cli.main import main, run

__all__ = ["main", "run"]
