"""What Dagster loads: the targets in defs/, and the resource that publishes them.

Three environment variables say where: ATHENA_ASSETS_BUCKET, ATHENA_ASSETS_WORKGROUP and ATHENA_ASSETS_OUTPUT_LOCATION.
Region, credentials and endpoint are those that AWS SDKs read (AWS_REGION and so on). Nothing is called while loading.
"""

import os
import warnings
from pathlib import Path

import dagster as dg

import athena_assets.defs
from athena_assets.orchestration import AthenaUnloadResource


@dg.definitions
def defs() -> dg.Definitions:
    bucket = os.environ.get("ATHENA_ASSETS_BUCKET", "athena-assets-demo")
    athena = AthenaUnloadResource(
        workgroup=os.environ.get("ATHENA_ASSETS_WORKGROUP", "primary"),
        output_location=os.environ.get("ATHENA_ASSETS_OUTPUT_LOCATION", f"s3://{bucket}/athena-results/"),
    )
    return dg.Definitions.merge(
        _targets(),
        # Steps in the run's own process: a run that is killed leaves none behind, and a run starts seconds sooner.
        dg.Definitions(resources={"athena": athena}, executor=dg.in_process_executor),
    )


def _targets() -> dg.Definitions:
    """Everything in defs/, as load_from_defs_folder finds it.

    That one looks for a pyproject.toml above the package, and an installed wheel has none.
    """
    tree = dg.ComponentTree.from_module(athena_assets.defs, project_root=Path(__file__).parents[1])
    with warnings.catch_warnings():
        for category in (dg.PreviewWarning, dg.BetaWarning):  # of what Dagster itself calls here
            warnings.simplefilter("ignore", category)
        return tree.build_defs()
