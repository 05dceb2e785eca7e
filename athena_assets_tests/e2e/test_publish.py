"""One publication after another: reuse, replacement, failure, timeout, interruption, identity."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from athena_assets import OutputFormat, Published, Reused, UpstreamTable, errors
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until


def test_unchanged_upstream_is_reused_and_starts_no_query(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    first = publisher.unload(target)
    second = lake.publisher().unload(target)
    assert isinstance(first, Published)
    assert isinstance(second, Reused)
    assert second.publication == first.publication
    assert len(lake.queries(target.location)) == 1


def test_changed_upstream_replaces_the_result(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    old = set(lake.listing(target.location))
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    publisher.unload(target)
    assert len(lake.queries(target.location)) == 2
    assert not old & set(lake.listing(target.location))
    lake.assert_published_once(target.location, range(ROWS + 10))


def test_upstream_that_changes_while_the_query_runs_is_not_reused(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().outcome, Published)
    assert isinstance(publisher.unload(target), Published)
    assert isinstance(publisher.unload(target), Reused)
    assert len(lake.queries(target.location)) == 2


@pytest.mark.parametrize(
    ("changes", "queries"),
    [
        ({"query": "SELECT n FROM numbers WHERE current_date IS NOT NULL"}, 2),
        ({"reuse": "never"}, 2),
        ({"query": "SELECT n FROM numbers WHERE current_date IS NOT NULL", "reuse": "always"}, 1),
        ({"upstreams": (UpstreamTable("nowhere", "to_be_found"),)}, 2),
        ({"upstreams": ()}, 1),
    ],
)
def test_a_finished_publication_is_reused_only_if_nothing_can_have_changed(
    lake: Lake, changes: dict[str, Any], queries: int
) -> None:
    target, publisher = lake.target(**changes), lake.publisher()
    publisher.unload(target)
    publisher.unload(target)
    assert len(lake.queries(target.location)) == queries
    lake.assert_published_once(target.location)


def test_versions_given_by_the_caller_decide(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    name = f"{lake.database}.numbers"
    publisher.unload(target, upstream_versions={name: "snapshot 1"})
    assert isinstance(publisher.unload(target, upstream_versions={name: "snapshot 1"}), Reused)
    assert isinstance(publisher.unload(target, upstream_versions={name: "snapshot 2"}), Published)
    assert len(lake.queries(target.location)) == 2


def test_partitions_are_slots_of_their_own(lake: Lake) -> None:
    location = f"s3://{lake.bucket}/published/by_key/${{partition}}/"
    target = lake.target("by_key", location=location, query="SELECT n FROM numbers WHERE n < length(${partition})")
    publisher = lake.publisher()
    for key in ("abc", "x; --", "100%25"):
        publisher.unload(target, partition=key)
        lake.assert_published_once(location.replace("${partition}", key), range(len(key)))
    with pytest.raises(errors.InvalidTarget, match="'"):
        publisher.unload(target, partition="it's")


def test_a_hostile_parameter_is_one_literal(lake: Lake) -> None:
    hostile = "x' OR n < 5 --"
    target = lake.target(query="SELECT n FROM numbers WHERE ${who} = 'x' OR n = 7", parameters={"who": hostile})
    lake.publisher().unload(target)
    lake.assert_published_once(target.location, range(7, 8))


def test_json_is_published_with_its_suffix(lake: Lake) -> None:
    target = lake.target(output=OutputFormat("json"))
    lake.publisher().unload(target)
    assert all(key.endswith(".gz") for key in lake.listing(target.location))
    lake.assert_published_once(target.location)


def test_on_conflict_fail_names_the_owner(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    (query_id,) = wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    wait_until(lambda: caller.told("running"), "the query id is noted")
    with pytest.raises(errors.SlotBusy, match=rf"process {os.getpid()} .*query {query_id}"):
        publisher.unload(lake.target(target.name, on_conflict="fail"))
    lake.aws.faults.release(hold)
    assert caller.join().error is None
    assert len(lake.queries(target.location)) == 1


def test_a_wait_has_a_deadline(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(lease=60)
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    with pytest.raises(errors.SlotBusy, match="of waiting"):
        publisher.unload(lake.target(target.name, wait_timeout=0.5))
    lake.aws.faults.release(hold)
    assert caller.join().error is None


def test_an_interrupted_script_stops_its_query_and_frees_the_slot(lake: Lake) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    script = textwrap.dedent(
        f"""
        from athena_assets import AwsSettings, Publisher, Target
        settings = AwsSettings(endpoint_url={lake.aws.endpoint_url!r}, region="us-east-1", access_key_id="x",
                               secret_access_key="y", output_location={lake.settings.output_location!r})
        target = Target(name={target.name!r}, query={target.query!r}, location={target.location!r},
                        database={target.database!r})
        Publisher(settings).unload(target, observe=lambda line: print(line, flush=True))
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    assert process.stdout is not None
    assert any(line.startswith("running") for line in process.stdout)
    process.send_signal(signal.SIGINT)
    _, errors_told = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors_told
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]
    register = lake.register(target.location)
    assert register is not None
    assert register.state == "free"
    lake.aws.faults.clear()
    assert isinstance(lake.publisher().unload(target), Published)
    lake.assert_published_once(target.location)


def test_columns_are_read_from_the_published_file(lake: Lake) -> None:
    query = (
        "SELECT n, CAST(n AS double) AS d, CAST(n AS varchar) AS s, n > 1 AS b, DATE '2020-01-02' AS day, "
        "CAST(n AS integer) AS i, CAST(n AS decimal(10, 2)) AS price FROM numbers"
    )
    target, publisher = lake.target(query=query), lake.publisher()
    sample = publisher.sample(target, done(publisher.unload(target)))
    assert sample is not None
    assert sample.columns is not None
    assert [(each.name, each.type) for each in sample.columns] == [
        ("n", "bigint"),
        ("d", "double"),
        ("s", "string"),
        ("b", "boolean"),
        ("day", "date"),
        ("i", "int"),
        ("price", "decimal(10,2)"),
    ]


def test_columns_of_json_and_of_an_empty_result_are_not_made_up(lake: Lake) -> None:
    publisher = lake.publisher()
    target = lake.target(output=OutputFormat("json"))
    sample = publisher.sample(target, done(publisher.unload(target)))
    assert sample is not None
    assert sample.columns is None
    target = lake.target(query="SELECT n FROM numbers WHERE n < 0")
    assert publisher.sample(target, done(publisher.unload(target))) is None
