"""The demo's claims about itself: it shows the race, it measures honestly, and it stays on this machine."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from athena_assets.core import keys
from athena_assets.core.location import Location
from athena_assets.demo import guard, scenes
from athena_assets.demo.__main__ import BUCKET, run
from athena_assets.demo.callers import CALLERS
from athena_assets.demo.readback import read_back
from athena_assets.demo.report import Check, Scene
from athena_assets.demo.stage import FLIGHTS, FLIGHTS_OF_DAY, Stage
from athena_assets.local import EmbeddedAws, Fault, HoldRequest
from athena_assets_tests.e2e.lake import wait_until

ELSEWHERE = "192.0.2.1"  # reserved for documentation: nobody answers there


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with EmbeddedAws.start() as aws:
        yield Stage.build(aws, BUCKET, lambda line: None)


def measured(checks: list[Check]) -> dict[str, int | str]:
    return {check.what: check.measured for check in checks}


def test_the_naive_control_holds_every_row_once_for_each_caller(stage: Stage) -> None:
    checks = scenes.naive(stage, "naive/")
    assert all(check.ok for check in checks)
    found = measured(checks)
    assert found["queries"] == CALLERS
    assert found["rows in S3"] == CALLERS * FLIGHTS
    assert found["distinct rows"] == FLIGHTS


@pytest.mark.long
def test_ours_starts_one_query_in_the_same_harness(stage: Stage) -> None:
    checks = scenes.ours(stage, "ours/")
    assert all(check.ok for check in checks)
    found = measured(checks)
    assert found["queries"] == 1
    assert found["rows in S3"] == FLIGHTS

    # Once more, the result is there already: not one query, and the scene says that this is not what it expects.
    again = scenes.ours(stage, "ours/")
    assert measured(again)["queries"] == 0
    assert measured(again)["callers"] == f"{CALLERS} reused"
    assert [check.ok for check in again] == [False, False, True, True]


def test_a_day_that_the_upstream_team_adds_is_new(stage: Stage) -> None:
    source = "upstream/flights/"
    before = read_back(stage.s3, stage.bucket, source, source)
    try:
        assert {day: stage.append_day(day) for day in FLIGHTS_OF_DAY} == FLIGHTS_OF_DAY
        after = read_back(stage.s3, stage.bucket, source, source)
    finally:
        for day in FLIGHTS_OF_DAY:
            stage.s3.delete_object(Bucket=stage.bucket, Key=f"{source}2014-01-{day:02}.parquet")
    assert (before.rows, before.distinct) == (FLIGHTS, FLIGHTS)
    assert after.rows == after.distinct == FLIGHTS + sum(FLIGHTS_OF_DAY.values())


# --- the read-back ---------------------------------------------------------------------------------------------------


def put(stage: Stage, key: str, rows: list[tuple[str | None, int]]) -> None:
    sink = io.BytesIO()
    columns = {"a": pa.array([a for a, _ in rows], pa.string()), "b": pa.array([b for _, b in rows], pa.int64())}
    pq.write_table(pa.table(columns), sink)
    stage.s3.put_object(Bucket=stage.bucket, Key=key, Body=sink.getvalue())


def test_the_read_back_counts_what_is_there(stage: Stage) -> None:
    put(stage, "source/1", [("x", 1), (None, 2), ("z", 3)])
    put(stage, "place/1", [("x", 1), (None, 2)])
    put(stage, "place/2", [("x", 1), ("y", 9)])
    found = read_back(stage.s3, stage.bucket, "place/", "source/")
    assert (found.rows, found.distinct, found.copies) == (4, 3, "1 to 2")
    assert (found.missing, found.foreign) == (1, 1)
    assert list(found.objects) == ["place/1", "place/2"]


def test_an_empty_location_misses_everything(stage: Stage) -> None:
    put(stage, "source2/1", [("x", 1), (None, 2)])
    found = read_back(stage.s3, stage.bucket, "nothing/", "source2/")
    assert (found.rows, found.missing, found.foreign) == (0, 2, 0)


# --- the exit status -------------------------------------------------------------------------------------------------


def spoil(stage: Stage, prefix: str) -> None:
    """Somebody copies a published file, after it was published and before it is read back."""
    staging = f"{keys.slot_prefix(Location(stage.bucket, prefix))}staging/"  # emptied when all files are in place
    rule = stage.aws.faults.add(Fault(HoldRequest(), service="s3", operation="DeleteObject", key_contains=staging))

    def copy() -> None:
        while stage.aws.faults.hits(rule) == 0:
            time.sleep(0.02)
        key = stage.s3.list_objects_v2(Bucket=stage.bucket, Prefix=prefix)["Contents"][0]["Key"]
        stage.s3.copy_object(
            Bucket=stage.bucket, Key=f"{prefix}copied", CopySource={"Bucket": stage.bucket, "Key": key}
        )
        stage.aws.faults.release(rule)

    threading.Thread(target=copy, daemon=True).start()


@pytest.mark.long
def test_a_duplicated_file_makes_the_exit_status_non_zero() -> None:
    output = io.StringIO()

    def play(stage: Stage) -> list[Check]:
        spoil(stage, "spoilt/location/")
        return scenes.ours(stage, "spoilt/location/")

    status = run(Console(file=output, width=140), lambda stage, runs: [Scene("spoilt", lambda: play(stage))])
    text = output.getvalue()
    assert status == 1, text
    assert re.search("WRONG  spoilt: rows in S3: measured [0-9,]+, expected 336,776", text)
    assert "distinct" not in text.partition("WRONG  ")[2]
    assert "Every number" not in text


@pytest.mark.long
def test_right_numbers_make_the_exit_status_zero() -> None:
    output = io.StringIO()

    def play(stage: Stage) -> list[Check]:
        return scenes.rows_are_right(stage.read("upstream/flights/"), FLIGHTS)

    status = run(Console(file=output, width=140), lambda stage, runs: [Scene("upstream", lambda: play(stage))])
    assert status == 0, output.getvalue()
    assert "Every number is as expected" in output.getvalue()


@pytest.mark.long
def test_a_scene_that_can_not_go_on_makes_the_exit_status_non_zero() -> None:
    output = io.StringIO()

    def play(stage: Stage) -> list[Check]:
        stage.aws.stop()
        return scenes.ours(stage)

    assert run(Console(file=output, width=140), lambda stage, runs: [Scene("gone", lambda: play(stage))]) == 1
    assert "FAILED  no embedded AWS answers" in output.getvalue()


# --- the guard -------------------------------------------------------------------------------------------------------

DIAL = """
import sys
import boto3
print("dialling", sys.argv[1])
boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="x",
             aws_secret_access_key="x").list_buckets()
"""


def dial(folder: Path, endpoint: str) -> "subprocess.CompletedProcess[str]":
    """A module under the demo's guard, as its Dagster runs are."""
    (folder / "dial.py").write_text(DIAL)
    return subprocess.run(
        [sys.executable, "-m", "athena_assets.demo.guard", "dial", endpoint],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_endpoint_outside_this_machine_is_refused(tmp_path: Path) -> None:
    ended = dial(tmp_path, f"http://{ELSEWHERE}:5000")
    assert f"dialling http://{ELSEWHERE}:5000" in ended.stdout
    assert ended.returncode != 0
    assert f"{ELSEWHERE}:5000: The demo connects to 127.0.0.1 only." in ended.stderr


def test_the_embedded_aws_is_let_through(stage: Stage, tmp_path: Path) -> None:
    ended = dial(tmp_path, stage.aws.endpoint_url)
    assert ended.returncode == 0, ended.stderr


def test_nothing_of_the_users_settings_is_left() -> None:
    users = {
        "PATH": "/bin",
        "AWS_PROFILE": "production",
        "AWS_ENDPOINT_URL_S3": "https://example.org",
        "https_proxy": "http://example.org",
        "DAGSTER_HOME": "/home/of/others",
        "ATHENA_ASSETS_BUCKET": "production",
    }
    assert guard.clean_environment(users) == {
        "PATH": "/bin",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
    }


# --- the whole demo --------------------------------------------------------------------------------------------------


def whole_demo(folder: Path) -> "subprocess.Popen[str]":
    """In a session of its own, with a user's environment that would lead it astray."""
    hostile = {
        "AWS_PROFILE": "no-such-profile",
        "AWS_ENDPOINT_URL": f"http://{ELSEWHERE}",
        "HTTP_PROXY": f"http://{ELSEWHERE}:3128",
        "DAGSTER_HOME": "/no/such/folder",
        "ATHENA_ASSETS_BUCKET": "no-such-bucket",
        "TMPDIR": str(folder),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "athena_assets.demo"],
        env=os.environ | hostile,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def assert_nothing_left(demo: "subprocess.Popen[str]", folder: Path) -> None:
    def gone() -> bool:
        try:
            os.killpg(demo.pid, 0)
        except ProcessLookupError:
            return True
        return False

    # A run may have been killed while an import of its asked `uname` something: that ends by itself, and at once.
    wait_until(gone, "no process of the demo is left", timeout=10)
    assert list(folder.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_whole_demo_is_as_expected(tmp_path: Path) -> None:
    demo = whole_demo(tmp_path)
    output, _ = demo.communicate()
    assert demo.returncode == 0, output
    assert "Every number is as expected" in output
    assert_nothing_left(demo, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    demo = whole_demo(tmp_path)
    assert demo.stdout is not None
    said = ""
    while "4 x `dagster asset materialize" not in said:
        line = demo.stdout.readline()
        assert line, said
        said += line
    time.sleep(3)  # the runs are starting
    if number is signal.SIGINT:
        os.killpg(demo.pid, number)  # a terminal sends it to everybody
    else:
        demo.send_signal(number)
    demo.communicate(timeout=30)
    assert demo.returncode == 128 + number
    assert_nothing_left(demo, tmp_path)
