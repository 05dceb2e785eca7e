"""One target in three declarations: YAML, a call and a decorator make the same asset."""

from dataclasses import fields
from datetime import timedelta

import dagster as dg
import pytest

from athena_assets import OutputFormat, Target
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration import build_unload_asset, unload_asset
from athena_assets.orchestration.decorator import TargetFields
from athena_assets.orchestration.fields import UnloadTarget
from athena_assets_tests.orchestration.yaml_defs import load

QUERY = "SELECT o.id, c.name FROM orders o JOIN crm.customers c ON c.id = o.customer WHERE o.day = ${partition}\n"
LOCATION = "s3://lake/published/mart/orders/day=${partition}/"
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
CONDITION = dg.AutomationCondition.eager()
YAML = """
    database: shop
    location_prefix: s3://lake/published/
    group_name: mart
    owners: ["team:sales"]
    tags: {tier: gold}
    partitions: {type: daily, start_date: 2026-01-01, end_date: 2026-02-01}
    automation_condition: "{{ dg.AutomationCondition.eager() }}"
    freshness_policy: "{{ dg.FreshnessPolicy.cron(deadline_cron='0 6 * * *', lower_bound_delta=HOURS) }}"
    retry_policy: {max_retries: 2}
    targets:
      - name: mart/orders
        sql_file: orders.sql
        location: mart/orders/day=${partition}
        grain: day
        output: {format: orc, compression: zlib}
        description: Orders of a day.
""".replace("HOURS", "datetime.timedelta(hours=2)")


def three() -> dict[str, dg.AssetsDefinition]:
    fresh = dg.FreshnessPolicy.cron(deadline_cron="0 6 * * *", lower_bound_delta=timedelta(hours=2))
    called = build_unload_asset(
        Target(
            name="mart/orders",
            query=QUERY,
            location=LOCATION,
            database="shop",
            grain="day",
            output=OutputFormat("ORC", compression="ZLIB"),
        ),
        partitions_def=DAYS,
        group_name="mart",
        owners=["team:sales"],
        tags={"tier": "gold"},
        description="Orders of a day.",
        automation_condition=CONDITION,
        freshness_policy=fresh,
        retry_policy=dg.RetryPolicy(max_retries=2),
    )

    @unload_asset(
        name="mart/orders",
        location=LOCATION,
        database="shop",
        grain="day",
        output=OutputFormat("ORC", compression="ZLIB"),
        partitions_def=DAYS,
        group_name="mart",
        owners=["team:sales"],
        tags={"tier": "gold"},
        automation_condition=CONDITION,
        freshness_policy=fresh,
        retry_policy=dg.RetryPolicy(max_retries=2),
    )
    def decorated() -> str:
        """Orders of a day."""
        return QUERY

    return {"yaml": load(YAML, orders=QUERY).asset("mart/orders"), "call": called, "decorator": decorated}


def test_three_declarations_make_one_asset() -> None:
    ways = three()
    specs = {way: asset.specs_by_key[dg.AssetKey(["mart", "orders"])] for way, asset in ways.items()}
    # Dagster itself adds where the YAML stands.
    specs["yaml"] = specs["yaml"].replace_attributes(metadata={})
    assert specs["yaml"] == specs["call"] == specs["decorator"]
    assert specs["call"].freshness_policy is not None
    assert specs["call"].automation_condition == CONDITION
    for way, asset in ways.items():
        assert asset.op.pool == asset.op.tags["dagster/concurrency_key"] == LOCATION, way
        assert asset.partitions_def == DAYS, way
        assert asset.backfill_policy == dg.BackfillPolicy.single_run(), way
        assert "athena" in asset.required_resource_keys, way


def test_the_description_ends_with_the_rendered_query() -> None:
    target = Target(
        name="orders",
        query="SELECT id FROM orders WHERE country = ${country} AND day = ${partition}",
        location="s3://lake/orders/${partition}/",
        parameters={"country": "Côte d'Ivoire"},
    )
    [spec] = build_unload_asset(
        target, partitions_def=dg.StaticPartitionsDefinition(["a"]), description="Some orders."
    ).specs
    assert spec.description == (
        "Some orders.\n\nPublished to `s3://lake/orders/${partition}/`:\n\n"
        "```sql\nSELECT id FROM orders WHERE country = 'Côte d''Ivoire' AND day = ${partition}\n```"
    )


def test_a_decorated_function_gives_the_name_and_is_called_once_at_load() -> None:
    calls = []

    @unload_asset(location="s3://lake/by_country/", database="sales")
    def by_country() -> str:
        calls.append(1)
        return "SELECT country FROM orders"

    assert by_country.key == dg.AssetKey("by_country")
    assert [dep.asset_key.to_user_string() for dep in next(iter(by_country.specs)).deps] == ["sales/orders"]
    assert calls == [1]


def test_a_decorated_function_that_returns_no_query_is_refused_by_the_targets_name() -> None:
    with pytest.raises(InvalidTarget, match=r"'by_country', query.*not a string"):

        @unload_asset(location="s3://lake/by_country/")
        def by_country() -> str:
            return None  # type: ignore[return-value]


def test_yaml_and_the_decorator_know_every_field_of_a_target() -> None:
    names = {each.name for each in fields(Target)}
    assert set(TargetFields.__annotations__) == names - {"name", "query", "location"}
    assert set(UnloadTarget.model_fields) >= names
