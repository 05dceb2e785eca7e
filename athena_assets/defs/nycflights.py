"""The demo's targets: three results from the flights that left New York in 2013."""

import os
from pathlib import Path

from athena_assets.core.output import OutputFormat
from athena_assets.core.target import Target
from athena_assets.orchestration import unload_assets

BUCKET = os.environ.get("ATHENA_ASSETS_BUCKET", "athena-assets-demo")
FORMATS = {
    "flights_with_carrier": OutputFormat("PARQUET", compression="ZSTD"),
    "daily_delays": OutputFormat("PARQUET", compression="SNAPPY"),
    "airport_traffic": OutputFormat("JSON"),
}

targets = [
    Target(
        name=name,
        query=Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8"),
        location=f"s3://{BUCKET}/published/{name}/",
        database="nycflights",
        output=output,
    )
    for name, output in FORMATS.items()
]

assets = unload_assets(targets, group_name="nycflights", checks=True)
