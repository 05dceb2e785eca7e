"""`make lambda`: the zip holds all that the function imports, and nothing that it can't."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from athena_assets_tests.deploy.template import STEP_FUNCTIONS_YAML, load_template

SCRIPT = STEP_FUNCTIONS_YAML.with_name("step_functions_zip.py")
AT_FIRST_USE = {"athena_assets.orchestration.component"}
"""What `athena_assets` imports only for those who ask for it; it needs Dagster."""

IMPORT_ALL = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
import boto3
for service in ("athena", "glue", "s3"):
    boto3.client(service, region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")
from athena_assets import Target
from athena_assets.sql import inspect_query
inspect_query(Target(name="daily", query="SELECT id FROM sales.orders", location="s3://lake/published/daily/"))
print(json.dumps([[name, getattr(module, "__file__", None)] for name, module in sys.modules.items()]))
"""


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("step_functions_zip", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def modules(script: ModuleType) -> dict[str, bytes]:
    """The project's modules in the zip, and their sources."""
    return {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): source
        for path, source in script.project_files()
        if path.endswith(".py")
    }


def imports(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_what_the_functions_modules_import_of_the_project_is_with_them(script: ModuleType) -> None:
    included = modules(script)
    assert {"athena_assets.unload", "athena_assets.core.protocol", "athena_assets.aws.driver"} <= included.keys()
    wanted = {name for source in included.values() for name in imports(source) if name.startswith("athena_assets")}
    assert wanted - AT_FIRST_USE <= included.keys()


def test_it_is_made_for_the_runtime_of_the_template(script: ModuleType) -> None:
    function = load_template(STEP_FUNCTIONS_YAML)["Resources"]["Function"]["Properties"]
    assert function["Runtime"] == f"python{script.RUNTIME['python_version']}"
    assert function["Architectures"] == [{"aarch64": "arm64", "x86_64": "x86_64"}[script.RUNTIME["platform_machine"]]]


def distribution_at(folder: Path, tag: str, digest: str) -> Distribution:
    info = folder / "thing-1.dist-info"
    info.mkdir()
    (folder / "thing.py").write_text("x = 1\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
    (info / "RECORD").write_text(f"thing.py,sha256={digest},6\n../../bin/thing,,\nthing-1.dist-info/RECORD,,\n")
    return Distribution.at(info)


def digest_of(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("tag", "digest", "taken"),
    [
        ("py3-none-any", digest_of("x = 1\n"), True),
        ("py2.py3-none-any", digest_of("x = 1\n"), True),
        ("cp311-cp311-manylinux_2_17_x86_64", digest_of("x = 1\n"), False),
        ("py3-none-any", digest_of("x = 2\n"), False),
    ],
)
def test_only_pure_python_as_it_was_installed_is_taken(
    script: ModuleType, tmp_path: Path, tag: str, digest: str, taken: bool
) -> None:
    installed = distribution_at(tmp_path, tag, digest)
    if taken:
        assert dict(script.files_of(installed)) == {"thing.py": b"x = 1\n"}
        return
    with pytest.raises(script.NotBuilt, match="thing"):
        list(script.files_of(installed))


@pytest.mark.long
def test_the_zip_suffices_without_dagster_and_is_the_same_each_time(script: ModuleType, tmp_path: Path) -> None:
    path, again = tmp_path / "build" / "one.zip", tmp_path / "two.zip"
    for each in (path, again):
        subprocess.run([sys.executable, str(SCRIPT), str(each)], check=True, capture_output=True)
    assert path.read_bytes() == again.read_bytes()

    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(path) as archive:
        assert sum(each.file_size for each in archive.infolist()) < script.LIMIT / 4
        assert not [each.filename for each in archive.infolist() if each.filename.endswith((".so", ".pyc"))]
        archive.extractall(unpacked)
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", IMPORT_ALL, str(unpacked), *modules(script)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    loaded: dict[str, str | None] = dict(json.loads(run.stdout))
    assert {"athena_assets.aws.driver", "athena_assets.sql", "botocore", "sqlglot"} <= loaded.keys()
    assert not [name for name in loaded if name.startswith(("dagster", "pyarrow", "moto"))]
    foreign = [
        name
        for name, file in loaded.items()
        if file and not file.startswith(str(unpacked)) and name.split(".")[0] not in sys.stdlib_module_names
    ]
    assert foreign == []
