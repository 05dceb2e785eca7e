"""What the project's files promise about each other: locks, and rules that neither ruff nor import-linter can state."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())
LOCKS = ("build", "dev", "local")


def locked(name: str) -> dict[str, str]:
    """What the lock pins for this interpreter and platform: versions by name."""
    pins: dict[str, str] = {}
    for line in (PROJECT / "requirements" / f"{name}.lock").read_text().splitlines():
        if pin := re.match(r"(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; (?P<marker>.+?))? \\$", line):
            if pin["marker"] is None or Marker(pin["marker"]).evaluate():
                pins[canonicalize_name(pin["name"])] = pin["version"]
        else:
            assert not line or line.startswith(("#", "    #", "    --hash=sha256:")), line
    return pins


def closure(*extras: str) -> dict[str, list[Requirement]]:
    """All that the project and these extras of it need here, by name, with every demand that is made on it."""
    excluded = {canonicalize_name(name) for name in PYPROJECT["tool"]["uv"]["exclude-dependencies"]}
    demands: dict[str, list[Requirement]] = {}
    seen: set[tuple[str, str]] = set()
    pending = [(Requirement("athena_assets"), extra) for extra in ("", *extras)]
    while pending:
        requirement, extra = pending.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for wanted in requirements_of(name, extra):
            if canonicalize_name(wanted.name) not in excluded:
                demands.setdefault(canonicalize_name(wanted.name), []).append(wanted)
                pending += [(wanted, extra) for extra in ("", *wanted.extras)]
    demands.pop("athena-assets", None)
    return demands


def requirements_of(name: str, extra: str) -> list[Requirement]:
    project = PYPROJECT["project"]
    if name == "athena-assets":
        return [
            Requirement(text)
            for text in (project["optional-dependencies"][extra] if extra else project["dependencies"])
        ]
    found = [Requirement(text) for text in importlib.metadata.requires(name) or []]
    return [wanted for wanted in found if wanted.marker is None or wanted.marker.evaluate({"extra": extra})]


@pytest.mark.parametrize(("lock", "extra"), [("local", "local"), ("dev", "dev")])
def test_a_lock_pins_what_pyproject_asks_for_and_nothing_else(lock: str, extra: str) -> None:
    pins, demands = locked(lock), closure(extra)
    assert sorted(pins) == sorted(demands), "run `make lock`"
    for name, requirements in demands.items():
        for requirement in requirements:
            assert requirement.specifier.contains(pins[name], prereleases=True), f"{requirement}: run `make lock`"


def test_the_dev_lock_contains_the_local_lock() -> None:
    assert locked("local").items() <= locked("dev").items()


def test_what_runs_here_is_what_is_locked() -> None:
    pins = locked("build") | locked("dev")
    assert {name: importlib.metadata.version(name) for name in pins} == pins


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_its_hashes_and_no_address(lock: str) -> None:
    text = (PROJECT / "requirements" / f"{lock}.lock").read_text()
    pins = re.findall(r"^[\w.-]+==", text, re.MULTILINE)
    hashed = re.findall(r"^[\w.-]+==.* \\\n    --hash=sha256:[0-9a-f]{64}\b", text, re.MULTILINE)
    assert len(pins) == len(hashed) > 0
    assert not re.search(r"://|index-url|find-links|file:", text)


def test_the_core_imports_the_standard_library_and_itself_only() -> None:
    for path in sorted((PROJECT / "athena_assets" / "core").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for module in modules:
                ours = f"{module}.".startswith(("athena_assets.core.", "athena_assets.errors."))
                assert ours or module.split(".")[0] in sys.stdlib_module_names, f"{path}:{node.lineno} imports {module}"


def test_annotations_that_dagster_reads_are_not_strings() -> None:
    package = PROJECT / "athena_assets"
    read_by_dagster = [
        *package.glob("orchestration/**/*.py"),
        *package.glob("defs/**/*.py"),
        *package.glob("definitions.py"),
    ]
    for path in read_by_dagster:
        assert "from __future__ import annotations" not in path.read_text().splitlines(), path
