"""`athena-assets unload` and `takeover`, judged by S3 and Athena's history."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter

import dagster as dg
import pytest

from athena_assets import Reused
from athena_assets.orchestration import build_unload_asset
from athena_assets_tests.cli.conftest import LEASE_OPTION, Cli
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, wait_until
from athena_assets_tests.e2e.processes import processes
from athena_assets_tests.orchestration.runs import recorded, resource


def end(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def test_unload_publishes_and_a_second_one_reuses(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    name = cli.define(target)
    first = cli("unload", name)
    assert first.status == 0, first.err
    assert first.out.startswith(f"published  {target.name}: 1,000 rows, 4 files, ")
    assert f"{target.name}: committed" in first.err
    second = cli("unload", target.name)
    assert second.out.startswith(f"reused     {target.name}: 1,000 rows, 4 files, ")
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


def test_unload_as_json_is_one_document_and_the_story_stays_on_stderr(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    ended = cli("--json", "unload", target.name)
    assert ended.document["command"] == "unload"
    assert ended.document["exit_status"] == ended.status == 0
    [result] = ended.document["results"]
    assert (result["outcome"], result["target"], result["location"]) == ("published", target.name, target.location)
    assert result["publication"]["query_id"] == lake.queries(target.location)[0].query_id
    assert result["publication"]["rows"] == ROWS
    assert f"{target.name}: committed" in ended.err


def test_what_the_command_line_published_dagster_reuses(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    [result] = cli("unload", cli.define(target), "--json").document["results"]
    run = dg.materialize([build_unload_asset(target)], resources={"athena": resource(lake)})
    [metadata] = recorded(run)
    assert metadata["athena_assets/reused"] is True
    assert metadata["athena_assets/query_id"] == result["publication"]["query_id"]
    assert metadata["athena_assets/reused_from_request"] == result["publication"]["request"]
    assert len(lake.queries(target.location)) == 1


def test_what_dagster_published_the_command_line_reuses(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    run = dg.materialize([build_unload_asset(target)], resources={"athena": resource(lake)})
    ended = cli("unload", cli.define(target), "--json")
    [result] = ended.document["results"]
    assert result["outcome"] == "reused"
    assert result["publication"]["run"] == run.run_id
    assert len(lake.queries(target.location)) == 1


def test_unload_joins_a_query_that_another_process_has_running(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    other = cli.start("unload", cli.define(target))
    wait_until(lambda: lake.aws.faults.held(hold), "the other's query is held")
    caller = ThreadCaller(lake.publisher(60), target).start()
    wait_until(lambda: caller.told("waiting"), "this one waits")
    lake.aws.faults.release(hold)
    caller.join()
    assert isinstance(caller.outcome, Reused)
    status, out, _ = end(other)
    assert (status, out.partition(" ")[0]) == (0, "published")
    assert len(lake.queries(target.location)) == 1


def test_force_runs_the_query_anew(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    cli("unload", target.name)
    assert cli("unload", target.name, "--force").out.startswith("published")
    assert len(lake.queries(target.location)) == 2
    lake.assert_published_once(target.location)


def test_a_request_id_that_comes_back_finds_its_own_publication(lake: Lake, cli: Cli) -> None:
    target = lake.target(reuse="never")
    cli.define(target)
    for _ in range(2):
        assert cli("unload", target.name, "--request-id", "nightly-7").out.startswith("published")
    assert len(lake.queries(target.location)) == 1
    cli("unload", target.name, "--request-id", "nightly-8")
    assert len(lake.queries(target.location)) == 2


def test_a_request_id_of_another_query_is_refused_as_wrong_usage(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target, lake.target("other", location=target.location, query="SELECT n + 1 AS n FROM numbers"))
    cli("unload", target.name, "--request-id", "nightly-7")
    assert cli("unload", "other", "--request-id", "nightly-7").status == 2
    assert len(lake.queries(target.location)) == 1


def test_several_partitions_run_at_once_and_each_is_told(lake: Lake, cli: Cli) -> None:
    target = lake.target(
        "parted",
        query="SELECT n FROM numbers WHERE n % 10 = CAST(${partition} AS INTEGER)",
        location=f"s3://{lake.bucket}/published/parted/digit=${{partition}}/",
    )
    hold = lake.aws.faults.hold_queries()
    process = cli.start("unload", cli.define(target), "--partition", "3", "--partition", "7", "--request-id", "x")
    wait_until(lambda: len(lake.aws.faults.held(hold)) == 2, "both queries are held")
    lake.aws.faults.release(hold)
    status, out, err = end(process)
    assert status == 0, err
    assert sorted(line.partition(": ")[0] for line in out.splitlines()) == [
        "published  parted[3]",
        "published  parted[7]",
    ]
    assert "parted[7]: committed" in err
    for digit in (3, 7):
        location = f"s3://{lake.bucket}/published/parted/digit={digit}/"
        lake.assert_published_once(location, range(digit, ROWS, 10))
        register = lake.register(location)
        assert register is not None
        assert register.publication is not None
        assert register.publication.request == f"x/partition={digit}"


def test_a_key_of_two_dimensions_names_one_slot(lake: Lake, cli: Cli) -> None:
    target = lake.target(
        "matrix",
        query="SELECT n FROM numbers WHERE n % 10 = CAST(${digit} AS bigint) AND n < CAST(${below} AS bigint)",
        location=f"s3://{lake.bucket}/published/matrix/digit=${{digit}}/below=${{below}}/",
        dimensions=("digit", "below"),
    )
    name = cli.define(target)
    assert cli("unload", name, "--partition", "50|3").status == 0
    lake.assert_published_once(f"s3://{lake.bucket}/published/matrix/digit=3/below=50/", range(3, 50, 10))
    refused = cli("unload", name, "--partition", "50")
    assert refused.status != 0
    assert "Write it as below|digit." in refused.err
    assert len(lake.aws.queries()) == 1


def test_a_partitioned_target_without_a_partition_is_wrong_usage(lake: Lake, cli: Cli) -> None:
    parted = lake.target(location=f"s3://{lake.bucket}/published/${{partition}}/")
    cli.define(parted, lake.target("plain"))
    for arguments in ([parted.name], ["plain", "--partition", "3"], [parted.name, "plain", "--partition", "3"]):
        ended = cli("unload", *arguments)
        assert (ended.status, ended.out) == (2, "")
        assert "InvalidTarget" in ended.err
    assert lake.aws.queries() == []


def test_a_failed_query_is_told_without_a_trace_and_the_next_target_is_published(lake: Lake, cli: Cli) -> None:
    wrong, right = lake.target(query="SELECT m FROM numbers"), lake.target()
    cli.define(wrong, right)
    ended = cli("unload", f"{cli.module}:everything")
    assert ended.status == 1
    assert "QueryUserError" in ended.err
    assert "Traceback" not in ended.err
    assert ended.out.startswith(f"published  {right.name}")
    lake.assert_published_once(right.location)

    document = cli("unload", wrong.name, "--json").document
    assert document["exit_status"] == 1
    [failed] = document["results"]
    assert failed["outcome"] == "failed"
    assert failed["error"]["kind"] == "QueryUserError"
    assert failed["error"]["query_id"] == lake.queries(wrong.location)[-1].query_id


@pytest.mark.parametrize(("policy", "word"), [("fail", "SlotBusy"), ("skip", "skipped")])
def test_a_held_slot_has_an_exit_status_of_its_own(lake: Lake, cli: Cli, policy: str, word: str) -> None:
    target = lake.target(on_conflict=policy)
    cli.define(target)
    hold = lake.aws.faults.hold_queries()
    holder = ThreadCaller(lake.publisher(60), target).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the holder's query is held")
    ended = cli("unload", target.name)
    assert ended.status == 3
    assert word in ended.out + ended.err
    lake.aws.faults.release(hold)
    holder.join()
    assert len(lake.queries(target.location)) == 1


def test_what_aws_refuses_has_an_exit_status_of_its_own(lake: Lake, cli: Cli) -> None:
    cli.define(lake.target("nowhere", location="s3://no-such-bucket-anywhere/published/"))
    ended = cli("unload", "nowhere")
    assert ended.status == 4
    assert "AccessDenied" in ended.err
    assert "Traceback" not in ended.err


def test_foreign_objects_want_a_person(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    lake.s3.put_object(Bucket=lake.bucket, Key=f"published/{target.name}/theirs.parquet", Body=b"theirs")
    ended = cli("unload", target.name)
    assert ended.status == 5
    assert "LocationNotEmpty" in ended.err


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "terminated"]
)
def test_an_interrupted_unload_stops_its_query_and_frees_the_slot(
    lake: Lake, cli: Cli, number: signal.Signals, status: int
) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    process = cli.start("--json", "unload", cli.define(target))
    wait_until(lambda: lake.aws.faults.held(hold), "the query is held")
    wait_until(lambda: (found := lake.register(target.location)) and found.state == "running", "its id is noted")
    process.send_signal(number)
    code, out, err = end(process)
    assert code == status
    assert "Traceback" not in err
    assert '"kind": "Interrupted"' in out
    assert [query.state for query in lake.queries(target.location)] == ["CANCELLED"]
    register = lake.register(target.location)
    assert register is not None
    assert register.state == "free"


def test_interrupted_partitions_all_stop_their_queries(lake: Lake, cli: Cli) -> None:
    location = f"s3://{lake.bucket}/published/parted/${{partition}}/"
    target = lake.target("parted", query="SELECT n FROM numbers WHERE ${partition} <> ''", location=location)
    hold = lake.aws.faults.hold_queries()
    process = cli.start("unload", cli.define(target), "--partition", "a", "--partition", "b")
    places = [location.replace("${partition}", key) for key in "ab"]
    wait_until(lambda: len(lake.aws.faults.held(hold)) == 2, "both queries are held")

    def running(place: str) -> bool:
        register = lake.register(place)
        return register is not None and register.state == "running"

    wait_until(lambda: all(running(place) for place in places), "both ids are noted")
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 143
    for place in places:
        assert [query.state for query in lake.queries(place)] == ["CANCELLED"]
        register = lake.register(place)
        assert register is not None
        assert register.state == "free"


def test_takeover_finishes_a_dead_owners_query_without_waiting_for_its_lease(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    hold = lake.aws.faults.hold_queries()
    with processes(lake, 1, lease=600) as [owner]:
        owner.publish(target)
        wait_until(lambda: lake.aws.faults.held(hold), "the owner's query is held")
        wait_until(lambda: (found := lake.register(target.location)) and found.state == "running", "its id is noted")
        owner.kill()
    lake.aws.faults.release(hold)
    ended = cli("takeover", target.name)  # the lease's 600 seconds are more than a test has
    assert ended.status == 0, ended.err
    assert ended.out.startswith(f"published  {target.name}: ")
    assert "begun by an earlier owner" in ended.out
    assert len(lake.queries(target.location)) == 1
    assert lake.rows(target.location) == Counter(range(ROWS))


def test_the_lease_is_the_one_that_was_asked_for(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli("unload", cli.define(target), *LEASE_OPTION)
    register = lake.register(target.location)
    assert register is not None
    assert (f"{register.lease}",) == LEASE_OPTION[1:]
