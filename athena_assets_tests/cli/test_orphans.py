"""`athena-assets orphans`: which of the queries that run are nobody's."""

from __future__ import annotations

import threading

import pytest

from athena_assets.aws.running import PAGE, running_queries
from athena_assets.aws.session import AwsClients
from athena_assets.core.statement import Label, render_label
from athena_assets.local import DropReply, Fault, Respond
from athena_assets_tests.cli.conftest import Cli
from athena_assets_tests.e2e.lake import Lake, wait_until
from athena_assets_tests.e2e.processes import processes


def start(lake: Lake, label: Label | None, query: str = "SELECT n FROM numbers") -> str:
    """A query that somebody starts by hand."""
    text = query if label is None else f"{render_label(label)}\n{query}"
    answer = lake.aws.client("athena").start_query_execution(
        QueryString=text,
        QueryExecutionContext={"Database": lake.database},
        ResultConfiguration={"OutputLocation": str(lake.settings.output_location)},
    )
    return str(answer["QueryExecutionId"])


def test_a_query_that_was_started_twice_for_a_forgotten_token_is_found_and_stopped(lake: Lake, cli: Cli) -> None:
    target = lake.target(guard="off")  # else the first one would be adopted
    cli.define(target)
    hold = lake.aws.faults.hold_queries()
    unheard = lake.aws.faults.add(Fault(DropReply(), operation="StartQueryExecution", times=None))
    with processes(lake, 1, lease=0.5) as [owner]:
        owner.publish(target)
        (first,) = wait_until(lambda: lake.aws.faults.held(hold), "the query that nobody heard of is held")
        assert cli("orphans", "--json").document["orphans"] == []  # it is recorded as it was sent
        owner.kill()
    lake.aws.faults.remove(unheard)
    lake.aws.faults.forget_tokens()
    publisher = threading.Thread(target=lake.publisher(0.5).unload, args=(target,))
    publisher.start()
    (second,) = wait_until(lambda: set(lake.aws.faults.held(hold)) - {first}, "the next caller's own query is held")
    wait_until(lambda: lake.state(target.location) == "running", "its id is noted")

    listed = cli("orphans")
    assert listed.status == 1
    assert first in listed.out
    assert second not in listed.out
    ended = cli("orphans", "--stop", "--json")
    assert (ended.status, ended.document["stopped"]) == (0, [first])
    assert [each["slot"] for each in ended.document["orphans"]] == [target.location]
    lake.aws.faults.release(hold)
    publisher.join(60)
    assert {each.query_id: each.state for each in lake.queries(target.location)} == {
        first: "CANCELLED",
        second: "SUCCEEDED",
    }
    lake.assert_published_once(target.location)
    assert cli("orphans").status == 0


def test_what_carries_no_label_of_ours_is_not_looked_at(lake: Lake, cli: Cli) -> None:
    hold = lake.aws.faults.hold_queries()
    unload = f"UNLOAD (SELECT n FROM numbers) TO 's3://{lake.bucket}/by-hand/' WITH (format = 'PARQUET')"
    for label in (None, Label("no location at all", 1, 1)):
        start(lake, label, unload.replace("by-hand", "by-hand" if label is None else "again"))
    wait_until(lambda: len(lake.aws.faults.held(hold)) == 2, "both run")
    cli.define(lake.target())
    found = cli("orphans", "--stop", "--json")
    assert (found.status, found.document["running"], found.document["stopped"]) == (0, 0, [])


def test_a_slot_without_a_register_names_nothing(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    hold = lake.aws.faults.hold_queries()
    unload = f"UNLOAD (SELECT n FROM numbers) TO 's3://{lake.bucket}/lost/' WITH (format = 'PARQUET')"
    query_id = start(lake, Label(target.location, 7, 1), unload)
    wait_until(lambda: lake.aws.faults.held(hold), "it runs")
    found = cli("orphans", "--in", "primary", "--json").document
    assert [(each["query_id"], each["fence"]) for each in found["orphans"]] == [(query_id, 7)]


def test_a_workgroup_that_there_is_not_is_an_error_and_no_empty_answer(lake: Lake, cli: Cli) -> None:
    ended = cli("orphans", "--in", "nowhere")
    assert ended.status == 4
    assert "nowhere" in ended.err


def history(lake: Lake, queries: int) -> None:
    """Queries that have ended, on top of one that runs."""
    lake.aws.faults.hold_queries(sql_contains="held")
    start(lake, None, "SELECT 'held' AS word")
    for _ in range(queries):
        start(lake, None, "SELECT 1 AS one")
    wait_until(
        lambda: sum(each.state == "SUCCEEDED" for each in lake.aws.queries()) == queries, "all others have ended", 300
    )


def test_pages_are_followed_to_a_query_that_is_old_and_still_runs(lake: Lake) -> None:
    history(lake, PAGE + 5)
    clients = AwsClients(lake.settings)
    before = len(lake.aws.requests(operation="ListQueryExecutions"))
    found = running_queries(clients, ["primary"], sleep=lambda _: None)
    assert [each.text for each in found.queries] == ["SELECT 'held' AS word"]
    assert found.cut_short == {}
    assert len(lake.aws.requests(operation="ListQueryExecutions")) - before == 2
    bounded = running_queries(clients, ["primary"], most_pages=1, sleep=lambda _: None)
    assert bounded.queries == ()
    assert bounded.cut_short == {"primary": f"more than {PAGE} queries in its history"}
    hurried = running_queries(clients, ["primary"], seconds=0.0, sleep=lambda _: None)
    assert hurried.cut_short == {"primary": f"no time for more than {PAGE} queries of its history"}


@pytest.mark.long
def test_throttling_is_waited_out_and_not_for_ever(lake: Lake) -> None:
    history(lake, 1)
    clients = AwsClients(lake.settings)
    throttled = Respond(400, "ThrottlingException")
    for operation in ("ListQueryExecutions", "BatchGetQueryExecution"):
        lake.aws.faults.add(Fault(throttled, operation=operation, times=5))  # the SDK itself tries four times
    waited: list[float] = []
    assert len(running_queries(clients, ["primary"], sleep=waited.append).queries) == 1
    assert len(waited) == 2
    lake.aws.faults.add(Fault(throttled, operation="ListQueryExecutions", times=None))
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    found = running_queries(clients, ["primary"], seconds=1, clock=lambda: now, sleep=sleep)
    assert found.queries == ()
    assert "no answer in time" in found.cut_short["primary"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_thousand_queries_in_the_history_stay_within_the_bounds(lake: Lake) -> None:
    history(lake, 2_000)
    before = len(lake.aws.requests(service="athena"))
    found = running_queries(AwsClients(lake.settings), ["primary"], seconds=300)
    assert [each.text for each in found.queries] == ["SELECT 'held' AS word"]
    assert len(lake.aws.requests(service="athena")) - before == 2 * 41  # a page, and what is on it
