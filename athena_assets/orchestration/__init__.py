"""Dagster assets that are Athena UNLOADs."""

from athena_assets.orchestration.assets import UnloadConfig, build_unload_asset, unload_assets
from athena_assets.orchestration.checks import build_unload_checks
from athena_assets.orchestration.resource import AthenaUnloadResource
from athena_assets.orchestration.upstream import build_upstream_sensor

__all__ = [
    "AthenaUnloadResource",
    "UnloadConfig",
    "build_unload_asset",
    "build_unload_checks",
    "build_upstream_sensor",
    "unload_assets",
]
