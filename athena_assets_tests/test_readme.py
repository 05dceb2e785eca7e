"""The README: its code runs, its tests exist, its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from athena_assets_tests.e2e.conftest import lake, server  # noqa: F401 - fixtures
from athena_assets_tests.e2e.lake import Lake
from athena_assets_tests.orchestration.yaml_defs import load_text

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/guarantees.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / page).read_text(encoding="utf-8")))
    defined = {
        name
        for path in (ROOT / "athena_assets_tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) > 10
    assert named <= defined


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)", README))
def test_every_link_of_the_readme_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_readmes_code_runs(lake: Lake, number: int) -> None:  # noqa: F811
    code = BLOCKS[number].replace("my-bucket", lake.bucket).replace('"lake"', repr(lake.database))
    if "Definitions" in code:
        code += "\nassert defs.resolve_asset_graph().get_all_asset_keys()\n"
        code += "assert dg.materialize(list(defs.assets), resources=defs.resources).success\n"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | lake.aws.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lake.assert_published_once(f"s3://{lake.bucket}/published/daily_numbers/", range(10))


def test_the_readmes_yaml_declares_the_target_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_BUCKET", "my-bucket")
    [block] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    loaded = load_text(block, daily_numbers="SELECT n FROM numbers WHERE n < 10")
    namespace: dict[str, Any] = {}
    exec(next(each for each in BLOCKS if "Definitions" in each), namespace)
    assert loaded.targets == namespace["targets"]
    assert [each.name for each in loaded.own.sensors or ()] == ["lake_tables"]
