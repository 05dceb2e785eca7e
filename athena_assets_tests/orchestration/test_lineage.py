"""Which assets the upstream tables of a target are, and what a translator changes."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from athena_assets import Target, UpstreamTable
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration import (
    AthenaUnloadResource,
    AthenaUnloadTranslator,
    build_unload_asset,
    unload_assets,
    upstream_specs,
)
from athena_assets.orchestration.concurrency import pool_name

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
CATALOGS = 'SELECT * FROM orders o JOIN "lambda:redis".db.t USING (id)'


def target(name: str, query: str = "SELECT * FROM orders", **changes: Any) -> Target:
    return Target(**{"name": name, "query": query, "location": f"s3://lake/{name}/", "database": "sales"} | changes)


def deps(asset: dg.AssetsDefinition) -> list[str]:
    [spec] = asset.specs
    return [dep.asset_key.to_user_string() for dep in spec.deps]


def graph(*assets: Any) -> Any:
    return dg.Definitions(assets, resources={"athena": AthenaUnloadResource()}).resolve_asset_graph()


def key(text: str) -> dg.AssetKey:
    return dg.AssetKey.from_user_string(text)


# --- external assets -------------------------------------------------------------------------------------------------


def test_tables_that_nobody_fills_are_external_assets() -> None:
    specs = {spec.key.to_user_string(): spec for spec in upstream_specs([target("a", CATALOGS), target("b")])}
    assert list(specs) == ["sales/orders", "lambda:redis/db/t"]
    orders, redis = specs.values()
    assert (orders.kinds, redis.kinds) == ({"glue", "table"}, {"table"})
    assert orders.metadata["dagster/table_name"] == dg.MetadataValue.text("sales.orders")
    assert redis.metadata["dagster/table_name"] == dg.MetadataValue.text("lambda:redis.db.t")
    assert "`orders` of the database `sales` in the Glue catalog" in str(orders.description)
    assert "data catalog `lambda:redis`" in str(redis.description)


def test_external_assets_and_targets_are_one_graph() -> None:
    targets = [target("a", CATALOGS), target("b")]
    found = graph(*unload_assets(targets), *upstream_specs(targets))
    assert found.external_asset_keys == {key("sales/orders"), key("lambda:redis/db/t")}
    assert found.get(key("sales/orders")).child_keys == {key("a"), key("b")}
    assert found.get(key("sales/orders")).metadata["dagster/table_name"].value == "sales.orders"


def test_a_query_that_cannot_be_read_has_no_upstream() -> None:
    unread = target("a", "SELECT * FROM TABLE(some_function(x => 1))")
    assert upstream_specs([unread]) == []
    assert deps(build_unload_asset(unread)) == []


def test_named_upstreams_in_capitals_are_the_same_table() -> None:
    named = target(
        "a", upstreams=(UpstreamTable("Sales", "ORDERS", "AwsDataCatalog"), UpstreamTable("sales", "orders"))
    )
    assert deps(build_unload_asset(named)) == [spec.key.to_user_string() for spec in upstream_specs([named])]
    assert deps(build_unload_asset(named)) == ["sales/orders"]


# --- tables that targets fill ----------------------------------------------------------------------------------------


def test_a_table_that_a_target_of_the_set_fills_is_that_targets_asset() -> None:
    targets = [
        target("mart/shown", glue_table="sales.shown"),
        target("reader", "SELECT * FROM Shown JOIN crm.customers USING (id)"),
    ]
    _, reader = unload_assets(targets)
    assert set(deps(reader)) == {"crm/customers", "mart/shown"}
    assert [spec.key.to_user_string() for spec in upstream_specs(targets)] == ["crm/customers", "sales/orders"]
    assert graph(*unload_assets(targets)).get(key("reader")).parent_keys == {key("crm/customers"), key("mart/shown")}


def test_two_targets_of_a_set_do_not_fill_one_table() -> None:
    targets = [target("a", glue_table="sales.shown"), target("b", glue_table="sales.shown")]
    with pytest.raises(InvalidTarget, match=r"'b', glue_table: target 'a' fills sales\.shown too"):
        unload_assets(targets)


def test_the_order_of_the_targets_does_not_matter() -> None:
    targets = [target("reader", "SELECT * FROM shown"), target("mart/shown", glue_table="sales.shown")]
    assert deps(unload_assets(targets)[0]) == ["mart/shown"]


def test_a_target_that_reads_its_own_table_is_not_its_own_upstream() -> None:
    own = target("a", "SELECT * FROM shown JOIN orders USING (id)", glue_table="sales.shown")
    assert deps(build_unload_asset(own)) == deps(unload_assets([own])[0]) == ["sales/orders"]
    assert [spec.key for spec in upstream_specs([own])] == [key("sales/orders")]


def test_a_table_of_the_same_name_in_another_catalog_is_another_table() -> None:
    targets = [
        target("shown", glue_table="sales.shown"),
        target("reader", 'SELECT * FROM "lambda:x".sales.shown'),
    ]
    assert deps(unload_assets(targets)[1]) == ["lambda:x/sales/shown"]


def test_a_target_whose_key_is_its_tables_stays_one_asset() -> None:
    targets = [target("sales/shown"), target("reader", "SELECT * FROM shown")]
    assert [spec.key for spec in upstream_specs(targets)] == [key("sales/orders")]
    assert graph(*unload_assets(targets), *upstream_specs(targets)).get(key("reader")).parent_keys == {
        key("sales/shown")
    }


# --- translators -----------------------------------------------------------------------------------------------------


class Dbt(AthenaUnloadTranslator):
    """`orders` is a dbt model; the project's keys begin with `lake`."""

    def get_asset_spec(self, target: Target) -> dg.AssetSpec:
        spec = super().get_asset_spec(target)
        return spec.replace_attributes(key=spec.key.with_prefix("lake"), group_name="marts").merge_attributes(
            tags={"by": "translator"}, metadata={"location": target.location}
        )

    def get_upstream_key(self, table: UpstreamTable) -> dg.AssetKey:
        return key("dbt/orders") if table.name == "orders" else super().get_upstream_key(table)


def test_a_translator_maps_tables_and_changes_the_spec() -> None:
    targets = [target("a", "SELECT * FROM orders JOIN items USING (id)")]
    [asset] = unload_assets(targets, translator=Dbt())
    [spec] = asset.specs
    assert (spec.key, spec.group_name) == (key("lake/a"), "marts")
    assert set(deps(asset)) == {"dbt/orders", "sales/items"}
    assert spec.metadata["location"] == "s3://lake/a/"
    assert spec.kinds == {"athena", "s3", "parquet"}
    assert [each.key for each in upstream_specs(targets, translator=Dbt())] == [key("sales/items")]


def test_arguments_go_before_the_translator_and_tags_are_joined() -> None:
    asset = build_unload_asset(target("a"), translator=Dbt(), group_name="own", tags={"more": "yes"}, deps=["seen"])
    [spec] = asset.specs
    assert (spec.group_name, spec.tags["by"], spec.tags["more"]) == ("own", "translator", "yes")
    assert deps(asset) == ["seen"]


def test_a_translator_changes_neither_pool_nor_query() -> None:
    class Other(Dbt):
        def get_asset_spec(self, target: Target) -> dg.AssetSpec:
            return dg.AssetSpec(key("nothing/left"), skippable=True)

    asset = build_unload_asset(target("a"), translator=Other())
    assert asset.key == key("nothing/left")
    assert asset.op.pool == asset.op.tags["dagster/concurrency_key"] == pool_name(target("a"))
    assert asset.op.output_defs[0].is_required


@pytest.mark.parametrize("said", [{"owners": ["nobody"]}, {"group_name": "a b"}, {"tags": {"a b": "c"}}], ids=str)
def test_what_dagster_refuses_is_told_by_the_targets_name(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidTarget, match="'a', asset: Dagster refuses it"):
        build_unload_asset(target("a"), **said)


def test_a_key_that_dagster_refuses_is_told_by_the_targets_name() -> None:
    class Dashed(AthenaUnloadTranslator):
        def get_asset_spec(self, target: Target) -> dg.AssetSpec:
            return super().get_asset_spec(target).replace_attributes(key=dg.AssetKey("a/b"))

    with pytest.raises(InvalidTarget, match="'a', asset: Dagster refuses it: "):
        build_unload_asset(target("a"), translator=Dashed())


def test_checks_follow_the_key_that_a_translator_gives() -> None:
    found = graph(*unload_assets([target("a")], checks=True, translator=Dbt()))
    assert {each.asset_key for each in found.asset_check_keys} == {key("lake/a")}


def test_a_filled_table_is_found_under_the_key_that_a_translator_gives() -> None:
    targets = [target("shown", glue_table="sales.shown"), target("reader", "SELECT * FROM shown")]
    assert deps(unload_assets(targets, translator=Dbt())[1]) == ["lake/shown"]


def test_two_tables_that_are_one_asset_are_one_dependency() -> None:
    class One(AthenaUnloadTranslator):
        def get_upstream_key(self, table: UpstreamTable) -> dg.AssetKey:
            return key("everything")

    assert deps(build_unload_asset(target("a", "SELECT * FROM b JOIN c USING (id)"), translator=One())) == [
        "everything"
    ]


def test_partitions_may_come_from_the_translator_and_are_checked() -> None:
    class Parted(AthenaUnloadTranslator):
        def get_asset_spec(self, target: Target) -> dg.AssetSpec:
            return super().get_asset_spec(target).replace_attributes(partitions_def=DAYS)

    daily = target("a", location="s3://lake/a/${partition}/", grain="day")
    assert build_unload_asset(daily, translator=Parted()).partitions_def == DAYS
    with pytest.raises(InvalidTarget, match="each would replace the one before"):
        build_unload_asset(target("a"), translator=Parted())


# --- partition mappings ----------------------------------------------------------------------------------------------


def daily_over_hourly(**arguments: Any) -> Any:
    hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
    orders = dg.asset(key=["sales", "orders"], partitions_def=hours)(lambda: None)
    daily = target("a", "SELECT * FROM orders WHERE day = ${partition}", location="s3://lake/a/${partition}/")
    return graph(orders, build_unload_asset(daily, partitions_def=DAYS, **arguments))


def test_a_partitioned_upstream_has_dagsters_default_mapping() -> None:
    mapping = daily_over_hourly().get_partition_mapping(key("a"), key("sales/orders"))
    assert mapping == dg.TimeWindowPartitionMapping()


def test_another_mapping_is_given_with_deps_or_by_the_translator() -> None:
    last = dg.AssetDep(["sales", "orders"], partition_mapping=dg.LastPartitionMapping())

    class Last(AthenaUnloadTranslator):
        def get_asset_spec(self, target: Target) -> dg.AssetSpec:
            return super().get_asset_spec(target).replace_attributes(deps=[last])

    for found in (daily_over_hourly(deps=[last]), daily_over_hourly(translator=Last())):
        assert found.get_partition_mapping(key("a"), key("sales/orders")) == dg.LastPartitionMapping()


def test_a_mapping_is_kept_where_a_table_is_found_to_be_a_target() -> None:
    class Last(AthenaUnloadTranslator):
        def get_asset_spec(self, target: Target) -> dg.AssetSpec:
            spec = super().get_asset_spec(target)
            mapped = [dg.AssetDep(dep.asset_key, partition_mapping=dg.LastPartitionMapping()) for dep in spec.deps]
            return spec.replace_attributes(deps=mapped)

    shown = target("mart/shown", location="s3://lake/shown/${partition}/", glue_table="sales.shown")
    reader = target("reader", "SELECT * FROM shown WHERE day = ${partition}", location="s3://lake/reader/${partition}/")
    found = graph(*unload_assets([shown, reader], partitions_def=DAYS, translator=Last()))
    assert found.get_partition_mapping(key("reader"), key("mart/shown")) == dg.LastPartitionMapping()


def test_a_freshness_policy_is_handed_on() -> None:
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24))
    [asset] = unload_assets([target("a")], freshness_policy=policy)
    assert graph(asset).get(key("a")).freshness_policy == policy
