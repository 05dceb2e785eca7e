"""The commands of `dg`, in processes of their own: on this project, and on a project that has just been made."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
DG = shutil.which("dg", path=Path(sys.executable).parent)
PYPROJECT = """\
[project]
name = "my_lake"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "my_lake"
"""
WRONG_FIELD = """\
type: athena_assets.AthenaUnloadComponent
attributes:
  targets:
    - name: numbers
      qeury: SELECT 1
"""
DEFINITIONS = """\
from pathlib import Path

import dagster as dg
from athena_assets.orchestration import AthenaUnloadResource


@dg.definitions
def defs() -> dg.Definitions:
    resources = dg.Definitions(resources={"athena": AthenaUnloadResource()})
    return dg.Definitions.merge(dg.load_from_defs_folder(path_within_project=Path(__file__).parent), resources)
"""


def command(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`dg` in a project's folder, where no AWS can be reached."""
    assert DG is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "VIRTUAL_ENV"))}
    environment |= {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "PYTHONPATH": f"{folder}{os.pathsep}{PROJECT}"}
    return subprocess.run(
        [DG, *arguments],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def passed(folder: Path, *arguments: str, **variables: str) -> str:
    done = command(folder, *arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A project without any target."""
    package = tmp_path / "my_lake"
    (package / "defs").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").touch()
    (package / "defs" / "__init__.py").touch()
    (package / "definitions.py").write_text(DEFINITIONS)
    return tmp_path


def listed(folder: Path, **variables: str) -> dict[str, dict[str, Any]]:
    found = json.loads(passed(folder, "list", "defs", "--json", **variables))
    return {each["asset_key"]: each for each in found["assets"]}


@pytest.mark.long
def test_the_projects_yaml_and_definitions_pass_dg_check() -> None:
    assert "All component YAML validated successfully" in passed(PROJECT, "check", "yaml")
    assert "All definitions loaded successfully" in passed(PROJECT, "check", "defs")


@pytest.mark.long
def test_dg_lists_the_component_with_its_schema() -> None:
    components = json.loads(passed(PROJECT, "list", "components", "--json"))["items"]
    assert "athena_assets.AthenaUnloadComponent" in {each["key"] for each in components}
    assert "location_prefix" in passed(PROJECT, "utils", "inspect-component", "athena_assets.AthenaUnloadComponent")


@pytest.mark.long
def test_what_dg_scaffolds_loads_and_can_be_edited(lake: Path) -> None:
    passed(lake, "scaffold", "defs", "athena_assets.AthenaUnloadComponent", "numbers")
    folder = lake / "my_lake" / "defs" / "numbers"
    assert {each.name for each in folder.iterdir()} >= {"defs.yaml", "numbers.sql"}
    passed(lake, "check", "yaml")
    assert list(listed(lake)) == ["numbers"]

    (folder / "numbers.sql").write_text("SELECT id FROM orders")
    yaml = (folder / "defs.yaml").read_text()
    assert yaml.count("database: default") == 1
    (folder / "defs.yaml").write_text(yaml.replace("database: default", "database: sales\n  group_name: mart"))
    assets = listed(lake, ATHENA_ASSETS_BUCKET="prod-lake")
    assert assets["numbers"]["group_name"] == "mart"
    assert assets["numbers"]["dependency_keys"] == ["sales/orders"]
    assert "s3://prod-lake/published/numbers/" in assets["numbers"]["description"]
    assert {"athena", "s3", "parquet"} == set(assets["numbers"]["kinds"])


@pytest.mark.long
def test_a_mistake_is_told_by_dg_with_its_place(lake: Path) -> None:
    folder = lake / "my_lake" / "defs" / "numbers"
    folder.mkdir()
    said = WRONG_FIELD
    (folder / "defs.yaml").write_text(said)
    checked = command(lake, "check", "yaml")
    assert checked.returncode == 1
    assert "defs.yaml:3" in checked.stdout + checked.stderr  # of what stands in a list `dg` tells the list's place
    checked = command(lake, "check", "defs", "--no-check-yaml")
    assert checked.returncode == 1
    assert "qeury at" in checked.stdout + checked.stderr

    (folder / "defs.yaml").write_text(said.replace("qeury: SELECT 1", "query: DELETE FROM t"))
    checked = command(lake, "check", "defs")
    assert checked.returncode == 1
    told = " ".join((checked.stdout + checked.stderr).split())
    assert "target 'numbers', location in" in told
    assert str(folder / "defs.yaml") in told


READER = """\
type: athena_assets.AthenaUnloadComponent
attributes:
  location_prefix: s3://lake/{0}/
  targets: [{{name: {1}, query: SELECT id FROM sales.orders}}]
"""


@pytest.mark.long
def test_two_components_that_read_one_table_pass_dg_check_and_one_place_for_both_does_not(lake: Path) -> None:
    files = [lake / "my_lake" / "defs" / name / "defs.yaml" for name in ("first", "second")]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(READER.format(f"of_{number}", f"target_{number}"))
    passed(lake, "check", "yaml")
    assert "All definitions loaded successfully" in passed(lake, "check", "defs")
    assets = listed(lake)
    assert assets["sales/orders"]["kinds"] == ["glue", "table"]
    assert {name for name, each in assets.items() if "athena" in each["kinds"]} == {"target_0", "target_1"}

    files[1].write_text(READER.format("of_0/target_0", "target_1"))
    checked = command(lake, "check", "defs")
    assert checked.returncode == 1
    told = "".join((checked.stdout + checked.stderr).split())
    assert "overlapss3://lake/of_0/target_0/" in told
    assert all(str(file) in told for file in files)
