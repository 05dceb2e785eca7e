"""What `dg scaffold defs athena_assets.AthenaUnloadComponent NAME` writes."""

from itertools import count
from pathlib import Path
from typing import Any

import dagster as dg

_QUERY = """\
-- Sent to Athena as it is, but for placeholders: see docs/targets.md.
SELECT 1 AS one
"""

_PYTHON = """\
import os

import dagster as dg
from {module} import {name}
from athena_assets.orchestration import UnloadTarget

BUCKET = os.environ.get("ATHENA_ASSETS_BUCKET", "change-me")


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> {name}:
    return {name}(
        database="default",
        location_prefix=f"s3://{{BUCKET}}/published/",
        checks=True,
        targets=[UnloadTarget(name="{target}", sql_file="{target}.sql")],
    )
"""


class UnloadScaffolder(dg.Scaffolder):
    """One target, which loads at once, to be edited. A file that is there is kept."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        folder = request.target_path.parent if request.append else request.target_path
        target = _free_name(folder)
        (folder / f"{target}.sql").write_text(_QUERY, encoding="utf-8")
        if request.scaffold_format == "python":
            module, _, name = request.type_name.rpartition(".")
            text = _PYTHON.format(module=module, name=name, target=target)
            (folder / "component.py").write_text(text, encoding="utf-8")
            return
        attributes = {
            "database": "default",
            "location_prefix": "s3://{{ env('ATHENA_ASSETS_BUCKET', 'change-me') }}/published/",
            "checks": True,
            "targets": [{"name": target, "sql_file": f"{target}.sql"}],
        }
        dg.scaffold_component(request, attributes)


def _free_name(folder: Path) -> str:
    """The folder's, as far as a target may be called so, with a number if there is such a file already."""
    name = "".join(each if each.isascii() and each.isalnum() else "_" for each in folder.name)
    names = (name if number == 1 else f"{name}_{number}" for number in count(1))
    return next(each for each in names if not (folder / f"{each}.sql").exists())
