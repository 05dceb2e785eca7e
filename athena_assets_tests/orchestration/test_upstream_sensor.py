"""The sensor over real tables of the embedded AWS: what it calls, reports and requests."""

from collections import Counter
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from athena_assets import Target, UpstreamTable
from athena_assets.aws.glue import UpstreamVersions
from athena_assets.aws.session import AwsClients
from athena_assets.errors import InvalidTarget
from athena_assets.local import Fault, Respond
from athena_assets.orchestration import AthenaUnloadTranslator, build_unload_asset, upstream_specs
from athena_assets.orchestration.upstream import build_upstream_sensor
from athena_assets.orchestration.upstream_cursor import CursorUnreadable
from athena_assets_tests.e2e.lake import Lake
from athena_assets_tests.orchestration.runs import resource
from athena_assets_tests.orchestration.upstream_lake import Ticks, add_partition, create_table, iceberg, storage

DAYS = dg.DailyPartitionsDefinition(start_date="2024-01-29", end_date="2024-02-03")


def calls(lake: Lake, work: Any) -> Counter[str]:
    before = max((each.sequence for each in lake.aws.requests()), default=0)
    work()
    return Counter(
        each.operation for each in lake.aws.requests() if each.sequence > before and "athena_assets/" in each.user_agent
    )


def daily(lake: Lake, name: str = "daily", table: str = "events", **changes: Any) -> Target:
    return lake.target(
        name,
        query=f"SELECT n FROM {table} WHERE day = ${{partition}}",
        location=f"s3://{lake.bucket}/published/{name}/${{partition}}/",
        **({"grain": "day"} | changes),
    )


def rewrite(lake: Lake, table: str, metadata: dict[str, Any]) -> None:
    found = lake.glue.get_table(DatabaseName=lake.database, Name=table)["Table"]
    kept = {name: found[name] for name in ("Name", "TableType", "StorageDescriptor")}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=kept | metadata)


# --- versions --------------------------------------------------------------------------------------------------------


def test_a_changed_file_requests_a_run_of_just_its_readers(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.add_table("others", range(10))
    ticks = Ticks(lake, instance, [lake.target("a"), lake.target("b", query="SELECT n FROM others")])
    assert ticks.runs() == []
    lake.put_rows("numbers", "part-1.parquet", range(10))
    assert ticks.runs() == []
    assert ticks.runs() == [("a", None)]
    assert ticks.runs() == []


def test_each_version_is_reported_once_on_the_tables_asset(lake: Lake, instance: dg.DagsterInstance) -> None:
    ticks = Ticks(lake, instance, [lake.target("a"), lake.target("b")])
    first = ticks.tick()
    [event] = first.reported.values()
    assert isinstance(event, dg.AssetMaterialization)
    assert event.asset_key == dg.AssetKey([lake.database, "numbers"])
    assert ticks.tick().reported == {}
    lake.put_rows("numbers", "part-0.parquet", range(10))
    assert ticks.tick().versions != first.versions != {}


class Prefixed(AthenaUnloadTranslator):
    def get_asset_spec(self, target: Target) -> dg.AssetSpec:
        return super().get_asset_spec(target).replace_attributes(key=["lake", target.name])


def test_an_asset_with_a_key_of_its_own_is_requested_by_that_key(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target("a")
    ticks = Ticks(lake, instance, [target], [build_unload_asset(target, translator=Prefixed())])
    assert ticks.runs() == []
    lake.put_rows("numbers", "part-1.parquet", range(10))
    assert ticks.runs() == []
    assert ticks.runs() == [("lake/a", None)]


def test_a_partitioned_asset_with_a_key_of_its_own_is_found(lake: Lake) -> None:
    target = lake.target("b", query="SELECT ${partition} AS p", location=f"s3://{lake.bucket}/b/${{partition}}/")
    target = replace(target, upstreams=(UpstreamTable(lake.database, "numbers"),))
    asset = build_unload_asset(target, translator=Prefixed(), partitions_def=dg.StaticPartitionsDefinition(["x", "y"]))
    sensor = build_upstream_sensor([target], assets=[asset])
    assert sensor.asset_selection == dg.AssetSelection.assets(asset.key)


def test_a_table_that_is_an_asset_of_dagster_is_observed_and_not_materialized_for_it(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    target = lake.target("a")
    model = dg.AssetSpec(["model", "numbers"])

    @dg.multi_asset(specs=[model])
    def models() -> None: ...

    ticks = Ticks(lake, instance, [target], [build_unload_asset(target), models], upstream_key=lambda _: model.key)
    [event] = ticks.tick().reported.values()
    assert isinstance(event, dg.AssetObservation)
    assert event.asset_key == model.key


def test_the_reported_version_is_the_one_that_decides_about_reuse(lake: Lake, instance: dg.DagsterInstance) -> None:
    create_table(lake, "events", "day")
    add_partition(lake, "events", "2024-01-29")
    create_table(lake, "ice", **iceberg(1))
    names = ("numbers", "events", "ice")
    ticks = Ticks(lake, instance, [lake.target(name, query=f"SELECT n FROM {name}") for name in names])
    reported = ticks.tick().versions
    publishers = UpstreamVersions(AwsClients(lake.settings)).resolve(
        tuple(UpstreamTable(lake.database, name) for name in names)
    )
    assert reported == {name: each.version for name, each in zip(names, publishers, strict=True)}


def test_an_iceberg_commit_requests_a_run_at_once(lake: Lake, instance: dg.DagsterInstance) -> None:
    create_table(lake, "ice", **iceberg(1))
    ticks = Ticks(lake, instance, [lake.target("a", query="SELECT n FROM ice")])
    ticks.tick()
    rewrite(lake, "ice", iceberg(2))
    assert ticks.runs(1) == [("a", None)]


@pytest.mark.parametrize(("kind", "sees"), [("glue", True), ("listing", False)])
def test_the_chosen_kind_of_version_decides(lake: Lake, instance: dg.DagsterInstance, kind: str, sees: bool) -> None:
    ticks = Ticks(lake, instance, [lake.target("a")], version_of={f"{lake.database}.numbers": kind})
    ticks.tick()
    rewrite(lake, "numbers", {"Parameters": {"classification": "parquet", "owner": "somebody"}})
    ticks.tick()
    assert bool(ticks.runs()) is sees


def test_a_function_of_ones_own_tells_the_version_of_a_table_that_glue_does_not_know(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    loads = {"postgres.public.orders": "load 1"}
    target = lake.target("a", upstreams=(UpstreamTable("public", "orders", "postgres"),))
    ticks = Ticks(lake, instance, [target], version_of={"postgres.public.orders": lambda table: loads[str(table)]})
    ticks.tick()
    loads["postgres.public.orders"] = "load 2"
    assert ticks.runs() == []
    assert ticks.runs() == [("a", None)]


# --- partitions ------------------------------------------------------------------------------------------------------


def test_files_in_a_partition_and_new_partitions_request_their_days(lake: Lake, instance: dg.DagsterInstance) -> None:
    create_table(lake, "events", "day")
    for day in ("2024-01-29", "2024-01-30"):
        add_partition(lake, "events", day)
    target = daily(lake)
    asset = build_unload_asset(target, partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.multi_run(1))
    ticks = Ticks(lake, instance, [target], [asset], quiet_seconds=0)
    ticks.tick()
    lake.put_rows("events", "2024-01-30/more.parquet", range(5))
    assert ticks.runs() == [("daily", "2024-01-30")]
    add_partition(lake, "events", "2024-01-31")
    add_partition(lake, "events", "2024-03-01")
    assert ticks.runs() == [("daily", "2024-01-31")]
    assert ticks.runs() == []


def test_days_in_a_row_are_one_run_by_default(lake: Lake, instance: dg.DagsterInstance) -> None:
    create_table(lake, "events", "day")
    target = daily(lake)
    ticks = Ticks(lake, instance, [target], [build_unload_asset(target, partitions_def=DAYS)], quiet_seconds=0)
    ticks.tick()
    for day in ("2024-01-29", "2024-01-30", "2024-02-01"):
        add_partition(lake, "events", day)
    assert ticks.runs() == [("daily", "2024-01-29..2024-01-30"), ("daily", "2024-02-01")]


def test_partitions_elsewhere_and_projected_ones_are_told_apart(lake: Lake, instance: dg.DagsterInstance) -> None:
    create_table(lake, "events", "day")
    add_partition(lake, "events", "2024-01-29", location=f"s3://{lake.bucket}/upstream/elsewhere/x/")
    projection = {"projection.enabled": "true", "projection.day.type": "date", "classification": "parquet"}
    create_table(lake, "projected", "day", Parameters=projection)
    lake.put_rows("projected", "day=2024-01-29/a.parquet", range(5))
    targets = [daily(lake), daily(lake, "other", "projected")]
    assets = [build_unload_asset(each, partitions_def=DAYS) for each in targets]
    ticks = Ticks(lake, instance, targets, assets, quiet_seconds=0)
    ticks.tick()
    lake.put_rows("elsewhere", "x/more.parquet", range(5))
    lake.put_rows("projected", "day=2024-01-30/a.parquet", range(5))
    assert ticks.runs() == [("daily", "2024-01-29"), ("other", "2024-01-30")]


def test_glues_partitions_alone_are_looked_at_where_that_is_chosen(lake: Lake, instance: dg.DagsterInstance) -> None:
    create_table(lake, "events", "day")
    add_partition(lake, "events", "2024-01-29")
    target = daily(lake)
    asset = build_unload_asset(target, partitions_def=DAYS)
    kinds = {f"{lake.database}.events": "partitions"}
    ticks = Ticks(lake, instance, [target], [asset], quiet_seconds=0, version_of=kinds)
    ticks.tick()
    lake.put_rows("events", "2024-01-29/more.parquet", range(5))
    add_partition(lake, "events", "2024-01-30")
    seen: list[Any] = []
    assert calls(lake, lambda: seen.extend(ticks.runs())) == {"GetTables": 1, "GetPartitions": 1}
    assert seen == [("daily", "2024-01-30")]


def test_a_table_without_partitions_requests_what_was_materialized(lake: Lake, instance: dg.DagsterInstance) -> None:
    target = lake.target(
        "sized",
        query="SELECT n FROM numbers WHERE n < CAST(${partition} AS bigint)",
        location=f"s3://{lake.bucket}/sized/${{partition}}/",
    )
    asset = build_unload_asset(target, partitions_def=dg.StaticPartitionsDefinition(["10", "20", "30"]))
    ticks = Ticks(lake, instance, [target], [asset], quiet_seconds=0)
    for size in ("30", "10"):
        instance.report_runless_asset_event(dg.AssetMaterialization("sized", partition=size))
    ticks.tick()
    lake.put_rows("numbers", "part-1.parquet", range(10))
    assert ticks.runs() == [("sized", "10"), ("sized", "30")]


# --- calls -----------------------------------------------------------------------------------------------------------


def test_a_tick_makes_one_get_tables_for_each_database(lake: Lake, instance: dg.DagsterInstance) -> None:
    other = f"{lake.database}_b"
    lake.glue.create_database(DatabaseInput={"Name": other})
    for database in (lake.database, other):
        for number in range(5):
            create = iceberg(1) | {"Name": f"ice{number}", "StorageDescriptor": storage("s3://x/y/")}
            lake.glue.create_table(DatabaseName=database, TableInput=create)
    targets = [
        lake.target(f"t{number}", query=f"SELECT n FROM ice{number} JOIN {other}.ice{number} USING (n)")
        for number in range(5)
    ]
    ticks = Ticks(lake, instance, [*targets, lake.target("listed")])
    assert calls(lake, ticks.tick) == {"GetTables": 2, "ListObjectsV2": 1}


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_table_that_is_gone_keeps_its_version_and_stops_no_other(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.add_table("others", range(10))
    ticks = Ticks(lake, instance, [lake.target("a"), lake.target("b", query="SELECT n FROM others")], quiet_seconds=0)
    ticks.tick()
    table = lake.glue.get_table(DatabaseName=lake.database, Name="numbers")["Table"]
    lake.glue.delete_table(DatabaseName=lake.database, Name="numbers")
    assert f"{lake.database}.numbers (Glue shows no such table" in ticks.tick().skipped
    lake.put_rows("others", "part-1.parquet", range(10))
    assert ticks.runs() == [("b", None)]
    kept = {name: table[name] for name in ("Name", "TableType", "StorageDescriptor", "Parameters")}
    lake.glue.create_table(DatabaseName=lake.database, TableInput=kept)
    assert ticks.runs() == []
    lake.put_rows("numbers", "part-1.parquet", range(10))
    assert ticks.runs() == [("a", None)]


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (400, "AccessDeniedException", "AWS refused get_tables (HTTP 400 AccessDeniedException)"),
        pytest.param(
            400,
            "ThrottlingException",
            "GetTables was not answered: HTTP 400 ThrottlingException",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_database_that_is_refused_is_named_and_its_changes_come_later(
    lake: Lake, instance: dg.DagsterInstance, status: int, code: str, told: str
) -> None:
    ticks = Ticks(lake, instance, [lake.target("a")], quiet_seconds=0)
    ticks.tick()
    lake.put_rows("numbers", "part-1.parquet", range(10))
    fault = lake.aws.faults.add(Fault(Respond(status, code), "glue", "GetTables", times=None))
    tick = ticks.tick()
    assert (tick.requests, tick.reported) == ([], {})
    assert told in tick.skipped
    lake.aws.faults.remove(fault)
    assert ticks.runs() == [("a", None)]


def test_a_listing_that_is_refused_stops_no_other_table(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.add_table("others", range(10))
    ticks = Ticks(lake, instance, [lake.target("a"), lake.target("b", query="SELECT n FROM others")], quiet_seconds=0)
    ticks.tick()
    for table in ("numbers", "others"):
        lake.put_rows(table, "part-1.parquet", range(10))
    refused = Fault(Respond(403, "AccessDenied"), "s3", "ListObjectsV2", "upstream/numbers", times=None)
    fault = lake.aws.faults.add(refused)
    assert ticks.runs() == [("b", None)]
    lake.aws.faults.remove(fault)
    assert ticks.runs() == [("a", None)]


def test_a_function_that_raises_is_its_tables_failure_alone(lake: Lake, instance: dg.DagsterInstance) -> None:
    def tell(table: UpstreamTable) -> str:
        raise LookupError(table.name)

    ticks = Ticks(lake, instance, [lake.target("a")], version_of={f"{lake.database}.numbers": tell})
    assert "its version_of raised LookupError: numbers" in ticks.tick().skipped


def test_a_view_is_told_and_not_taken_for_unchanged(lake: Lake, instance: dg.DagsterInstance) -> None:
    create_table(lake, "seen", TableType="VIRTUAL_VIEW")
    ticks = Ticks(lake, instance, [lake.target("a", query="SELECT n FROM seen")])
    assert "it is a view: choose a version_of, or the tables under it as upstreams" in ticks.tick().skipped


def test_what_a_tick_does_not_reach_comes_first_in_the_next(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.add_table("others", range(10))
    targets = [lake.target("a"), lake.target("b", query="SELECT n FROM others")]
    slow = lake.aws.faults.add(Fault(Respond(503, "SlowDown"), "glue", "GetTables", times=None))
    ticks = Ticks(lake, instance, targets, quiet_seconds=0, look_seconds=0.05)
    assert "Not reached in time: 2." in ticks.tick().skipped
    lake.aws.faults.remove(slow)
    again = Ticks(lake, instance, targets, quiet_seconds=0)
    again.cursor = ticks.cursor
    assert set(again.tick().reported) == {"numbers", "others"}
    assert '"unreached":[]' in (again.cursor or "")


def test_a_cursor_of_a_newer_release_fails_the_tick(lake: Lake, instance: dg.DagsterInstance) -> None:
    ticks = Ticks(lake, instance, [lake.target("a")])
    ticks.cursor = '{"schema":99}'
    with pytest.raises(Exception, match="schema version 99") as caught:
        ticks.tick()
    assert isinstance(caught.value, CursorUnreadable) or isinstance(caught.value.__cause__, CursorUnreadable)


# --- construction ----------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused_when_the_code_is_loaded(lake: Lake) -> None:
    target = lake.target("a")
    with pytest.raises(InvalidTarget, match=r"no target reads the table 'x\.y'"):
        build_upstream_sensor([target], version_of={"x.y": "glue"})
    with pytest.raises(InvalidTarget, match="Use one of iceberg, listing, partitions, glue, or a function"):
        build_upstream_sensor([target], version_of={f"{lake.database}.numbers": "hash"})  # type: ignore[dict-item]
    with pytest.raises(InvalidTarget, match="quiet_seconds of the sensor upstream_tables"):
        build_upstream_sensor([target], quiet_seconds=-1)
    with pytest.raises(InvalidTarget, match="most_runs"):
        build_upstream_sensor([target], most_runs=0)
    with pytest.raises(InvalidTarget, match="none of them reads a table"):
        build_upstream_sensor([lake.target("b", query="VALUES 1")])
    with pytest.raises(InvalidTarget, match="the sensor was not given the asset"):
        build_upstream_sensor([daily(lake)])


def test_a_target_does_not_watch_the_table_that_it_publishes(lake: Lake) -> None:
    own = lake.target("a", query="SELECT n FROM mine", glue_table=f"{lake.database}.mine")
    with pytest.raises(InvalidTarget, match="none of them reads a table"):
        build_upstream_sensor([own])


# --- beside AutomationCondition --------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_the_sensor_reports_is_what_dagsters_own_conditions_and_its_ui_go_by(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    target = lake.target("a")
    eager: Any = dg.AutomationCondition.eager()
    asset = build_unload_asset(target, automation_condition=eager)
    defs = dg.Definitions(assets=[asset, *upstream_specs([target])], resources={"athena": resource(lake)})
    ticks = Ticks(lake, instance, [target])
    cursor = None

    def requested() -> int:
        nonlocal cursor
        evaluated = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursor)
        cursor = evaluated.cursor
        return evaluated.total_requested

    def report() -> None:
        for event in ticks.tick().reported.values():
            instance.report_runless_asset_event(event)

    def published_of() -> str:
        """The table's version that the newest materialization was made of, as Dagster noted it."""
        run = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
        [event] = run.get_asset_materialization_events()
        return str((event.materialization.tags or {})[f"dagster/input_data_version/{lake.database}/numbers"])

    def newest() -> str:
        [record] = instance.fetch_materializations(dg.AssetKey([lake.database, "numbers"]), limit=1).records
        assert record.asset_materialization is not None
        return str((record.asset_materialization.tags or {})["dagster/data_version"])

    assert requested() == 0  # the table is missing to Dagster
    report()
    assert requested() == 1
    assert published_of() == newest()
    report()
    assert requested() == 0
    before = newest()
    lake.put_rows("numbers", "part-1.parquet", range(10))
    report()
    assert newest() != before
    assert requested() == 1
    assert published_of() == newest()
