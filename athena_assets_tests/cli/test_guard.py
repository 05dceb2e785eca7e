"""The guard from the command line: where it looks, and what a script is told."""

from __future__ import annotations

import pytest

from athena_assets_tests.cli.conftest import Cli
from athena_assets_tests.e2e.lake import Lake
from athena_assets_tests.e2e.test_guard import by_hand


@pytest.mark.parametrize("by_option", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_foreign_query_in_a_workgroup_that_is_named_is_told_with_an_exit_status_of_its_own(
    lake: Lake, cli: Cli, monkeypatch: pytest.MonkeyPatch, by_option: bool
) -> None:
    for name in ("theirs", "others"):
        lake.aws.client("athena").create_work_group(Name=name, Configuration={"EnforceWorkGroupConfiguration": False})
    target = lake.target(guard="always", on_conflict="fail")
    cli.define(target)
    query_id = by_hand(lake, target.location, workgroup="theirs")
    options = []
    if by_option:
        options = ["--guard-workgroup", "others", "--guard-workgroup", "theirs"]
    else:
        monkeypatch.setenv("ATHENA_ASSETS_GUARD_WORKGROUPS", "others theirs")
    ended = cli("unload", target.name, "--json", *options)
    assert ended.status == 3
    (result,) = ended.document["results"]
    error = result["error"]
    assert (error["kind"], error["query_id"], error["workgroup"]) == ("ForeignQueryRunning", query_id, "theirs")
    assert lake.register(target.location) is None
