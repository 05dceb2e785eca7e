"""The project as Dagster loads it, and its targets over the sample data."""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from athena_assets import definitions
from athena_assets.definitions import defs
from athena_assets.demo.sample import load_sample
from athena_assets.local import EmbeddedAws
from athena_assets.orchestration.checks import CHECKS

PROJECT = Path(__file__).parents[2]
BUCKET = "athena-assets-demo"
WHOLE = {"flights_with_carrier", "daily_delays", "airport_traffic"}
TARGETS = WHOLE | {"departures_by_day"}


def test_all_files_that_load_the_project_name_the_same_module() -> None:
    tool = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]
    [entry] = yaml.safe_load((PROJECT / "workspace.yaml").read_text())["load_from"]
    assert entry["python_module"]["module_name"] == tool["dagster"]["module_name"] == definitions.__name__
    assert entry["python_module"]["location_name"] == tool["dg"]["project"]["code_location_name"]


@pytest.mark.parametrize("how", [[], ["-w", "workspace.yaml"]], ids=["pyproject", "workspace"])
def test_the_project_loads_without_any_aws(how: list[str]) -> None:
    nowhere = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    nowhere["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"  # nobody listens there
    validated = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", *how],
        cwd=PROJECT,
        env=nowhere | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert validated.returncode == 0, validated.stderr
    assert "Validation successful for code location athena_assets" in validated.stdout + validated.stderr


@pytest.mark.long
def test_the_package_alone_loads_without_a_project_around_it(tmp_path: Path) -> None:
    """As from an installed wheel: no pyproject.toml above the package."""
    package = Path(definitions.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    script = (
        "from athena_assets import definitions\n"
        "print(definitions.__file__)\n"
        "print(*sorted(key.to_user_string() for key in"
        " definitions.defs().resolve_asset_graph().materializable_asset_keys))\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-W", "error::Warning:athena_assets", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr
    where, names = loaded.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert set(names.split()) == TARGETS


@pytest.mark.long
def test_dg_lists_the_targets_and_their_checks() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "dagster_dg_cli.cli", "list", "defs", "--json"],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    found = json.loads(listed.stdout)
    assert {each["asset_key"] for each in found["assets"]} >= TARGETS
    assert {f"{name}:{check}" for name in TARGETS for check in CHECKS} == {
        each["key"] for each in found["asset_checks"]
    }


def test_the_targets_in_defs_are_assets_over_the_sample_tables() -> None:
    graph = defs().resolve_asset_graph()
    assert {key.to_user_string() for key in graph.materializable_asset_keys} == TARGETS
    assert {key.to_user_string() for key in graph.external_asset_keys} == {
        f"nycflights/{table}" for table in ("airlines", "airports", "flights", "planes")
    }


def test_the_tables_that_are_read_are_external_assets_with_their_names_in_glue() -> None:
    specs = {spec.key.to_user_string(): spec for spec in defs().resolve_all_asset_specs()}
    flights = specs["nycflights/flights"]
    assert flights.kinds == {"glue", "table"}
    assert flights.metadata["dagster/table_name"].value == "nycflights.flights"


def test_a_day_is_a_partition_and_a_backfill_of_all_is_one_run() -> None:
    node = defs().resolve_asset_graph().get(dg.AssetKey("departures_by_day"))
    assert node.partitions_def == dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01")
    assert node.partitions_def.get_num_partitions() == 365
    assert node.backfill_policy == dg.BackfillPolicy.single_run()


def test_the_environment_chooses_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATHENA_ASSETS_BUCKET", "elsewhere")
    pools = {
        asset.op.pool for asset in defs().assets or () if isinstance(asset, dg.AssetsDefinition) and asset.is_executable
    }
    assert pools == {f"s3://elsewhere/published/{name}/" for name in WHOLE} | {
        "s3://elsewhere/published/departures_by_day/day=${partition}/"
    }


def test_steps_run_in_the_process_of_their_run() -> None:
    assert defs().executor is dg.in_process_executor


def keys(names: Iterable[str]) -> list[dg.AssetKey]:
    return [dg.AssetKey(name) for name in names]


def read(aws: EmbeddedAws, name: str) -> list[dict[str, Any]]:
    s3 = aws.client("s3")
    rows: list[dict[str, Any]] = []
    for found in s3.list_objects_v2(Bucket=BUCKET, Prefix=f"published/{name}/")["Contents"]:
        body = s3.get_object(Bucket=BUCKET, Key=found["Key"])["Body"].read()
        if found["Key"].endswith(".gz"):
            rows += [json.loads(line) for line in gzip.decompress(body).splitlines()]
        else:
            rows += pq.read_table(io.BytesIO(body)).to_pylist()
    return rows


def source(aws: EmbeddedAws, table: str) -> Any:
    s3 = aws.client("s3")
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET, Prefix=f"upstream/{table}/")["Contents"]]
    return pa.concat_tables(
        [pq.read_table(io.BytesIO(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())) for key in keys]
    )


def with_sample(server: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    server.reset()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    server.client("s3").create_bucket(Bucket=BUCKET)
    load_sample(server.client("s3"), server.client("glue"), BUCKET, "nycflights")


def test_the_targets_publish_the_flights_of_2013(server: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    with_sample(server, monkeypatch)
    result = defs().resolve_implicit_global_asset_job_def().execute_in_process(asset_selection=keys(WHOLE))
    checked = {
        (each.asset_key.to_user_string(), each.check_name): each.passed for each in result.get_asset_check_evaluations()
    }
    assert checked == {(name, check): True for name in WHOLE for check in CHECKS}
    counts = {
        event.asset_key.to_user_string(): event.materialization.metadata["dagster/row_count"].value
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }
    flights = source(server, "flights")

    joined = read(server, "flights_with_carrier")
    names = dict(zip(*source(server, "airlines").select(["carrier", "name"]).to_pydict().values(), strict=True))
    assert len(joined) == counts["flights_with_carrier"] == flights.num_rows == 336_776
    assert all(row["carrier_name"] == names[row["carrier"]] for row in joined)
    assert sum(row["distance"] for row in joined) == sum(flights["distance"].to_pylist())

    days = read(server, "daily_delays")
    assert len(days) == counts["daily_delays"] == 3 * 365
    assert sum(row["flights"] for row in days) == flights.num_rows
    assert sum(row["cancelled"] for row in days) == flights["dep_time"].null_count

    airports = read(server, "airport_traffic")
    assert len(airports) == counts["airport_traffic"] == len(set(flights["dest"].to_pylist()))
    assert sum(row["flights"] for row in airports) == flights.num_rows


@pytest.mark.long
def test_each_day_of_a_range_holds_the_flights_of_that_day(
    server: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_sample(server, monkeypatch)
    flights = source(server, "flights")
    chosen = ["2013-02-27", "2013-02-28", "2013-03-01"]
    several = {"dagster/asset_partition_range_start": chosen[0], "dagster/asset_partition_range_end": chosen[-1]}
    by_day = (
        defs()
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(asset_selection=keys(["departures_by_day"]), tags=several)
    )
    assert [each.passed for each in by_day.get_asset_check_evaluations()] == [True] * len(CHECKS)
    leaving = Counter(zip(*(flights[each].to_pylist() for each in ("month", "day")), strict=True))
    for day in chosen:
        _, month, number = map(int, day.split("-"))
        assert len(read(server, f"departures_by_day/day={day}")) == leaving[month, number] > 0
