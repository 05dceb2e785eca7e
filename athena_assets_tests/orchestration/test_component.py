"""What a component's YAML may say, what becomes of it, and what is refused by the names of the file and the target."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from athena_assets import OutputFormat, Target, UpstreamTable
from athena_assets.orchestration import AthenaUnloadComponent, AthenaUnloadResource, UnloadTarget
from athena_assets.orchestration.fields import PARTITIONS_IN_TEMPLATES
from athena_assets.orchestration.scaffold import UnloadScaffolder
from athena_assets_tests.e2e.lake import Lake
from athena_assets_tests.orchestration.runs import recorded, run
from athena_assets_tests.orchestration.yaml_defs import HEAD, dagster_refuses, load, load_text, refused

ONE = "SELECT 1 AS one\n"


def test_the_query_is_the_file_of_the_name_a_named_file_or_inline() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/
        targets:
          - {name: by_name}
          - {name: by_file, sql_file: other.sql}
          - {name: inline, query: SELECT 2 AS two}
        """,
        by_name="SELECT 'file {{ no.template }}' AS text\n",
        other=ONE,
    )
    assert [each.query for each in loaded.targets] == [
        "SELECT 'file {{ no.template }}' AS text\n",
        ONE,
        "SELECT 2 AS two",
    ]


def test_locations_are_whole_or_below_the_prefix() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/published
        targets:
          - {name: mart/one, query: SELECT 1 AS one}
          - {name: two, query: SELECT 1 AS one, location: /second/}
          - {name: three, query: SELECT 1 AS one, location: "s3://other/three"}
        """
    )
    assert [each.location for each in loaded.targets] == [
        "s3://lake/published/mart/one/",
        "s3://lake/published/second/",
        "s3://other/three",
    ]


def test_a_target_overrides_what_its_component_says_and_null_takes_it_back() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/
        database: sales
        output: {format: ORC}
        group_name: shared
        owners: ["team:a"]
        tags: {tier: gold, cost: low}
        checks: true
        automation_condition: "{{ dg.AutomationCondition.eager() }}"
        targets:
          - {name: plain, query: SELECT 1 AS one}
          - name: other
            query: SELECT 1 AS one
            database: crm
            output: JSON
            group_name: own
            owners: ["b@example.com"]
            tags: {cost: high}
            checks: false
            automation_condition: null
        """
    )
    plain, other = loaded.spec("plain"), loaded.spec("other")
    assert (plain.group_name, plain.owners, plain.tags["tier"]) == ("shared", ["team:a"], "gold")
    assert plain.automation_condition == dg.AutomationCondition.eager()
    assert (other.group_name, other.owners) == ("own", ["b@example.com"])
    assert (other.tags["tier"], other.tags["cost"]) == ("gold", "high")
    assert other.automation_condition is None
    assert [each.database for each in loaded.targets] == ["sales", "crm"]
    assert [each.format for each in loaded.targets] == [OutputFormat("ORC"), OutputFormat("JSON")]
    assert {key.asset_key.to_user_string() for key in loaded.defs.resolve_asset_graph().asset_check_keys} == {"plain"}


def test_shared_partitions_are_for_the_targets_that_have_a_placeholder() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/
        partitions: {type: static, keys: ["007", "1e3"]}
        max_partitions_per_run: 2
        targets:
          - {name: parted, query: "SELECT ${partition} AS p", location: "parted/${partition}"}
          - {name: whole, query: SELECT 1 AS one}
        """
    )
    assert loaded.asset("parted").partitions_def == dg.StaticPartitionsDefinition(["007", "1e3"])
    assert loaded.asset("parted").backfill_policy == dg.BackfillPolicy.multi_run(2)
    assert loaded.asset("whole").partitions_def is None


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ("{type: hourly, start_date: '2026-01-01-00:00'}", dg.HourlyPartitionsDefinition("2026-01-01-00:00")),
        (
            "{type: weekly, start_date: 2026-01-01, timezone: Europe/Berlin}",
            dg.WeeklyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin"),
        ),
        ("{type: monthly, start_date: 2026-01-01}", dg.MonthlyPartitionsDefinition("2026-01-01")),
        (
            "\"{{ dg.DailyPartitionsDefinition('2026-01-01', end_offset=1) }}\"",
            dg.DailyPartitionsDefinition("2026-01-01", end_offset=1),
        ),
    ],
)
def test_partitions_are_dagsters(said: str, made: dg.PartitionsDefinition) -> None:
    loaded = load(
        f"""
        targets:
          - name: parted
            query: SELECT ${{partition}} AS p
            location: s3://lake/parted/${{partition}}/
            partitions: {said}
        """
    )
    assert loaded.asset("parted").partitions_def == made


def test_text_stays_text_also_where_a_template_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_CODE", "1e3")
    loaded = load(
        """
        location_prefix: s3://lake/
        targets:
          - name: codes
            query: SELECT ${a} AS a, ${b} AS b, ${c} AS c
            parameters: {a: "007", b: "{{ env.SOME_CODE }}", c: "True"}
        """
    )
    assert dict(loaded.targets[0].parameters) == {"a": "007", "b": "1e3", "c": "True"}


def test_the_environment_moves_a_location(monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = """
        location_prefix: s3://{{ env('LAKE_BUCKET', 'dev-lake') }}/published/
        targets: [{name: one, query: SELECT 1 AS one}]
        """
    assert load(yaml).asset("one").op.pool == "s3://dev-lake/published/one/"
    monkeypatch.setenv("LAKE_BUCKET", "prod-lake")
    assert load(yaml).asset("one").op.pool == "s3://prod-lake/published/one/"


@pytest.mark.parametrize("template", ["env.NO_SUCH_VARIABLE", "env('NO_SUCH_VARIABLE')"])
def test_a_variable_that_is_not_set_is_no_bucket_called_none(template: str) -> None:
    text = dagster_refuses(
        f"""
        location_prefix: s3://{{{{ {template} }}}}/published/
        targets: [{{name: one, query: SELECT 1 AS one}}]
        """
    )
    assert "environment variable NO_SUCH_VARIABLE is not set" in text


FIELDS = [("target", name) for name in UnloadTarget.model_fields] + [
    ("component", name) for name in AthenaUnloadComponent.model_fields
]


@pytest.mark.parametrize(("of", "field"), FIELDS)
def test_a_variable_that_is_not_set_leaves_no_field_out(of: str, field: str) -> None:
    unset = {field: "{{ env.NO_SUCH_VARIABLE }}"}
    target = {"name": "one", "query": "SELECT 1 AS one", "location": "s3://lake/one/"}
    attributes = {"targets": [target | unset]} if of == "target" else {"targets": [target]} | unset
    with pytest.raises(Exception, match="environment variable NO_SUCH_VARIABLE is not set"):
        AthenaUnloadComponent.resolve_from_dict(attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        "retry_policy: {max_retries: 1, delay: '{{ env.NO_SUCH_VARIABLE }}'}\ntargets: []",
        "output: {format: PARQUET, compression_level: '{{ env.NO_SUCH_VARIABLE }}'}\ntargets: []",
        "upstream_assets: '{{ env.NO_SUCH_VARIABLE }}'\ntargets: []",
    ],
)
def test_dagster_tells_where_a_variable_that_is_not_set_stands(attributes: str) -> None:
    assert "environment variable NO_SUCH_VARIABLE is not set" in dagster_refuses(attributes)


def test_a_variable_that_is_not_set_is_told_in_post_processing_too() -> None:
    post = "post_processing: {assets: [{attributes: {group_name: '{{ env.NO_SUCH_VARIABLE }}'}}]}"
    with pytest.raises(Exception, match="Error while building definitions for sales") as caught:
        load_text(f"{HEAD}  targets: [{{name: one, query: SELECT 1, location: 's3://lake/one/'}}]\n{post}\n")
    assert "environment variable NO_SUCH_VARIABLE is not set" in str(caught.value.__cause__)


def test_numbers_and_choices_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECONDS", "60")
    [target] = load(
        """
        location_prefix: s3://lake/
        targets:
          - name: one
            query: SELECT 1 AS one
            timeout: "{{ env.SECONDS }}"
            retries: "{{ env('NO_SUCH_VARIABLE', 5) }}"
            reuse: "{{ env('NO_SUCH_VARIABLE', 'never') }}"
        """
    ).targets
    assert (target.timeout, target.retries, target.reuse) == (60, 5, "never")


@pytest.mark.parametrize(
    ("written", "guard"),
    [("off", "off"), ('"off"', "off"), ("always", "always"), ("\"{{ env('NO_SUCH_VARIABLE', 'off') }}\"", "off")],
)
def test_a_bare_off_means_off_although_yaml_reads_it_as_false(written: str, guard: str) -> None:
    [target] = load(
        f"""
        location_prefix: s3://lake/
        targets: [{{name: one, query: SELECT 1 AS one, guard: {written}}}]
        """
    ).targets
    assert target.guard == guard


def test_a_guard_that_there_is_not_is_refused() -> None:
    for written in ("on", "sometimes"):
        with pytest.raises(Exception, match="guard"):
            load(f"location_prefix: s3://lake/\ntargets: [{{name: one, query: SELECT 1, guard: {written}}}]")


def test_a_table_that_a_target_fills_is_that_targets_asset() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/
        database: sales
        targets:
          - {name: mart/filled, query: SELECT id FROM orders, glue_table: sales.shown}
          - {name: reader, query: "SELECT * FROM Shown JOIN customers USING (id)"}
        """
    )
    assert [dep.asset_key.to_user_string() for dep in loaded.spec("reader").deps] == [
        "sales/customers",
        "mart/filled",
    ]
    external = loaded.defs.resolve_asset_graph().external_asset_keys
    assert {key.to_user_string() for key in external} == {"sales/orders", "sales/customers"}


def test_tables_that_are_assets_already_are_mapped_by_name_and_not_declared_again() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/
        database: sales
        asset_keys: {Sales.Orders: dbt/orders, awsdatacatalog.sales.items: sales/items}
        targets:
          - {name: reader, query: "SELECT * FROM orders JOIN items USING (id)"}
        """
    )
    assert {dep.asset_key.to_user_string() for dep in loaded.spec("reader").deps} == {"dbt/orders", "sales/items"}
    theirs = [dg.asset(key=key)(lambda: None) for key in (["dbt", "orders"], ["sales", "items"])]
    graph = dg.Definitions.merge(loaded.defs, dg.Definitions(theirs)).resolve_asset_graph()
    assert len(graph.materializable_asset_keys) == len(graph.get_all_asset_keys()) == 3


def test_upstream_assets_can_be_left_to_others() -> None:
    yaml = """
        location_prefix: s3://lake/
        upstream_assets: {}
        targets: [{{name: reader, query: SELECT id FROM sales.orders}}]
        """
    orders = dg.asset(key=["sales", "orders"])(lambda: None)
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="Duplicate"):
        dg.Definitions.merge(load(yaml.format("true")).defs, dg.Definitions([orders])).resolve_asset_graph()
    merged = dg.Definitions.merge(load(yaml.format("false")).defs, dg.Definitions([orders]))
    assert merged.resolve_asset_graph().get(dg.AssetKey("reader")).parent_keys == {orders.key}


class Renamed(AthenaUnloadComponent):
    """A user's own component."""

    def get_asset_spec(self, target: Target) -> dg.AssetSpec:
        spec = super().get_asset_spec(target)
        return spec.replace_attributes(key=spec.key.with_prefix("lake")).merge_attributes(metadata={"said": "so"})

    def get_upstream_key(self, table: UpstreamTable) -> dg.AssetKey:
        return dg.AssetKey(["raw", table.name])


def test_an_overridden_spec_changes_the_asset_and_not_its_pool() -> None:
    component = Renamed(
        targets=[UnloadTarget(name="one", query="SELECT id FROM orders", location="s3://lake/one/", checks=True)],
        group_name="g",
    )
    defs = dg.component_defs(component=component, resources={"athena": AthenaUnloadResource()})
    graph = defs.resolve_asset_graph()
    asset = defs.resolve_assets_def(dg.AssetKey(["lake", "one"]))
    assert graph.get(asset.key).group_name == "g"
    assert graph.get(asset.key).metadata["said"] == "so"
    assert graph.get(asset.key).parent_keys == {dg.AssetKey(["raw", "orders"])}
    assert {key.asset_key for key in graph.asset_check_keys} == {asset.key}
    assert asset.op.pool == asset.op.tags["dagster/concurrency_key"] == "s3://lake/one/"


def test_a_component_publishes_and_its_retry_policy_holds(lake: Lake, instance: dg.DagsterInstance) -> None:
    loaded = load(
        f"""
        location_prefix: s3://{lake.bucket}/published/
        database: {lake.database}
        retry_policy: {{max_retries: 1}}
        targets: [{{name: again, query: SELECT n FROM numbers, retries: 0}}]
        """
    )
    lake.aws.faults.fail_queries(times=1)
    result = run(lake, loaded.asset("again"), instance)
    assert result.success
    assert recorded(result)[0]["dagster/row_count"] == 1_000
    location = loaded.targets[0].location
    assert [query.state for query in lake.queries(location)] == ["FAILED", "SUCCEEDED"]
    lake.assert_published_once(location)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("{name: one}", "one.sql can't be read"),
        ("{name: one, sql_file: gone.sql}", "gone.sql can't be read"),
        ("{name: one, query: SELECT 1 AS one, sql_file: one.sql}", "'one', query"),
        ("{name: one, query: DELETE FROM t}", "DELETE"),
        ("{name: one, query: SELECT 1 AS one, owners: [nobody]}", "Dagster refuses it"),
        ("{name: one, query: SELECT 1 AS one, max_partitions_per_run: 0}", "Give one or more"),
        ("{name: one, query: SELECT 1 AS one, output: {format: XLS}}", "XLS"),
        ("{name: one, query: SELECT 1 AS one, output: CSV}", "CSV"),
        ("{name: one, query: SELECT 1 AS one, mode: direct, adopt_existing: true}", "adopt_existing"),
        ("{name: one, query: SELECT 1 AS one, location: 'one/${partition}'}", "partitions_def"),
        ("{name: one, query: SELECT 1 AS one, partitions: {type: static, keys: [a]}}", "each would replace"),
        (
            "{name: one, query: TABLE t, location: '${partition}', partitions: {type: daily, start_date: soon}}",
            "Dagster refuses them",
        ),
        (
            (
                "{name: one, query: TABLE t, location: '${partition}', partitions: {type: daily,"
                " start_date: 2026-01-01, timezone: Mars/Olympus}}"
            ),
            "Mars/Olympus",
        ),
        (
            (
                "{name: one, query: TABLE t, location: '${partition}', partitions: {type: daily,"
                " start_date: 2026-01-02, end_date: 2026-01-01}}"
            ),
            "there is none",
        ),
        (
            (
                "{name: one, query: TABLE t, location: '${partition}', partitions: {type: daily,"
                " start_date: 2026-01-02, timezone: Europe}}"
            ),
            "Dagster refuses them",
        ),
        (
            (
                "{name: one, query: TABLE t, location: '${a}/${b}', dimensions: [a, b], partitions: {type: multi,"
                " dimensions: {a: {type: daily, start_date: 2026-01-01, timezone: Mars/Olympus},"
                " b: {type: static, keys: [x]}}}}"
            ),
            "Mars/Olympus",
        ),
    ],
)
def test_a_wrong_target_is_refused_by_file_and_name(target: str, text: str) -> None:
    said = refused(f"location_prefix: s3://lake/\ntargets: [{target}]")
    assert said.startswith("target 'one', ")
    assert text in said


def test_two_targets_in_one_place_are_refused_by_file_and_name() -> None:
    said = refused(
        """
        location_prefix: s3://lake/
        targets:
          - {name: one, query: SELECT 1 AS one}
          - {name: two, query: SELECT 1 AS one, location: one/more}
        """
    )
    assert said.startswith("target 'two', location in ")


def test_two_targets_that_fill_one_table_are_refused_by_file_and_name() -> None:
    said = refused(
        """
        location_prefix: s3://lake/
        targets:
          - {name: one, query: SELECT 1 AS one, glue_table: sales.shown}
          - {name: two, query: SELECT 1 AS one, glue_table: sales.shown}
        """
    )
    assert said.startswith("target 'two', glue_table in ")
    assert "target 'one' fills sales.shown too" in said


READS_ORDERS = """
    location_prefix: s3://lake/
    asset_keys: {{{0}: dbt/orders}}
    targets: [{{name: one, query: "{1}"}}]
"""


def test_asset_keys_of_a_table_that_no_target_reads_are_refused() -> None:
    told = dagster_refuses(READS_ORDERS.format("sales.ordres", "SELECT id FROM sales.orders"))
    assert "no target reads the table 'sales.ordres'; they read sales.orders." in told


def test_asset_keys_are_not_judged_where_it_is_not_known_what_is_read() -> None:
    loaded = load(READS_ORDERS.format("sales.orders", "SELECT * FROM TABLE(some_function(x => 1))"))
    assert list(loaded.spec("one").deps) == []


def test_athenas_syntax_is_not_judged_at_load() -> None:
    assert (
        list(load("targets: [{name: one, query: SELECT FROM WHERE, location: 's3://lake/one/'}]").spec("one").deps)
        == []
    )


def test_the_partitions_that_the_schema_names_are_those_that_a_template_can_make() -> None:
    scope = dg.ResolutionContext.default().scope["dg"]
    every = [name for name in dir(dg) if name.endswith("PartitionsDefinition")]
    assert {name for name in every if hasattr(scope, name)} == set(PARTITIONS_IN_TEMPLATES)


def test_a_target_without_a_place_is_refused_by_file_and_name() -> None:
    assert refused("targets: [{name: one, query: SELECT 1 AS one}]").startswith("target 'one', location in ")


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ("targets: [{name: one, qeury: SELECT 1 AS one}]", "qeury"),
        ("targets: [{query: SELECT 1 AS one}]", "name"),
        ("targets: []\nasset_keys: {orders: dbt/orders}", "asset_keys"),
        ("targets: [{name: one, partitions: {type: static}}]", "give keys with type static"),
        ("targets: [{name: one, partitions: {type: daily}}]", "give keys with type static"),
        ("targets: [{name: one, partitions: daily}]", "'daily' is neither a mapping nor a template"),
        ("targets: []\nretry_policy: {max_retries: -1}", "give zero or more max_retries"),
        ("targets: []\nretry_policy: {max_retries: 1, delay: -0.5}", "zero or more seconds of delay"),
        ("targets: []\nretry_policy: {max_retries: 1, delay: .inf}", "zero or more seconds of delay"),
        ("targets: []\nretry_policy: often", "'often' is neither a mapping nor a template"),
    ],
)
def test_a_wrong_field_is_refused_with_its_place_in_the_file(attributes: str, text: str) -> None:
    assert text in dagster_refuses(attributes)


def test_what_the_command_line_cannot_read_is_told_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "defs.yaml"
    path.write_text(
        "type: athena_assets.AthenaUnloadComponent\nattributes: {targets: [{name: one, qeury: SELECT 1}]}\n"
    )
    with pytest.raises(ValueError, match="qeury") as caught:
        AthenaUnloadComponent.targets_in(path)
    assert str(path) in caught.value.__notes__[0]


def test_other_components_of_a_file_are_not_the_command_lines(tmp_path: Path) -> None:
    path = tmp_path / "defs.yaml"
    path.write_text("type: dagster.DefinitionsComponent\nattributes: {path: some.py}\n---\n")
    assert AthenaUnloadComponent.targets_in(path) == []


def test_the_component_has_a_short_name_that_waits_with_importing_dagster() -> None:
    script = (
        "import sys, athena_assets\n"
        "assert 'dagster' not in sys.modules\n"
        "assert 'AthenaUnloadComponent' in dir(athena_assets)\n"
        "from athena_assets import AthenaUnloadComponent\n"
        "assert AthenaUnloadComponent is sys.modules['athena_assets.orchestration'].AthenaUnloadComponent\n"
        "assert not hasattr(athena_assets, 'AthenaUnload')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


# --- schema and scaffold ---------------------------------------------------------------------------------------------


def described(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for model in (schema, *schema.get("$defs", {}).values()):
        for name, field in model.get("properties", {}).items():
            yield f"{model['title']}.{name}", field


def test_every_field_has_a_description_and_an_example() -> None:
    model = AthenaUnloadComponent.get_model_cls()
    assert model is not None
    found = dict(described(model.model_json_schema()))
    assert {"Athena Unload Component.targets", "Unload Target.location", "Partitions Fields.start_date"} <= set(found)
    assert [name for name, field in found.items() if not (field.get("description") and field.get("examples"))] == []


@pytest.mark.parametrize(("form", "name"), [("yaml", "my-numbers"), ("python", "numbers")])
def test_what_is_scaffolded_loads(form: Any, name: str) -> None:
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(AthenaUnloadComponent, name, scaffold_format=form)
        assert (folder / f"{name.replace('-', '_')}.sql").is_file()
        with sandbox.build_component_tree() as tree:
            resources = dg.Definitions(resources={"athena": AthenaUnloadResource()})
            defs = dg.Definitions.merge(tree.build_defs(), resources)
            keys = {key.to_user_string() for key in defs.resolve_asset_graph().materializable_asset_keys}
    assert keys == {name.replace("-", "_")}


def test_a_second_component_in_one_folder_gets_a_query_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "numbers").mkdir()
    for append in (False, True):
        request: dg.ScaffoldRequest[Any] = dg.ScaffoldRequest(
            type_name="athena_assets.AthenaUnloadComponent",
            target_path=tmp_path / "numbers" / "defs.yaml" if append else tmp_path / "numbers",
            scaffold_format="yaml",
            project_root=None,
            params=None,
            append=append,
        )
        UnloadScaffolder().scaffold(request)
    assert {each.name for each in AthenaUnloadComponent.targets_in(tmp_path / "numbers" / "defs.yaml")} == {
        "numbers",
        "numbers_2",
    }


def test_checks_and_those_that_block_are_chosen_by_name() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/
        checks: [scrub, row_count]
        blocking_checks: [scrub]
        targets:
          - {name: one, query: SELECT 1 AS one}
          - {name: two, query: SELECT 1 AS one, checks: [row_count], blocking_checks: []}
        """
    )
    specs = [spec for each in loaded.own.asset_checks or () for spec in each.check_specs]
    assert {(spec.asset_key.to_user_string(), spec.name): spec.blocking for spec in specs} == {
        ("one", "scrub"): True,
        ("one", "row_count"): False,
        ("two", "row_count"): False,
    }
    told = refused(
        """
        location_prefix: s3://lake/
        checks: [scrap]
        targets: [{name: one, query: SELECT 1 AS one}]
        """
    )
    assert "target 'one', checks in" in told
    assert "'scrap' is none of its checks" in told


def test_several_dimensions_are_declared_by_name() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/
        targets:
          - name: multi
            query: SELECT ${day} AS day, ${origin} AS origin
            location: multi/day=${day}/origin=${origin}
            grain: day
            dimensions: [day, origin]
            partitions:
              type: multi
              dimensions:
                day: {type: daily, start_date: 2024-01-01}
                origin: {type: static, keys: [EWR, "007"]}
        """
    )
    [target] = loaded.targets
    assert target.dimensions == ("day", "origin")
    assert loaded.asset("multi").partitions_def == dg.MultiPartitionsDefinition(
        {
            "day": dg.DailyPartitionsDefinition("2024-01-01"),
            "origin": dg.StaticPartitionsDefinition(["EWR", "007"]),
        }
    )
    assert str(target.location_for("2024-01-31|JFK")) == "s3://lake/multi/day=2024-01-31/origin=JFK/"


def test_a_sensor_is_declared_by_its_name_and_reports_on_the_assets_of_the_component() -> None:
    loaded = load(
        """
        location_prefix: s3://lake/
        database: sales
        asset_keys: {sales.orders: dbt/orders}
        sensor: sales_tables
        targets:
          - {name: one, query: SELECT id FROM orders}
          - {name: two, query: SELECT id FROM customers}
        """
    )
    [sensor] = loaded.own.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert sensor.name == "sales_tables"
    assert sensor.asset_selection is not None
    assert sensor.asset_selection.resolve(loaded.defs.resolve_asset_graph()) == {dg.AssetKey("one"), dg.AssetKey("two")}
