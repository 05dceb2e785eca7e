"""The demo's targets. Dagster reads defs.yaml by itself; `targets` is for the command line `athena-assets`."""

from pathlib import Path

from athena_assets.orchestration import AthenaUnloadComponent

targets = AthenaUnloadComponent.targets_in(Path(__file__).with_name("defs.yaml"))
