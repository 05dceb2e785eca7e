"""Each protective rule, removed from a copy of the source, violates a named invariant: so the explorer would see it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import athena_assets
from athena_assets_tests.simulation.gate import MUTATIONS, DoesNotApply, Mutation, apply

PACKAGE = Path(athena_assets.__file__).parent
TESTS = Path(__file__).parents[1]
IN_EVERY_RUN = ("no write_id", "one's own 412", "callers are answered", "staging sources")


def explored(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "athena_assets_tests.simulation", *arguments]
    return subprocess.run(
        command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )


def copied(root: Path) -> Path:
    """A copy of the package and of the explorer; returns its `core`."""
    shutil.copytree(PACKAGE, root / "athena_assets", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "athena_assets_tests").mkdir()
    shutil.copy(TESTS / "__init__.py", root / "athena_assets_tests")
    shutil.copytree(TESTS / "simulation", root / "athena_assets_tests" / "simulation")
    return root / "athena_assets" / "core"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(each, id=each.rule, marks=() if each.rule.startswith(IN_EVERY_RUN) else pytest.mark.long)
        for each in MUTATIONS
    ],
)
def test_a_rule_removed_violates_an_invariant(mutation: Mutation, tmp_path: Path) -> None:
    apply(mutation, copied(tmp_path))
    found = explored(tmp_path, mutation.scenario, "--json")
    assert found.returncode == 1, found.stdout + found.stderr
    told = json.loads(found.stdout)
    assert told["invariant"] in mutation.invariants, told
    assert told["trace"]
    (tmp_path / "trace.json").write_text(found.stdout)
    again = explored(tmp_path, "--replay", "trace.json")
    assert again.returncode == 1, again.stderr
    assert again.stdout == f"{told['invariant']}: {told['what']}\n"


@pytest.mark.parametrize(
    "edits",
    [(), (("tenure.py", "no such text", ""),), (("tenure.py", "import", ""),)],
    ids=["none", "absent", "ambiguous"],
)
def test_an_edit_that_does_not_apply_fails_the_gate(tmp_path: Path, edits: tuple[tuple[str, str, str], ...]) -> None:
    core = copied(tmp_path)
    with pytest.raises(DoesNotApply):
        apply(Mutation("any", "any", frozenset(), edits), core)
