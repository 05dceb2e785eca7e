"""The project in a real browser: what a person clicks, checked by GraphQL and by what lies in S3.

With SCREENSHOTS=1 the pictures of docs/images/ are taken anew, each of a state that was checked before.
"""

import gzip
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from athena_assets import definitions
from athena_assets.dev.server import BUCKET, load_sample
from athena_assets.local import EmbeddedAws
from athena_assets_tests.e2e.lake import wait_until
from athena_assets_tests.orchestration.live import PATIENCE, PROJECT, Dev, dagster_dev, settings

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]

SENSOR = "nycflights_tables"
FLIGHTS_OF_A_DAY = 842  # that left New York on 2013-01-01
FLIGHTS = 336_776
AIRPORTS = 105  # that they flew to
PATIENCE_MS = PATIENCE * 1_000
# No screen, no sandbox for root, and no call to anything but the page.
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="module")
def sample(server: EmbeddedAws) -> EmbeddedAws:
    server.reset()
    load_sample(server)
    return server


@pytest.fixture(scope="module")
def dev(sample: EmbeddedAws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    home = tmp_path_factory.mktemp("browser") / "home"
    environment = sample.environment() | {"ATHENA_ASSETS_BUCKET": BUCKET}
    with dagster_dev(home, definitions.__name__, environment, settings()) as dev:
        dev.ask("mutation { setNuxSeen }")  # the welcome to new users stands before everything else
        yield dev


@pytest.fixture(scope="module")
def page(dev: Dev) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1_400, "height": 900}, timezone_id="UTC", locale="en-US")
        page.set_default_timeout(PATIENCE_MS)
        yield page
        browser.close()


def chromium() -> str:
    """The machine's browser. Fails the test if there is none."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.fail("Chromium is not installed. On Debian and Ubuntu: apt-get install chromium")
    return found


def picture(page: Page, name: str) -> None:
    """Takes a picture for the docs, where that is asked for."""
    if os.environ.get("SCREENSHOTS") == "1":
        page.wait_for_timeout(2_000)  # for what is drawn after its data have come
        page.screenshot(path=PROJECT / "docs" / "images" / f"{name}.png")


def bodies(aws: EmbeddedAws, prefix: str) -> dict[str, bytes]:
    s3 = aws.client("s3")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    keys = [each["Key"] for found in pages for each in found.get("Contents", [])]
    return {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


def queries(aws: EmbeddedAws, name: str) -> list[str]:
    """The states of the queries of a target."""
    return [each.state for each in aws.queries() if f"published/{name}" in each.sql]


def materialize(page: Page) -> None:
    page.locator("button", has_text="Materialize").first.click()


@contextmanager
def launched(dev: Dev) -> Iterator[list[str]]:
    """Is filled with the ids of the runs that the block launches, once there is one."""
    before = {run.id for run in dev.runs()}
    found: list[str] = []
    yield found
    found += wait_until(lambda: [run.id for run in dev.runs() if run.id not in before], "a run is launched", PATIENCE)


def test_a_click_on_materialize_publishes_and_shows_what_was_published(
    page: Page, dev: Dev, sample: EmbeddedAws
) -> None:
    page.goto(f"{dev.address}/assets/airport_traffic")
    with launched(dev) as runs:
        materialize(page)
    assert [dev.end(run) for run in runs] == ["SUCCESS"]
    lines = b"".join(gzip.decompress(body) for body in bodies(sample, "published/airport_traffic/").values())
    assert len(lines.splitlines()) == AIRPORTS
    assert queries(sample, "airport_traffic") == ["SUCCEEDED"]

    [found] = dev.materializations("airport_traffic")
    page.goto(f"{dev.address}/assets/airport_traffic?view=events")
    for text in (
        "athena_assets/preview",
        "s3://athena-assets-demo/published/airport_traffic/",
        found.metadata["athena_assets/query_id"],
    ):
        expect(page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS)
    picture(page, "materialization")
    page.get_by_text("athena_assets/preview").scroll_into_view_if_needed()
    first = json.loads(lines.splitlines()[0])
    expect(page.get_by_text(first["airport"], exact=True).first).to_be_visible()
    page.goto(f"{dev.address}/assets/airport_traffic?view=checks")
    for name in ("scrub", "row_count", "schema_change"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    picture(page, "checks")


def test_a_backfill_of_the_years_days_is_one_run(page: Page, dev: Dev, sample: EmbeddedAws) -> None:
    page.goto(f"{dev.address}/assets/departures_by_day")
    materialize(page)
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.get_by_text("Backfills all partitions in a single run.")).to_be_visible()
    picture(page, "backfill")
    with launched(dev) as runs:
        page.locator("button", has_text="Launch backfill").last.click()
    [run] = runs
    assert dev.end(run, timeout=1_000) == "SUCCESS"
    [backfill] = {each.tags["dagster/backfill"] for each in dev.runs() if each.id == run}
    assert dev.backfill_end(backfill) == "COMPLETED_SUCCESS"
    assert [each.id for each in dev.runs(dagster__backfill=backfill)] == [run]
    days = bodies(sample, "published/departures_by_day/")
    rows = {key.split("/")[2]: pq.read_metadata(io.BytesIO(body)).num_rows for key, body in days.items()}
    assert (len(rows), sum(rows.values()), rows["day=2013-01-01"]) == (365, FLIGHTS, FLIGHTS_OF_A_DAY)
    assert queries(sample, "departures_by_day") == ["SUCCEEDED"] * 365
    assert "365 of 365 published" in "\n".join(dev.log(run))
    page.goto(f"{dev.address}/assets/departures_by_day?view=partitions")
    expect(page.get_by_text("365", exact=False).first).to_be_visible()
    picture(page, "partitions")


def test_a_sensor_that_is_turned_on_publishes_what_a_change_reaches(page: Page, dev: Dev, sample: EmbeddedAws) -> None:
    page.goto(f"{dev.address}/automation")
    expect(page.get_by_text(SENSOR).first).to_be_visible(timeout=PATIENCE_MS)
    with launched(dev) as runs:
        switch = page.locator("label[class*=formatSwitch]")
        expect(switch.locator("input")).to_be_enabled(timeout=PATIENCE_MS)
        switch.click()
        expect(switch.locator("input")).to_be_checked(timeout=PATIENCE_MS)
        wait_until(lambda: dev.ticks(SENSOR), "the sensor has looked once", PATIENCE)
        rename_an_airline(sample, "UA", "Another Airline")
    assert [dev.end(run) for run in runs] == ["SUCCESS"]
    assert [each.tags["dagster/sensor_name"] for each in dev.runs() if each.id in runs] == [SENSOR]
    assert queries(sample, "flights_with_carrier") == ["SUCCEEDED"]
    files = bodies(sample, "published/flights_with_carrier/").values()
    table = pa.concat_tables(pq.read_table(io.BytesIO(each), columns=["carrier", "carrier_name"]) for each in files)
    assert table.num_rows == FLIGHTS
    assert set(table.filter(pc.equal(table["carrier"], "UA"))["carrier_name"].to_pylist()) == {"Another Airline"}
    page.reload()
    picture(page, "sensor")


def test_the_upstream_tables_are_the_assets_lineage(page: Page, dev: Dev) -> None:
    page.goto(f"{dev.address}/assets/flights_with_carrier?view=lineage")
    for name in ("flights", "airlines", "flights_with_carrier"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("Loading...")).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.get_by_text("Unsynced")).to_have_count(0)  # it was published from the newest versions of its tables
    picture(page, "lineage")


def rename_an_airline(aws: EmbeddedAws, carrier: str, name: str) -> None:
    [(key, body)] = bodies(aws, "upstream/airlines/").items()
    table = pq.read_table(io.BytesIO(body))
    names = pc.if_else(pc.equal(table["carrier"], carrier), name, table["name"])
    written = io.BytesIO()
    pq.write_table(table.set_column(table.schema.get_field_index("name"), "name", names), written)
    aws.client("s3").put_object(Bucket=BUCKET, Key=key, Body=written.getvalue())
