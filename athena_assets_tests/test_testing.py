"""The pytest plugin, in a small project of a user's own: a folder, a target and a test, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]

TARGETS = """
from athena_assets import Target

totals = Target(
    name="totals",
    query="SELECT origin, SUM(delay) AS delay FROM flights GROUP BY origin ORDER BY origin",
    location="s3://their-bucket/totals/",
    database="nyc",
)
"""

TESTS = """
import os
import sys

import boto3
import pyarrow as pa
import pytest

from athena_assets import AthenaAssetsError, OutputFormat, Published, Reused, Target, unload
from their_targets import totals

ROWS = [{"origin": "JFK", "delay": 1}, {"origin": "EWR", "delay": 2}, {"origin": "JFK", "delay": 4}]


@pytest.fixture
def lake(athena_assets_lake):
    athena_assets_lake.create_bucket(totals)
    athena_assets_lake.create_bucket(totals)
    return athena_assets_lake


def test_rows_in_and_rows_out(lake, athena_assets_publisher):
    lake.create_table("nyc.flights", ROWS)
    assert isinstance(athena_assets_publisher.unload(totals), Published)
    assert lake.read(totals) == [{"origin": "EWR", "delay": 2}, {"origin": "JFK", "delay": 5}]
    assert isinstance(athena_assets_publisher.unload(totals), Reused)
    lake.append_rows("nyc.flights", [{"origin": "LGA", "delay": 8}])
    assert isinstance(athena_assets_publisher.unload(totals), Published)
    assert [row["origin"] for row in lake.read(totals)] == ["EWR", "JFK", "LGA"]
    assert len(lake.aws.queries()) == 2


def test_the_next_test_finds_nothing_of_it(lake, athena_assets_publisher):
    assert lake.aws.queries() == []
    assert lake.read(totals) == []
    lake.create_table("nyc.flights", pa.table({"origin": ["LGA"], "delay": pa.array([None], pa.int32())}))
    athena_assets_publisher.unload(totals)
    assert lake.read(totals) == [{"origin": "LGA", "delay": None}]


def test_code_with_settings_of_its_own_reaches_the_same_place(lake, athena_assets_settings):
    lake.create_table("nyc.flights", ROWS)
    unload(totals, settings=athena_assets_settings)
    listed = boto3.client("s3").list_objects_v2(Bucket="their-bucket", Prefix="totals/")
    assert [each["Key"].removeprefix("totals/") for each in listed["Contents"]] == list(lake.objects(totals))


def test_the_users_own_settings_are_hidden(athena_assets_aws):
    assert os.environ["AWS_ENDPOINT_URL"] == athena_assets_aws.endpoint_url
    assert "AWS_PROFILE" not in os.environ


@pytest.mark.parametrize("output", ["PARQUET", "ORC", "AVRO", "JSON"])
def test_formats_and_partitions(lake, athena_assets_publisher, output):
    lake.create_table("nyc.flights", ROWS)
    parted = Target(
        name="parted", query="SELECT delay FROM flights WHERE origin = ${partition}", database="nyc",
        location="s3://their-bucket/parted/${partition}/", output=output,
    )
    athena_assets_publisher.unload(parted, partition="JFK")
    assert sorted(row["delay"] for row in lake.read(parted, "JFK")) == [1, 4]
    assert lake.read(parted, "EWR") == []


def test_text_is_read_as_objects(lake, athena_assets_publisher):
    lake.create_table("nyc.flights", ROWS)
    location = "s3://their-bucket/text/"
    text = Target(name="text", query=totals.query, database="nyc", location=location, output="TEXTFILE")
    athena_assets_publisher.unload(text)
    with pytest.raises(AthenaAssetsError, match="Lake.objects"):
        lake.read(text)
    assert len(lake.objects(text)) == 1


def test_rows_without_columns_are_refused(lake):
    with pytest.raises(ValueError, match="no columns"):
        lake.create_table("nyc.flights", [])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's project, and the plugin installed: the entry point of pyproject.toml as a distribution has it."""
    [(name, module)] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"][
        "pytest11"
    ].items()
    installed = tmp_path / "installed" / "the_plugin-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: the_plugin\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    (tmp_path / "their_targets.py").write_text(TARGETS)
    return tmp_path


def pytest_in(folder: Path, tests: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_theirs.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(PROJECT), str(folder / "installed")))} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def test_a_users_tests_publish_and_read_back(folder: Path) -> None:
    ended = pytest_in(folder, TESTS, AWS_PROFILE="mine", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "10 passed" in ended.stdout


@pytest.mark.long
def test_workers_of_xdist_have_a_server_each(folder: Path) -> None:
    tests = """
        import pytest
        @pytest.mark.parametrize("number", range(4))
        def test_empty(athena_assets_lake, number):
            names = {each["Name"] for each in athena_assets_lake.aws.client("s3").list_buckets()["Buckets"]}
            assert names == {"athena-assets-testing"}
            athena_assets_lake.create_bucket("left-behind")
    """
    ended = pytest_in(folder, "\n".join(line[8:] for line in tests.splitlines()), "-n", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout


def test_who_uses_no_fixture_loads_nothing_of_the_embedded_aws(folder: Path) -> None:
    ended = pytest_in(
        folder,
        "import sys\n"
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('athena_assets')\n"
        "    assert 'athena_assets.testing' in sys.modules\n"
        "    unwanted = ('moto', 'duckdb', 'dagster', 'athena_assets.local')\n"
        "    assert [name for name in unwanted if name in sys.modules] == []\n",
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.long
def test_without_the_extra_a_fixture_says_what_to_install(folder: Path) -> None:
    (folder / "conftest.py").write_text("import sys\nsys.modules['duckdb'] = None\n")  # as if it were not installed
    ended = pytest_in(folder, "def test_it(athena_assets_publisher):\n    pass\n")
    assert ended.returncode == 1
    assert "needs duckdb, which is not installed" in ended.stdout
    assert "pip install 'athena_assets[local]'" in ended.stdout
    assert "Traceback" not in ended.stdout
