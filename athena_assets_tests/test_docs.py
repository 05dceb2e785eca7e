"""What docs/ says is what the code does: its fields, its figures, its examples and its quoted errors."""

from __future__ import annotations

import dataclasses
import inspect
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from athena_assets import AwsSettings, OnConflict, OutputFormat, Published, Publisher, Reuse, Target, errors
from athena_assets.aws.driver import Driver, new_caller
from athena_assets.aws.executions import Execution, Status
from athena_assets.aws.glue_versions import VersionKind
from athena_assets.aws.session import AwsClients
from athena_assets.core import effects, keys
from athena_assets.core.effects import CopyObject, Effect, PollQuery, ReadObject, Unanswered
from athena_assets.core.location import Location, parse_location
from athena_assets.core.output import _COMPRESSIONS
from athena_assets.core.partition import Grain
from athena_assets.core.register import Mode
from athena_assets.core.target import Guard, OnEmpty
from athena_assets.local import EmbeddedAws, Fault, Respond
from athena_assets.orchestration import AthenaUnloadComponent, UnloadTarget, metadata
from athena_assets.orchestration.checks import CHECKS
from athena_assets.orchestration.fields import SharedFields
from athena_assets.orchestration.upstream import build_upstream_sensor
from athena_assets.sql import inspect_query
from athena_assets.step_functions.documents import Wish
from athena_assets.step_functions.machine import Bus, Topic, state_machine
from athena_assets.step_functions.publisher import outcome_of
from athena_assets_tests.deploy.template import STEP_FUNCTIONS_YAML, load_template
from athena_assets_tests.e2e.lake import Lake, wait_until
from athena_assets_tests.orchestration.yaml_defs import load_text

DOCS = Path(__file__).parents[1] / "docs"
PAGES = tuple(sorted(page.name for page in DOCS.glob("*.md")))
FILES = 4


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def tables(text: str, first: str) -> list[dict[str, str]]:
    """The rows of the one table whose first heading is `first`, as heading -> cell."""
    lines = iter(text.splitlines())
    for line in lines:
        headings = _cells(line)
        if headings and headings[0] == first:
            next(lines)
            found: list[dict[str, str]] = []
            for row in lines:
                if not row.startswith("|"):
                    return found
                found.append(dict(zip(headings, _cells(row), strict=True)))
            return found
    raise AssertionError(f"there is no table that begins with {first!r}")


def _cells(line: str) -> list[str]:
    return [each.strip() for each in re.split(r"(?<!\\)\|", line)[1:-1]] if line.startswith("|") else []


def sections(text: str) -> dict[str, str]:
    """Heading -> text below it, for headings of the third level."""
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


class Sales(Lake):
    """The lake of the examples: bucket `lake`, table `sales.orders`."""

    def __init__(self, aws: EmbeddedAws) -> None:
        aws.reset()
        aws.faults.rows_per_file(25)
        self.aws = aws
        self.bucket = "lake"
        self.database = "sales"
        self.s3 = aws.client("s3")
        self.s3.create_bucket(Bucket=self.bucket)
        self.glue = aws.client("glue")
        self.glue.create_database(DatabaseInput={"Name": self.database})
        self.settings = AwsSettings(
            endpoint_url=aws.endpoint_url,
            region="us-east-1",
            access_key_id="testing",
            secret_access_key="testing",
            output_location="s3://lake/athena-results/",
        )
        rows = pa.table({"id": list(range(100)), "country": ["AT", "CH"] * 50, "day": ["2024-01-31"] * 100})
        body = io.BytesIO()
        pq.write_table(rows, body)
        self.s3.put_object(Bucket=self.bucket, Key="raw/orders/part-0.parquet", Body=body.getvalue())
        columns = (("id", "bigint"), ("country", "string"), ("day", "string"))
        hive = "org.apache.hadoop.hive.ql.io.parquet"
        self.glue.create_table(
            DatabaseName=self.database,
            TableInput={
                "Name": "orders",
                "TableType": "EXTERNAL_TABLE",
                "Parameters": {"classification": "parquet", "EXTERNAL": "TRUE"},
                "StorageDescriptor": {
                    "Columns": [{"Name": name, "Type": kind} for name, kind in columns],
                    "Location": f"s3://{self.bucket}/raw/orders/",
                    "InputFormat": f"{hive}.MapredParquetInputFormat",
                    "OutputFormat": f"{hive}.MapredParquetOutputFormat",
                    "SerdeInfo": {"SerializationLibrary": f"{hive}.serde.ParquetHiveSerDe"},
                },
            },
        )

    def target(self, name: str = "daily", **changes: Any) -> Target:
        return super().target(name, **({"query": "SELECT id, country FROM orders"} | changes))


@pytest.fixture(scope="module")
def aws() -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start() as server:
        yield server


@pytest.fixture
def sales(aws: EmbeddedAws) -> Sales:
    return Sales(aws)


# --- every page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page(name)):
        if not link.startswith("https://"):
            assert (DOCS / link).exists(), link


@pytest.mark.parametrize("name", PAGES)
def test_a_row_of_a_table_is_one_line_with_all_its_cells(name: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", page(name), flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"^\|.*?(?=\n\n|\Z)", prose, flags=re.MULTILINE | re.DOTALL):
        assert len({len(_cells(row)) for row in table.splitlines()}) == 1, table


@pytest.mark.parametrize("name", ["assets.md", "production.md", "publish-modes.md", "sensors.md", "targets.md"])
def test_python_examples_run(name: str, sales: Sales, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in sales.aws.environment().items():
        monkeypatch.setenv(variable, value)
    namespace: dict[str, Any] = {}
    found = blocks(page(name), "python")
    assert found
    for number, block in enumerate(found, 1):
        exec(compile(block, f"{name}, example {number}", "exec"), namespace)


# --- assets.md -------------------------------------------------------------------------------------------------------


def test_the_three_declarations_of_the_page_are_one_asset(sales: Sales, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in sales.aws.environment().items():
        monkeypatch.setenv(variable, value)
    text = page("assets.md")
    namespace: dict[str, Any] = {}
    for block in blocks(text, "python")[:3]:
        exec(compile(block, "assets.md", "exec"), namespace)
    in_yaml, mapped = (load_text(block, by_country=blocks(text, "sql")[0]) for block in blocks(text, "yaml"))
    declared = [in_yaml.asset("by_country"), namespace["by_country"], namespace["by_country_too"]]
    [first, second, third] = [next(iter(asset.specs)) for asset in declared]
    assert first.replace_attributes(metadata={}) == second == third.replace_attributes(key="by_country")
    assert {asset.op.pool for asset in declared} == {"s3://lake/published/by_country/"}
    assert [dep.asset_key.to_user_string() for dep in mapped.spec("by_country").deps] == ["dbt/orders"]


def test_every_field_of_the_yaml_is_documented() -> None:
    def documented(heading: str) -> set[str]:
        return {name for row in tables(page("assets.md"), heading) for name in re.findall(r"`(\w+)`", row[heading])}

    shared, component = set(SharedFields.model_fields), set(AthenaUnloadComponent.model_fields)
    assert documented("For all, or one target") == shared
    assert documented("One target only") == set(UnloadTarget.model_fields) - shared
    assert documented("The component only") == component - shared


# --- deploy.md --------------------------------------------------------------------------------------------------------


def documented_parameters(text: str) -> dict[str, str]:
    return {row["Parameter"].strip("`"): row["Default"].strip("`") for row in tables(text, "Parameter")}


def parameters(template: dict[str, Any]) -> dict[str, str]:
    return {
        name: "none" if each.get("Default") == "" else str(each.get("Default", ""))
        for name, each in template["Parameters"].items()
    }


def test_parameters_statements_and_rules_of_the_template_are_documented() -> None:
    text, template = page("deploy.md"), load_template()
    bucket, policy = template["Resources"]["Bucket"], template["Resources"]["BucketPolicy"]
    assert documented_parameters(text) == parameters(template)
    assert [row["Statement"].strip("`") for row in tables(text, "Statement")] == [
        each["Sid"] for each in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert [row["Rule"].strip("`") for row in tables(text, "Rule")] == [
        each["Id"] for each in bucket["Properties"]["LifecycleConfiguration"]["Rules"]
    ]


# --- step-functions.md -----------------------------------------------------------------------------------------------


def test_parameters_of_the_template_of_the_state_machine_are_documented() -> None:
    assert documented_parameters(page("step-functions.md")) == parameters(load_template(STEP_FUNCTIONS_YAML))


def test_every_state_is_documented_with_its_type() -> None:
    documented = {row["State"].strip("`"): row["Type"] for row in tables(page("step-functions.md"), "State")}
    states = state_machine("publish", Bus("results"))["States"]
    assert documented == {name: state["Type"] for name, state in states.items()}


def test_every_error_that_a_step_is_tried_again_for_is_documented_with_the_tries() -> None:
    documented = {
        error: int(row["Tries"].removesuffix(" more"))
        for row in tables(page("step-functions.md"), "Error")
        for error in re.findall(r"`([^`]+)`", row["Error"])
    }
    retries = state_machine("publish")["States"]["Step"]["Retry"]
    assert documented == {error: retry["MaxAttempts"] for retry in retries for error in retry["ErrorEquals"]}


def test_every_field_of_a_notification_is_documented() -> None:
    states = state_machine("publish", Topic("${Topic}"))["States"]
    told = {
        which: {field.removesuffix(".$") for field in states[name]["Parameters"]["Message"]}
        for which, name in (("success", "Notify"), ("failure", "NotifyFailure"))
    }
    for row in tables(page("step-functions.md"), "Field"):
        where = {which for which, fields in told.items() if row["Field"].strip("`") in fields}
        assert where == ({"success", "failure"} if row["In"] == "both" else {row["In"]}), row
    assert len(tables(page("step-functions.md"), "Field")) == len(set.union(*told.values()))


def test_every_field_of_an_executions_input_is_documented() -> None:
    rows = tables(page("step-functions.md"), "Input")
    assert [row["Input"].strip("`") for row in rows] == [each.name for each in dataclasses.fields(Wish)]


def test_the_input_of_the_example_has_a_target() -> None:
    [block] = blocks(page("step-functions.md"), "json")
    assert Target(**json.loads(block)["target"]).name == "daily_orders"


# --- targets.md ------------------------------------------------------------------------------------------------------


def test_every_field_of_a_target_is_documented_with_its_type_and_default() -> None:
    rows = {row["Field"].strip("`"): row for row in tables(page("targets.md"), "Field")}
    fields = {each.name: each for each in dataclasses.fields(Target)}
    assert list(rows) == list(fields)
    for name, row in rows.items():
        assert row["Default"] == _default(fields[name]), name
        assert row["Type"].replace(r"\|", "|").strip("`") == str(fields[name].type), name


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "`{}`"
    if field.default is dataclasses.MISSING:
        return "required"
    if isinstance(field.default, OutputFormat):
        return "`'PARQUET'`"
    return f"`{str(field.default)!r}`" if isinstance(field.default, str) else f"`{field.default!r}`"


def test_every_field_of_an_output_is_documented() -> None:
    rows = [row["Property"].strip("`") for row in tables(page("targets.md"), "Property")]
    assert rows == [each.name for each in dataclasses.fields(OutputFormat)]


def test_formats_and_their_compressions_are_the_codes() -> None:
    rows = {row["Format"].strip("`"): row["Compressions"] for row in tables(page("targets.md"), "Format")}
    assert {name: tuple(re.findall(r"`(\w+)`", cell)) for name, cell in rows.items()} == _COMPRESSIONS


def test_grains_and_their_keys_are_the_codes() -> None:
    rows = {row["Grain"].strip("`"): row["Key"].strip("`") for row in tables(page("targets.md"), "Grain")}
    assert rows == {grain.value: grain.key_format for grain in Grain}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("on_conflict", OnConflict),
        ("reuse", Reuse),
        ("guard", Guard),
        ("mode", Mode),
        ("on_empty", OnEmpty),
        ("grain", Grain),
    ],
)
def test_every_choice_is_named_in_the_row_of_its_field(name: str, kind: Any) -> None:
    (row,) = [row for row in tables(page("targets.md"), "Field") if row["Field"] == f"`{name}`"]
    assert [choice for choice in kind if f"`{choice}`" not in row["Meaning"]] == []


def test_every_key_of_the_metadata_is_documented() -> None:
    source = inspect.getsource(metadata.outcome_metadata) + inspect.getsource(metadata._request)
    keys = set(re.findall(r'"((?:dagster|athena_assets)/[a-z0-9_]+)"', source))
    documented = " ".join(row["Key"] for row in tables(page("runs.md"), "Key"))
    assert set(re.findall(r"`([^`]+)`", documented)) == keys


def test_every_check_is_documented() -> None:
    assert [row["Check"].strip("`") for row in tables(page("runs.md"), "Check")] == list(CHECKS)


def test_the_window_of_a_partition_can_be_used_in_a_query(sales: Sales) -> None:
    target = sales.target(
        query="SELECT id FROM orders WHERE day >= ${partition_start} AND day < ${partition_end}",
        location="s3://lake/published/daily/${partition}/",
        grain="day",
    )
    assert isinstance(sales.publisher().unload(target, partition="2024-01-31"), Published)


# --- sensors.md -------------------------------------------------------------------------------------------------------


def test_every_argument_of_the_sensor_is_documented_with_its_default() -> None:
    rows = {row["Argument"].strip("`"): row["Default"].strip("`") for row in tables(page("sensors.md"), "Argument")}
    parameters = list(inspect.signature(build_upstream_sensor).parameters.values())[1:]
    assert list(rows) == [each.name for each in parameters]
    named = {"upstream_key": "upstream_key", "default_status": "STOPPED", "clock": "time.time"}
    assert rows == {each.name: named.get(each.name, repr(each.default)) for each in parameters}


def test_every_kind_of_version_is_documented() -> None:
    rows = [row["Kind"].strip("`") for row in tables(page("sensors.md"), "Kind")]
    assert rows == [*VersionKind, "a function"]


# --- publish-modes.md ------------------------------------------------------------------------------------------------


def calls_of(sales: Sales, work: Callable[[], object]) -> Counter[str]:
    before = max((each.sequence for each in sales.aws.requests()), default=0)
    work()
    return Counter(
        each.operation
        for each in sales.aws.requests("s3")
        if each.sequence > before and "athena_assets/" in each.user_agent
    )


def test_the_number_of_s3_calls_is_as_measured(sales: Sales) -> None:
    publisher = sales.publisher(lease=60)
    staged, unkept = sales.target("staged"), sales.target("unkept", keep_previous=0)
    measured = {
        "staged, first": calls_of(sales, lambda: publisher.unload(staged)),
        "staged, second": calls_of(sales, lambda: publisher.unload(staged, force=True)),
        "staged, later": calls_of(sales, lambda: publisher.unload(staged, force=True)),
        "reused": calls_of(sales, lambda: publisher.unload(staged)),
        "direct": calls_of(sales, lambda: publisher.unload(sales.target("direct", mode="direct"))),
        "pointer": calls_of(sales, lambda: publisher.unload(sales.target("pointer", mode="pointer"))),
        "pointer, with `glue_table`": calls_of(
            sales, lambda: publisher.unload(sales.target("shown", mode="pointer", glue_table="sales.shown"))
        ),
    }
    publisher.unload(unkept)
    measured["staged, `keep_previous=0`"] = calls_of(sales, lambda: publisher.unload(unkept, force=True))
    assert len(sales.listing("s3://lake/published/staged/")) == FILES
    rows = {row.pop("Publication"): row for row in tables(page("publish-modes.md"), "Publication")}
    names = ("GetObject", "ListObjectsV2", "PutObject", "CopyObject", "DeleteObject")
    assert all(set(calls) <= set(names) for calls in measured.values())
    assert rows == {
        name: {**{each: str(calls[each]) for each in names}, "Sum": str(calls.total())}
        for name, calls in measured.items()
    }


# --- troubleshooting.md ----------------------------------------------------------------------------------------------


class Clockwork(Driver):
    """The real driver on a clock that jumps, so that five minutes of patience pass at once.

    `before` is called before each effect; an answer of its own stands in for the effect's.
    """

    def __init__(
        self,
        sales: Sales,
        target: Target,
        before: Callable[[Effect[Any]], Any] | None = None,
        request_id: str = "run-7",
    ) -> None:
        publisher = sales.publisher(lease=60)
        self.request = publisher._request(target, inspect_query(target), None, request_id, False, {}, None)
        super().__init__(AwsClients(sales.settings), self.request.slot)
        self._now = 0.0
        self._before = before

    def perform(self, effect: Effect[Any]) -> Any:
        answer = None if self._before is None else self._before(effect)
        if answer is not None:
            return answer
        if isinstance(effect, effects.Sleep):
            self._now += effect.seconds
            return None
        return self._now if isinstance(effect, effects.ReadClock) else super().perform(effect)

    def publish(self) -> object:
        return self.run(new_caller(self.request).publish())


def invalid_target(sales: Sales) -> Iterator[Callable[[], object]]:
    yield lambda: sales.target(location="s3://lake/")
    yield lambda: sales.target(query="SELECT id FROM orders WHERE day = '${partition}'")


def slot_busy(sales: Sales) -> Iterator[Callable[[], object]]:
    publisher = sales.publisher(lease=60)
    hold = sales.aws.faults.hold_queries()
    with pytest.raises(_OwnerDies):
        Clockwork(sales, sales.target(), _die_while_running).publish()
    wait_until(lambda: sales.aws.faults.held(hold), "the query is held")
    yield lambda: publisher.unload(sales.target(on_conflict="fail"))
    yield Clockwork(sales, sales.target(wait_timeout=30), request_id="run-8").publish
    yield Clockwork(sales, sales.target(wait_timeout=30)).publish
    sales.aws.faults.release(hold)


class _OwnerDies(Exception):
    pass


def _die_while_running(effect: Effect[Any]) -> None:
    if isinstance(effect, PollQuery):
        raise _OwnerDies


def foreign_query_running(sales: Sales) -> Iterator[Callable[[], object]]:
    hold = sales.aws.faults.hold_queries()
    sales.aws.client("athena").start_query_execution(
        QueryString="unload (select id from orders where country = 'AT') to 's3://lake/published/daily/at' with"
        " (format = 'PARQUET')",
        QueryExecutionContext={"Database": "sales"},
        ResultConfiguration={"OutputLocation": "s3://lake/athena-results/"},
    )
    wait_until(lambda: sales.aws.faults.held(hold), "the query is held")
    yield lambda: sales.publisher().unload(sales.target(guard="always", on_conflict="fail"))
    yield Clockwork(sales, sales.target(guard="always", wait_timeout=30)).publish
    sales.aws.faults.release(hold)


def location_not_empty(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.s3.put_object(Bucket="lake", Key="published/daily/notes.txt", Body=b"precious")
    for mode in ("staged", "direct"):
        target = sales.target(mode=mode)
        yield lambda target=target: sales.publisher().unload(target)  # type: ignore[misc]


def mode_changed(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.publisher().unload(sales.target())
    yield lambda: sales.publisher().unload(sales.target(mode="pointer"))
    for key in sales.listing("s3://lake/published/daily/"):
        sales.s3.delete_object(Bucket="lake", Key=key)
    sales.publisher().unload(sales.target(mode="pointer"))
    yield lambda: sales.publisher().unload(sales.target())


def table_not_ours(sales: Sales) -> Iterator[Callable[[], object]]:
    target = sales.target(mode="pointer", glue_table="sales.orders")
    yield lambda: sales.publisher().unload(target)


def location_overlaps(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.publisher().unload(sales.target("all", location="s3://lake/published/"))
    yield lambda: sales.publisher().unload(sales.target())


def outcome_unknown(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.aws.faults.add(Fault(Respond(503, "SlowDown"), "s3", "PutObject", "register.json", times=None))
    yield Clockwork(sales, sales.target()).publish


def service_unavailable(sales: Sales) -> Iterator[Callable[[], object]]:
    def silent(effect: Effect[Any]) -> Unanswered | None:
        return Unanswered("HTTP 503 SlowDown") if isinstance(effect, ReadObject) else None

    yield Clockwork(sales, sales.target(), silent).publish


def access_denied(sales: Sales) -> Iterator[Callable[[], object]]:
    rule = sales.aws.faults.add(Fault(Respond(403, "AccessDenied"), "s3", "PutObject", "register.json"))
    yield lambda: sales.publisher().unload(sales.target())
    sales.aws.faults.remove(rule)
    sales.aws.faults.add(Fault(Respond(403, "AccessDenied"), "s3", "CopyObject", "00000001-01-00000"))
    yield lambda: sales.publisher().unload(sales.target())
    yield lambda: sales.publisher().unload(sales.target(location="s3://no-such-bucket/published/daily/"))


def register_vanished(sales: Sales) -> Iterator[Callable[[], object]]:
    def delete(effect: Effect[Any]) -> None:
        if isinstance(effect, PollQuery):
            sales.s3.delete_object(Bucket="lake", Key=keys.register_key(parse_location("s3://lake/published/daily/")))

    yield Clockwork(sales, sales.target(), delete).publish


def register_unreadable(sales: Sales) -> Iterator[Callable[[], object]]:
    key = keys.register_key(parse_location("s3://lake/published/daily/"))
    sales.s3.put_object(Bucket="lake", Key=key, Body=b'{"schema": 2}')
    yield lambda: sales.publisher().unload(sales.target())


def chain_broken(sales: Sales) -> Iterator[Callable[[], object]]:
    target, publisher = sales.target(), sales.publisher()
    publisher.unload(target)
    sales.prolong(target.location, 40)
    for fence in range(1, 41):
        sales.s3.delete_object(
            Bucket="lake", Key=keys.manifest_key(parse_location("s3://lake/published/daily/"), fence, 1)
        )
    yield lambda: publisher.unload(target, request_id="run-7")


def publication_lost(sales: Sales) -> Iterator[Callable[[], object]]:
    def delete(effect: Effect[Any]) -> None:
        for each in effect.effects if isinstance(effect, effects.AtOnce) else ():
            if isinstance(each, CopyObject):
                sales.s3.delete_object(Bucket="lake", Key=each.source)

    yield Clockwork(sales, sales.target(), delete).publish


def not_kept(sales: Sales) -> Iterator[Callable[[], object]]:
    location, publisher = parse_location("s3://lake/published/daily/"), sales.publisher()
    for _ in range(3):
        publisher.unload(sales.target(), force=True)
    yield lambda: publisher.restore(location, 1)
    sales.s3.delete_object(Bucket="lake", Key=next(iter(sales.listing(f"s3://lake/{keys.backup_root(location)}"))))
    yield lambda: publisher.restore(location, 2)


def not_blocked(sales: Sales) -> Iterator[Callable[[], object]]:
    yield lambda: sales.publisher().repair(parse_location("s3://lake/published/daily/"))


def nothing_published(sales: Sales) -> Iterator[Callable[[], object]]:
    yield lambda: sales.publisher().read_manifest(sales.target())


def not_rebuilt(sales: Sales) -> Iterator[Callable[[], object]]:
    location, publisher = parse_location("s3://lake/published/daily/"), sales.publisher()
    publisher.unload(sales.target(), request_id="run-6")
    yield lambda: publisher.rebuild(location, write=True)

    def die(effect: Effect[Any]) -> None:
        if isinstance(effect, effects.AtOnce):
            raise _OwnerDies

    with pytest.raises(_OwnerDies):
        Clockwork(sales, sales.target(keep_previous=0, reuse="never"), die).publish()
    sales.s3.delete_object(Bucket="lake", Key=keys.register_key(location))
    yield lambda: publisher.rebuild(location, write=True)


def request_conflict(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.publisher().unload(sales.target(), request_id="run-7")
    changed = sales.target(query="SELECT id FROM orders")
    yield lambda: sales.publisher().unload(changed, request_id="run-7")


def workgroup_conflict(sales: Sales) -> Iterator[Callable[[], object]]:
    for location in ("s3://lake/published/", None):
        publisher = Publisher(dataclasses.replace(sales.settings, output_location=location))
        yield lambda publisher=publisher: publisher.unload(sales.target())  # type: ignore[misc]
    sales.aws.client("athena").create_work_group(
        Name="analysts",
        Configuration={
            "EnforceWorkGroupConfiguration": True,
            "ResultConfiguration": {"OutputLocation": "s3://lake/analysts/"},
        },
    )
    yield lambda: sales.publisher().unload(sales.target(workgroup="analysts"))


def _failing(sales: Sales, reason: str, **how: Any) -> Callable[[], object]:
    sales.aws.faults.fail_queries(reason=reason, **how)
    return lambda: sales.publisher().unload(sales.target(retries=0))


EXECUTION = "arn:aws:states:eu-central-1:123456789012:execution:unload:daily-3f1c"


def execution_failed(sales: Sales) -> Iterator[Callable[[], object]]:
    cause = '{"errorMessage": "RequestId: 1 Error: Runtime exited with error: exit status 1"}'
    yield _ended(Execution(EXECUTION, Status.FAILED, error="Runtime.ExitError", cause=cause))
    yield _ended(Execution(EXECUTION, Status.SUCCEEDED, output="{}"))


def execution_stopped(sales: Sales) -> Iterator[Callable[[], object]]:
    yield _ended(Execution(EXECUTION, Status.ABORTED))


def _ended(execution: Execution) -> Callable[[], object]:
    def told() -> object:
        result = outcome_of(Location("lake", "published/daily/"), execution)
        raise result if isinstance(result, Exception) else AssertionError(result)

    return told


def query_failed(sales: Sales) -> Iterator[Callable[[], object]]:
    reason = "Insufficient Lake Formation permission(s) on orders"
    yield _failing(sales, reason, error_category=3, retryable=False)


def query_user_error(sales: Sales) -> Iterator[Callable[[], object]]:
    message = "line 3:29: mismatched input 'WHERE'. Expecting: <expression>"  # Athena's own words
    sales.aws.faults.add(Fault(Respond(400, "InvalidRequestException", message), "athena", "StartQueryExecution"))
    yield lambda: sales.publisher().unload(sales.target(query="SELECT id FROM orders WHERE WHERE"))
    yield lambda: sales.publisher().unload(sales.target(query="SELECT id FROM order_items"))


def too_many_partitions(sales: Sales) -> Iterator[Callable[[], object]]:
    reason = "HIVE_TOO_MANY_OPEN_PARTITIONS: Exceeded limit of 100 open writers for partitions/buckets"
    yield _failing(sales, reason, error_category=2, retryable=False)


def query_throttled(sales: Sales) -> Iterator[Callable[[], object]]:
    message = "You have exceeded the limit for the number of queries you can run concurrently."
    refusal = Respond(400, "TooManyRequestsException", message)
    sales.aws.faults.add(Fault(refusal, "athena", "StartQueryExecution", times=None))
    yield Clockwork(sales, sales.target()).publish


def query_internal_error(sales: Sales) -> Iterator[Callable[[], object]]:
    yield _failing(sales, "GENERIC_INTERNAL_ERROR: Node failed", times=None)


def scan_limit_exceeded(sales: Sales) -> Iterator[Callable[[], object]]:
    yield _failing(sales, "Query cancelled! : Bytes scanned limit was exceeded")


def query_timed_out(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.aws.faults.hold_queries()
    yield Clockwork(sales, sales.target(timeout=600)).publish


def query_cancelled(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.aws.faults.hold_queries()

    def stop(effect: Effect[Any]) -> None:
        if isinstance(effect, PollQuery):
            sales.aws.client("athena").stop_query_execution(QueryExecutionId=effect.query_id)

    yield Clockwork(sales, sales.target(), stop).publish


def empty_result(sales: Sales) -> Iterator[Callable[[], object]]:
    empty = sales.target(query="SELECT id FROM orders WHERE id < 0", on_empty="fail")
    yield lambda: sales.publisher().unload(empty)


def dirty_location(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.aws.faults.fail_queries(reason="GENERIC_INTERNAL_ERROR: Node failed", after_files=2)
    yield lambda: sales.publisher().unload(sales.target(mode="direct"))


def mixed_location(sales: Sales) -> Iterator[Callable[[], object]]:
    def intrude(effect: Effect[Any]) -> None:
        if isinstance(effect, PollQuery):
            sales.s3.put_object(Bucket="lake", Key="published/daily/notes.txt", Body=b"precious")

    yield Clockwork(sales, sales.target(mode="direct"), intrude).publish


def result_invalid(sales: Sales) -> Iterator[Callable[[], object]]:
    sales.aws.faults.lose_manifest()
    yield Clockwork(sales, sales.target()).publish


SCENARIOS = (
    invalid_target,
    slot_busy,
    foreign_query_running,
    location_not_empty,
    mode_changed,
    table_not_ours,
    location_overlaps,
    outcome_unknown,
    service_unavailable,
    access_denied,
    register_vanished,
    register_unreadable,
    chain_broken,
    publication_lost,
    not_kept,
    not_blocked,
    nothing_published,
    not_rebuilt,
    request_conflict,
    workgroup_conflict,
    execution_failed,
    execution_stopped,
    query_failed,
    query_user_error,
    too_many_partitions,
    query_throttled,
    query_internal_error,
    scan_limit_exceeded,
    query_timed_out,
    query_cancelled,
    empty_result,
    dirty_location,
    mixed_location,
    result_invalid,
)


def class_name(scenario: Callable[..., object]) -> str:
    return "".join(word.capitalize() for word in scenario.__name__.split("_"))


def texts(scenario: Callable[[Sales], Iterator[Callable[[], object]]], sales: Sales) -> Iterator[str]:
    """What the code says in each case of a scenario, with the parts that differ from run to run made the same."""
    kind = getattr(errors, class_name(scenario))
    for case in scenario(sales):
        with pytest.raises(kind) as caught:
            case()
        assert type(caught.value) is kind
        yield f"{kind.__name__}: {same_always(str(caught.value))}"


def same_always(text: str) -> str:
    text = re.sub(
        r"(published/daily/\d{8}-\d\d-)[0-9a-f]{16}/[^ ]+\.", r"\g<1>0a1b2c3d4e5f6071/20240131_082515_00009.", text
    )
    text = re.sub(r"(published/daily/)\d{8}_[^ ;]+", r"\g<1>20240131_082515_00009_3uvw5_0b1c2d3e", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "5f0c3a1e-8d2b-4c7a-9e61-2b7d90c4f318", text)
    text = re.sub(r"after \d+ s of waiting", "after 30 s of waiting", text)  # there is jitter in it
    return re.sub(r"process \d+ on [^,.]+", "process 4242 on worker-3", text)


def public_errors() -> list[str]:
    return [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.AthenaAssetsError)
    ]


def test_every_error_has_a_section_and_a_scenario() -> None:
    assert list(sections(page("troubleshooting.md"))) == public_errors()
    assert ["AthenaAssetsError", *map(class_name, SCENARIOS)] == public_errors()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=class_name)
def test_quoted_errors_are_what_the_code_says(
    scenario: Callable[[Sales], Iterator[Callable[[], object]]], sales: Sales
) -> None:
    quoted = blocks(sections(page("troubleshooting.md"))[class_name(scenario)], "text")
    assert [" ".join(each.split()) for each in quoted] == [" ".join(each.split()) for each in texts(scenario, sales)]


def test_every_command_that_is_named_exists() -> None:
    program = (DOCS.parent / "athena_assets" / "cli").glob("*.py")
    defined = "\n".join(each.read_text(encoding="utf-8") for each in program)
    if not defined:
        pytest.skip("there is no command line yet")
    for name in PAGES:
        for command in re.findall(r"`athena-assets ([\w-]+)", page(name)):
            assert f"def {command.replace('-', '_')}(" in defined, (name, command)
