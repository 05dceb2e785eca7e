"""A defs.yaml and .sql files in a project's defs folder, loaded as Dagster loads them."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from athena_assets import Target
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration import AthenaUnloadComponent, AthenaUnloadResource

HEAD = "type: athena_assets.AthenaUnloadComponent\nattributes:\n"


@dataclass(frozen=True, slots=True)
class Loaded:
    own: dg.Definitions
    defs: dg.Definitions
    targets: list[Target]

    def asset(self, key: str) -> dg.AssetsDefinition:
        [found] = [
            each
            for each in self.own.assets or ()
            if isinstance(each, dg.AssetsDefinition) and dg.AssetKey.from_user_string(key) in each.keys
        ]
        return found

    def spec(self, key: str) -> dg.AssetSpec:
        [found] = [each for each in self.defs.resolve_all_asset_specs() if each.key.to_user_string() == key]
        return found


def load(attributes: str, **queries: str) -> Loaded:
    """What Dagster makes of the attributes, with a .sql file for each query."""
    return load_text(HEAD + textwrap.indent(textwrap.dedent(attributes), "  "), **queries)


def load_text(text: str, **queries: str) -> Loaded:
    """The same, of a whole defs.yaml."""
    with _written(text, queries) as (tree, folder):
        targets = AthenaUnloadComponent.targets_in(folder / "defs.yaml")
        resources = dg.Definitions(resources={"athena": AthenaUnloadResource()})
        own = tree.build_defs()
        return Loaded(own, dg.Definitions.merge(own, resources), targets)


def refused(attributes: str, **queries: str) -> str:
    """The error's text; it names the file."""
    with _written(HEAD + textwrap.indent(textwrap.dedent(attributes), "  "), queries) as (tree, folder):
        told = why_refused(tree)
        assert str(folder / "defs.yaml") in told
        return told


def why_refused(tree: dg.ComponentTree) -> str:
    """The text of our own error, at the end of those that Dagster makes of it."""
    with pytest.raises(Exception) as caught:
        tree.build_defs()
    causes: list[BaseException] = []
    cause: BaseException | None = caught.value
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    [ours] = [each for each in causes if isinstance(each, InvalidTarget) and "defs.yaml" in str(each)]
    return str(ours)


def dagster_refuses(attributes: str) -> str:
    """The text of all that was raised, where Dagster itself names the file."""
    with _written(HEAD + textwrap.indent(textwrap.dedent(attributes), "  "), {}) as (tree, _):
        with pytest.raises(Exception) as caught:
            tree.build_defs()
        text = "\n".join(map(str, (caught.value, caught.value.__cause__, caught.value.__context__)))
        assert "defs.yaml" in text
        return text


@contextmanager
def project(**components: str) -> Iterator[tuple[dg.ComponentTree, Path]]:
    """A defs folder with a folder for each component, of the attributes given; documents are divided by `---`."""
    with create_defs_folder_sandbox() as sandbox:
        for name, attributes in components.items():
            documents = textwrap.dedent(attributes).split("---\n")
            text = "---\n".join(HEAD + textwrap.indent(each, "  ") for each in documents)
            (sandbox.defs_folder_path / name).mkdir(parents=True)
            (sandbox.defs_folder_path / name / "defs.yaml").write_text(text, encoding="utf-8")
        with sandbox.build_component_tree() as tree:
            yield tree, sandbox.defs_folder_path


@contextmanager
def _written(text: str, queries: dict[str, str]) -> Iterator[tuple[dg.ComponentTree, Path]]:
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "sales"
        folder.mkdir(parents=True)
        (folder / "defs.yaml").write_text(text, encoding="utf-8")
        for name, query in queries.items():
            (folder / f"{name}.sql").write_text(query, encoding="utf-8")
        with sandbox.build_component_tree() as tree:
            yield tree, folder
