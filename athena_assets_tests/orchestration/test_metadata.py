"""Figures that need no run: prices, links, and what is left out."""

from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from athena_assets import AwsSettings, Published, Publisher, Reused, Target
from athena_assets.aws.parquet import Column
from athena_assets.aws.result_files import Sample
from athena_assets.core.location import parse_location
from athena_assets.core.register import Publication, Statistics
from athena_assets.orchestration.console import query_link, s3_link, with_link
from athena_assets.orchestration.metadata import cost_estimate_usd, outcome_metadata
from athena_assets.orchestration.publish import ending

MB = 2**20
RUN = "0b6b8c3e-8a3e-4c5c-9b7e-0d7a5f6f3f10"
TARGET = Target(name="mart", query="SELECT 1 AS one", location="s3://lake/mart/")
PUBLICATION = Publication(
    generation="a" * 64,
    definition="b" * 64,
    request="another/request",
    run=RUN,
    query_id="query",
    fence=7,
    attempt=1,
    manifest="_athena_assets/v1/mart/manifests/00000007-01.json",
    files=3,
    bytes=1_000,
    rows=10,
    at=1_800_000_000.0,
    reusable=True,
    statistics=Statistics(bytes_scanned=25 * MB, queue_ms=1, engine_ms=2, total_ms=1_500),
)


def metadata(outcome: Published | Reused, **changes: Any) -> dict[str, dg.MetadataValue]:
    arguments: dict[str, Any] = {
        "target": TARGET,
        "request_id": "ours",
        "partition": None,
        "query_console": None,
        "s3_console": None,
        "sample": None,
    }
    return outcome_metadata(outcome, **(arguments | changes))


@pytest.mark.parametrize(
    ("scanned", "usd"),
    [
        (0, 10 / 2**20 * 5),
        (1, 10 / 2**20 * 5),
        (10 * MB, 10 / 2**20 * 5),
        (10 * MB + 1, 11 / 2**20 * 5),
        (2**40, 5.0),
        (3 * 2**40, 15.0),
    ],
)
def test_the_cost_is_five_dollars_a_terabyte_in_whole_megabytes_and_ten_at_least(scanned: int, usd: float) -> None:
    assert cost_estimate_usd(scanned) == pytest.approx(usd)


def test_what_athena_does_not_tell_is_left_out() -> None:
    known = metadata(Published(PUBLICATION))
    told_less = metadata(Published(replace(PUBLICATION, statistics=Statistics(), rows=None, run=None)))
    assert known.keys() - told_less.keys() == {
        "dagster/row_count",
        "athena_assets/rows",
        "athena_assets/cost_estimate_usd",
        "athena_assets/query_bytes_scanned",
        "athena_assets/query_queue_seconds",
        "athena_assets/query_engine_seconds",
        "athena_assets/query_total_seconds",
    }
    assert told_less.keys() <= known.keys()


def test_a_reused_result_costs_this_request_nothing_and_keeps_the_querys_figures() -> None:
    of_reused = metadata(Reused(PUBLICATION, waited=2.5, joined=True))
    assert of_reused["athena_assets/cost_estimate_usd"] == dg.MetadataValue.float(0.0)
    assert of_reused["athena_assets/query_bytes_scanned"] == dg.MetadataValue.int(25 * MB)
    assert of_reused["athena_assets/waited_seconds"] == dg.MetadataValue.float(2.5)


def test_the_run_that_published_is_a_link() -> None:
    assert metadata(Reused(PUBLICATION))["athena_assets/reused_from_run"] == dg.MetadataValue.dagster_run(RUN)


def test_a_caller_without_dagster_may_have_recorded_any_text() -> None:
    publication = replace(PUBLICATION, run="nightly batch")
    of_reused = metadata(Reused(publication))
    assert of_reused["athena_assets/reused_from_run"] == dg.MetadataValue.text("nightly batch")
    assert "athena_assets/reused_from_run" not in metadata(Reused(replace(PUBLICATION, run=None)))


def test_a_kept_result_that_was_brought_back_names_the_fence_that_it_had() -> None:
    brought_back = metadata(Reused(replace(PUBLICATION, restored=3)))
    assert brought_back["athena_assets/restored_from_fence"] == dg.MetadataValue.int(3)
    assert "athena_assets/restored_from_fence" not in metadata(Reused(PUBLICATION))


def test_the_mode_and_the_glue_table_are_those_of_the_target() -> None:
    plain = metadata(Published(PUBLICATION))
    assert plain["athena_assets/mode"] == dg.MetadataValue.text("staged")
    assert "dagster/table_name" not in plain
    found = metadata(Published(PUBLICATION), target=replace(TARGET, mode="direct", glue_table="mart.orders"))
    assert found["athena_assets/mode"] == dg.MetadataValue.text("direct")
    assert found["dagster/table_name"] == dg.MetadataValue.text("mart.orders")


def test_values_have_the_types_that_dagsters_ui_renders() -> None:
    schema = dg.TableSchema(columns=[dg.TableColumn("n", "bigint")])
    sample = Sample((Column("n", "bigint"),), ("n",), (("1",),))
    link = "https://example.test/"
    found = metadata(Published(PUBLICATION, superseded=True), query_console=link, s3_console=link, sample=sample)
    assert found["athena_assets/preview"] == dg.MetadataValue.md("| n |\n| --- |\n| 1 |")
    assert found["athena_assets/s3_console"] == dg.MetadataValue.url(link)
    assert found["athena_assets/query_console"] == dg.MetadataValue.url("https://example.test/")
    assert found["dagster/column_schema"] == dg.MetadataValue.table_schema(schema)
    assert found["athena_assets/published_at"] == dg.MetadataValue.timestamp(PUBLICATION.at)
    assert found["athena_assets/superseded"] == dg.MetadataValue.bool(True)
    assert found["athena_assets/query_total_seconds"] == dg.MetadataValue.float(1.5)


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-central-1", "eu-central-1.console.aws.amazon.com"),
        ("cn-north-1", "cn-north-1.console.amazonaws.cn"),
        ("us-gov-west-1", "us-gov-west-1.console.amazonaws-us-gov.com"),
    ],
)
def test_a_query_links_to_the_console_of_its_region(region: str, host: str) -> None:
    link = query_link(Publisher(AwsSettings(region=region)), "1234")
    assert link == f"https://{host}/athena/home?region={region}#/query-editor/history/1234"


@pytest.mark.parametrize("region", [None, "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1"])
def test_no_link_without_a_region_that_has_a_public_console(region: str | None) -> None:
    assert query_link(Publisher(AwsSettings(region=region)), "1234") is None
    assert s3_link(Publisher(AwsSettings(region=region)), parse_location("s3://lake/mart/")) is None


def test_a_location_links_to_its_objects_whatever_is_in_its_name() -> None:
    link = s3_link(Publisher(AwsSettings(region="eu-central-1")), parse_location("s3://lake/day=2024-01-31/a b&c/"))
    assert link == (
        "https://eu-central-1.console.aws.amazon.com/s3/buckets/lake"
        "?region=eu-central-1&prefix=day%3D2024-01-31%2Fa%20b%26c%2F"
    )


def test_a_line_that_names_a_query_links_to_it_and_others_stay_as_they_are() -> None:
    publisher = Publisher(AwsSettings(region="eu-central-1"))
    line = f"running: query {RUN}"
    assert with_link(publisher, line) == f"{line} ({query_link(publisher, RUN)})"
    for other in ("acquired: fence 2", f"waiting: held by run {RUN}"):
        assert with_link(publisher, other) == other


def test_the_story_ends_with_what_readers_read_and_whose_query_made_it() -> None:
    when = "2027-01-15T08:00:00+00:00"
    whose = f"query query of run {RUN}, published {when}: 3 file(s), 1000 bytes, 10 rows"
    reused = "reused, no query was started: "
    assert ending(Published(PUBLICATION)) == "published 3 file(s), 1000 bytes, 10 rows; 1 query(s) started"
    assert ending(Published(PUBLICATION, adopted=True)).endswith("started by an earlier owner of the slot")
    assert ending(Reused(PUBLICATION)) == f"{reused}nothing has changed since {whose}"
    assert ending(Reused(PUBLICATION, waited=1.25, joined=True)) == f"{reused}waited 1.2 s for {whose}"
    assert "another/request" in ending(Reused(replace(PUBLICATION, run=None)))
    assert ending(Reused(PUBLICATION, superseded=True)).endswith("another result has been published over it since")


def test_no_link_to_a_console_that_does_not_know_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = AwsSettings(region="eu-central-1", endpoint_url="http://127.0.0.1:9")
    assert query_link(Publisher(elsewhere), "1234") is None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert query_link(Publisher(AwsSettings(region="eu-central-1")), "1234") is None
