"""Several components in one project: one asset for a table that they read, and no two targets in one place."""

import gc
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from athena_assets.errors import InvalidTarget
from athena_assets.orchestration import AthenaUnloadComponent, AthenaUnloadResource, declared
from athena_assets_tests.orchestration.yaml_defs import HEAD, project, why_refused

READER = "location_prefix: s3://lake/\ntargets: [{{name: {0}, query: SELECT id FROM sales.orders}}]\n"
ORDERS = dg.AssetKey(["sales", "orders"])


def graph_of(defs: dg.Definitions) -> Any:
    resources = dg.Definitions(resources={"athena": AthenaUnloadResource()})
    return dg.Definitions.merge(defs, resources).resolve_asset_graph()


def externals(defs: dg.Definitions) -> set[str]:
    """Those that are declared, and not only named by what depends on them."""
    graph = graph_of(defs)
    return {key.to_user_string() for key in graph.external_asset_keys if graph.get(key).description}


def own_specs(defs: dg.Definitions) -> set[dg.AssetKey]:
    return {each.key for each in defs.assets or () if isinstance(each, dg.AssetSpec)}


@pytest.mark.parametrize(
    "components",
    [
        {"one": READER.format("a"), "two": READER.format("b")},
        {"both": f"{READER.format('a')}---\n{READER.format('b')}"},
    ],
    ids=["two files", "two documents of a file"],
)
def test_a_table_that_two_components_read_is_one_external_asset(components: dict[str, str]) -> None:
    with project(**components) as (tree, _):
        defs = tree.build_defs()
        assert externals(defs) == {"sales/orders"}
        assert {key.to_user_string() for key in graph_of(defs).get(ORDERS).child_keys} == {"a", "b"}


def test_a_component_that_is_loaded_alone_declares_what_it_reads() -> None:
    with project(one=READER.format("a"), two=READER.format("b")) as (tree, folder):
        assert externals(tree.build_defs(folder / "two")) == {"sales/orders"}
        assert externals(tree.build_defs(folder / "one")) == set()  # another one of the tree has it by now
        assert externals(tree.build_defs()) == {"sales/orders"}


def test_a_component_that_is_built_again_declares_its_tables_again() -> None:
    with project(one=READER.format("a"), two=READER.format("b")) as (tree, folder):
        tree.build_defs()
        for name, specs in (("one", {ORDERS}), ("two", set()), ("one", {ORDERS})):
            decl = next(tree.find_decl_at_path(folder / name).iterate_child_component_decls())
            context = dg.ComponentLoadContext.from_decl_load_context(decl.context, decl)
            component = tree.load_component(folder / name, AthenaUnloadComponent)
            assert own_specs(component.build_defs(context)) == specs


def test_what_a_tree_declared_is_forgotten_with_it() -> None:
    before = len(declared._TREES)
    with project(one=READER.format("a")) as (tree, _):
        tree.build_defs()
        assert len(declared._TREES) == before + 1
        del tree
    gc.collect()
    assert len(declared._TREES) <= before


def target(text: str, more: str = "") -> str:
    return f"location_prefix: s3://lake/\n{more}targets: [{{query: SELECT 1 AS one, {text}}}]\n"


@pytest.mark.parametrize(
    ("first", "second", "field", "text"),
    [
        ("name: a", "name: b, location: a", "location", "s3://lake/a/ overlaps s3://lake/a/"),
        ("name: a", "name: b, location: a/more", "location", "overlaps"),
        ("name: a, location: 's3://lake/a/b'", "name: b, location: 's3://lake/a'", "location", "overlaps"),
        ("name: a", "name: b, location: '${p}', parameters: {p: a}", "location", "overlaps"),
        ("name: a", "name: a, location: other", "name", "have it"),
        (
            "name: a, glue_table: sales.shown",
            "name: b, glue_table: sales.shown",
            "glue_table",
            "target 'a' fills sales.shown too",
        ),
    ],
)
def test_two_targets_of_two_components_are_kept_apart(first: str, second: str, field: str, text: str) -> None:
    with project(one=target(first), two=target(second)) as (tree, folder):
        told = why_refused(tree)
    name = second.removeprefix("name: ")[0]
    assert told.startswith(f"target {name!r}, {field} in {folder / 'two' / 'defs.yaml'}: ")
    assert f"Target 'a' is in {folder / 'one' / 'defs.yaml'}." in told
    assert text in told


def test_neighbours_that_only_begin_alike_are_accepted() -> None:
    with project(one=target("name: a"), two=target("name: ab"), three=target("name: b, location: 'b/a'")) as (tree, _):
        assert len(list(tree.build_defs().assets or ())) == 3


def test_components_of_two_resources_may_each_fill_a_table_of_one_name() -> None:
    eu = target("name: a, glue_table: sales.shown", "resource_key: eu\n")
    us = target("name: b, glue_table: sales.shown", "resource_key: us\n")
    with project(eu=eu, us=us) as (tree, _):
        assert len(list(tree.build_defs().assets or ())) == 2


def test_the_command_line_is_told_of_two_documents_in_one_place(tmp_path: Path) -> None:
    path = tmp_path / "defs.yaml"
    documents = [
        "{location_prefix: 's3://lake/', targets: [{name: a, query: SELECT 1}]}",
        "{targets: [{name: b, query: SELECT 1, location: 's3://lake/a/b/'}]}",
    ]
    path.write_text("---\n".join(f"{HEAD.rstrip()} {each}\n" for each in documents))
    with pytest.raises(InvalidTarget, match=r"target 'b', location in .*overlaps.*Target 'a' is in"):
        AthenaUnloadComponent.targets_in(path)
