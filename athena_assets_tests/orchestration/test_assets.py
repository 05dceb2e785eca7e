"""What an asset's definition says, and what is refused while definitions load. No AWS is near."""

import warnings
from typing import Any

import dagster as dg
import pytest

from athena_assets import OutputFormat, Target, UpstreamTable
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration import AthenaUnloadResource, build_unload_asset, unload_assets
from athena_assets.orchestration.checks import CHECKS
from athena_assets.orchestration.concurrency import pool_name
from athena_assets.orchestration.lineage import code_version

DAYS = dg.DailyPartitionsDefinition("2026-01-01")


def target(**changes: Any) -> Target:
    arguments: dict[str, Any] = {
        "name": "mart/orders",
        "query": "SELECT o.id, c.name FROM Orders o JOIN crm.Customers c ON c.id = o.customer",
        "location": "s3://lake/mart/orders",
        "database": "shop",
    }
    return Target(**(arguments | changes))


def spec(asset: dg.AssetsDefinition) -> dg.AssetSpec:
    [only] = asset.specs
    return only


def deps(asset: dg.AssetsDefinition) -> set[str]:
    return {dep.asset_key.to_user_string() for dep in spec(asset).deps}


def daily(**changes: Any) -> Target:
    return target(location="s3://lake/mart/orders/${partition}/", **changes)


def test_the_key_is_the_targets_name() -> None:
    assert build_unload_asset(target()).key == dg.AssetKey(["mart", "orders"])


def test_kinds_name_athena_s3_and_the_format() -> None:
    asset = build_unload_asset(target(output=OutputFormat("ORC")))
    assert spec(asset).kinds == {"athena", "s3", "orc"}


def test_tables_of_the_query_are_upstream_assets() -> None:
    assert deps(build_unload_asset(target())) == {"shop/orders", "crm/customers"}


def test_tables_of_another_catalog_keep_its_name() -> None:
    asset = build_unload_asset(target(query='SELECT * FROM "Lambda:Redis".db.t'))
    assert deps(asset) == {"lambda:redis/db/t"}


def test_tables_whose_joined_names_are_alike_stay_apart() -> None:
    asset = build_unload_asset(target(query='SELECT * FROM a.b_c, a_b.c, "a-b"."c d"'))
    assert deps(asset) == {"a/b_c", "a_b/c", "a-b/c d"}


def test_named_upstream_tables_replace_those_of_the_query() -> None:
    asset = build_unload_asset(target(upstreams=(UpstreamTable("crm", "everything"),)))
    assert deps(asset) == {"crm/everything"}


def test_given_deps_replace_those_of_the_query() -> None:
    assert deps(build_unload_asset(target(), deps=["seen"])) == {"seen"}
    assert deps(build_unload_asset(target(), deps=[])) == set()


def test_the_op_reads_no_argument_as_an_input() -> None:
    # A default argument of the op's function would be one, and Dagster would load it with an I/O manager.
    for asset in unload_assets([target(), target(name="other", location="s3://lake/other/")]):
        assert {key.to_user_string() for key in asset.keys_by_input_name.values()} == deps(asset)


def test_pool_and_concurrency_key_are_the_canonical_location() -> None:
    op = build_unload_asset(target()).op
    assert op.pool == op.tags["dagster/concurrency_key"] == "s3://lake/mart/orders/"


def test_partitions_share_a_pool() -> None:
    op = build_unload_asset(daily(), partitions_def=DAYS).op
    assert op.pool == op.tags["dagster/concurrency_key"] == "s3://lake/mart/orders/${partition}/"


def test_two_spellings_of_a_location_are_one_pool() -> None:
    assert pool_name(target(location="s3://lake/a")) == pool_name(target(location="s3://lake/a/"))
    assert pool_name(target(location="s3://lake/a/${partition}")) == pool_name(
        target(location="s3://lake/a/${partition}/")
    )


def test_locations_with_spaces_have_a_pool_of_their_own() -> None:
    asset = build_unload_asset(target(location="s3://lake/a b/"))
    assert asset.op.pool == "s3://lake/a%20b/"
    assert pool_name(target(location="s3://lake/a%20b/")) != asset.op.pool


def test_parameters_stand_in_the_pool_with_their_values() -> None:
    location = "s3://lake/${country}/${partition}/"
    assert pool_name(target(location=location, parameters={"country": "de"})) == "s3://lake/de/${partition}/"


@pytest.mark.parametrize(
    "change",
    [
        {"query": "SELECT 1 AS one"},
        {"output": OutputFormat("PARQUET", compression="ZSTD")},
        {"location": "s3://lake/elsewhere/"},
        {"database": "other"},
        {"query": "SELECT ${a} AS one", "parameters": {"a": "1"}},
        {"output": OutputFormat("PARQUET", partitioned_by=("name",))},
    ],
    ids=str,
)
def test_the_code_version_follows_what_is_published(change: dict[str, Any]) -> None:
    assert spec(build_unload_asset(target())).code_version == spec(build_unload_asset(target())).code_version
    assert spec(build_unload_asset(target())).code_version != spec(build_unload_asset(target(**change))).code_version


def test_a_parameters_value_changes_thecode_version() -> None:
    one, other = (target(query="SELECT ${a} AS a", parameters={"a": value}) for value in "12")
    assert spec(build_unload_asset(one)).code_version != spec(build_unload_asset(other)).code_version


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "direct"},
        {"on_conflict": "skip"},
        {"reuse": "never"},
        {"keep_previous": 7},
        {"adopt_existing": True},
        {"on_empty": "fail"},
        {"glue_table": "mart.orders"},
        {"workgroup": "other"},
        {"timeout": 10.0},
        {"upstreams": ()},
    ],
    ids=str,
)
def test_the_code_version_does_not_follow_how_it_is_published(change: dict[str, Any]) -> None:
    assert spec(build_unload_asset(target())).code_version == spec(build_unload_asset(target(**change))).code_version


def test_the_code_version_follows_the_grain_where_the_query_is_given_times() -> None:
    keyed = {grain: daily(query="SELECT ${partition} AS part", grain=grain) for grain in (None, "day")}
    versions = {code_version(each) for each in keyed.values()}
    assert len(versions) == 1
    timed = [daily(query="SELECT ${partition_start} AS start", grain=grain) for grain in ("day", "week")]
    assert len({code_version(each) for each in timed}) == 2


def test_a_busy_slot_may_leave_only_a_skipping_target_without_its_output() -> None:
    required = {
        policy: build_unload_asset(target(on_conflict=policy)).op.output_defs[0].is_required
        for policy in ("join", "queue", "skip", "fail")
    }
    assert required == {"join": True, "queue": True, "skip": False, "fail": True}


def test_checks_come_with_a_set_where_asked_for() -> None:
    targets = [target(), target(name="other", location="s3://lake/other/")]
    assert not [each for each in unload_assets(targets) if isinstance(each, dg.AssetChecksDefinition)]
    graph = dg.Definitions(
        unload_assets(targets, checks=True), resources={"athena": AthenaUnloadResource()}
    ).resolve_asset_graph()
    assert {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys} == {
        (name, check) for name in ("mart/orders", "other") for check in CHECKS
    }
    some = unload_assets(targets, checks=["scrub", "row_count"], blocking_checks=["scrub"])
    specs = [spec for each in some if isinstance(each, dg.AssetChecksDefinition) for spec in each.check_specs]
    assert [(spec.name, spec.blocking) for spec in specs] == [("scrub", True), ("row_count", False)] * 2


def test_a_set_is_defined_without_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unload_assets([daily()], partitions_def=DAYS, checks=True)


def test_a_result_that_is_read_back_is_not_its_own_upstream() -> None:
    assert deps(build_unload_asset(target(query="SELECT * FROM mart.orders JOIN crm.c USING (id)"))) == {"crm/c"}


def test_a_partitioned_target_without_partitions_is_refused_at_load() -> None:
    with pytest.raises(InvalidTarget, match="partitions_def"):
        build_unload_asset(daily())


def test_partitions_of_an_unpartitioned_target_are_refused_at_load() -> None:
    with pytest.raises(InvalidTarget, match="each would replace the one before"):
        build_unload_asset(target(), partitions_def=DAYS)


@pytest.mark.parametrize("upstreams", [None, (UpstreamTable("shop", "orders"),)], ids=["read", "named"])
def test_a_statement_that_is_no_query_is_refused_at_load(upstreams: tuple[UpstreamTable, ...] | None) -> None:
    with pytest.raises(InvalidTarget, match="DELETE"):
        build_unload_asset(target(query="DELETE FROM orders", upstreams=upstreams))


@pytest.mark.parametrize("location", ["s3://lake/mart/orders/", "s3://lake/mart/", "s3://lake/mart/orders/eu/"])
def test_two_targets_in_one_place_are_refused_at_load(location: str) -> None:
    with pytest.raises(InvalidTarget, match="overlaps"):
        unload_assets([target(), target(name="other", location=location)])


def test_two_targets_with_one_name_are_refused_at_load() -> None:
    with pytest.raises(InvalidTarget, match="name"):
        unload_assets([target(), target(location="s3://lake/other/")])


def test_a_set_may_hold_partitioned_and_unpartitioned_targets() -> None:
    plain, parted = unload_assets([target(name="plain", location="s3://lake/plain/"), daily()], partitions_def=DAYS)
    assert plain.partitions_def is None
    assert parted.partitions_def == DAYS


def test_partitions_that_no_target_of_a_set_uses_are_refused() -> None:
    with pytest.raises(InvalidTarget, match="partition"):
        unload_assets([target()], partitions_def=DAYS)
