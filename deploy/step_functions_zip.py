"""Builds the zip of the Lambda function: `make lambda`.

The project's modules that the handler imports, and the distributions that those need, as installed here. Nothing is
downloaded: pip has compared each wheel with its hash in the lock, and each file is compared here with its hash in the
wheel's own list. Only pure Python is taken, so that it matters neither for which platform it was installed nor by
which Python. The same lock and the same sources make the same bytes, given the same zlib.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[1]
ROOTS = ("boto3", "sqlglot")
"""Of the project's dependencies, those that its modules below import."""

MODULES = ("__init__.py", "errors.py", "sql.py", "unload.py", "core", "aws", "step_functions")

RUNTIME = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "aarch64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.13.0",
    "python_version": "3.13",
    "sys_platform": "linux",
}
"""Where the function runs: deploy/step_functions.yaml."""

LIMIT = 262_144_000
"""Bytes that a function may have unzipped (Lambda, "Quotas")."""

_NOT_NEEDED = re.compile(r"\.pyc$|^\.\.|^[^/]+\.dist-info/(INSTALLER|RECORD|REQUESTED|direct_url\.json)$")
_STAMP = (1980, 1, 1, 0, 0, 0)


class NotBuilt(Exception):
    """What is installed is not what the function must have."""


def main(path: Path) -> None:
    files = dict(sorted([*project_files(), *(each for found in needed() for each in files_of(found))]))
    size = sum(len(content) for content in files.values())
    if size > LIMIT:
        raise NotBuilt(f"{size:,} bytes unzipped; Lambda takes {LIMIT:,}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _STAMP)
            entry.external_attr = 0o100644 << 16  # Lambda's user must be able to read it
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f"{path}: {path.stat().st_size:,} bytes, {size:,} unzipped, SHA-256 {digest}")


def project_files() -> Iterator[tuple[str, bytes]]:
    package = PROJECT / "athena_assets"
    for module in MODULES:
        found = package / module
        for path in sorted(found.rglob("*.py")) if found.is_dir() else [found]:
            yield path.relative_to(PROJECT).as_posix(), path.read_bytes()
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    metadata = f"Metadata-Version: 2.1\nName: athena_assets\nVersion: {version}\n"
    yield f"athena_assets-{version}.dist-info/METADATA", metadata.encode()


def needed() -> list[Distribution]:
    """`ROOTS` and all that they need at run time, in the versions of the lock."""
    locked = dict(
        re.findall(
            r"^([\w.-]+)==(\S+)", (PROJECT / "requirements/local.lock").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    pins = {canonicalize_name(name): version for name, version in locked.items()}
    environment = {**RUNTIME, "extra": ""}
    found: dict[str, Distribution] = {}
    pending = [Requirement(name) for name in ROOTS]
    while pending:
        name = canonicalize_name(pending.pop().name)
        if name in found:
            continue
        found[name] = installed = distribution(name)
        if installed.version != pins.get(name):
            raise NotBuilt(f"{name} {installed.version} is installed, {pins.get(name)} is locked.")
        wanted = [Requirement(text) for text in installed.requires or []]
        pending += [each for each in wanted if each.marker is None or each.marker.evaluate(environment)]
    return [found[name] for name in sorted(found)]


def files_of(installed: Distribution) -> Iterator[tuple[str, bytes]]:
    name = installed.metadata["Name"]
    if not re.search(r"^Tag: \S*py3-none-any$", installed.read_text("WHEEL") or "", re.MULTILINE):
        raise NotBuilt(f"{name} {installed.version} was not installed from a wheel of pure Python.")
    for file in installed.files or []:
        if _NOT_NEEDED.search(file.as_posix()):
            continue
        content = file.read_binary()
        if file.hash is None:
            raise NotBuilt(f"{name} {installed.version} does not say what {file} must be.")
        digest = base64.urlsafe_b64encode(hashlib.new(file.hash.mode, content).digest()).rstrip(b"=").decode()
        if digest != file.hash.value:
            raise NotBuilt(f"{file} is not as {name} {installed.version} was installed.")
        yield file.as_posix(), content


if __name__ == "__main__":
    main(Path(sys.argv[1]))
