"""Executions of the real state machine: its function runs in processes of its own, and they meet all other callers."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from athena_assets import Published, Reused, Skipped, Target, errors
from athena_assets.local import CutReply, DropReply, Fault, HoldReply, HoldRequest, Respond
from athena_assets.local.faults import Action
from athena_assets.orchestration import build_unload_asset
from athena_assets.step_functions.documents import Wish
from athena_assets.step_functions.machine import Topic
from athena_assets_tests.cli.conftest import Cli
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until
from athena_assets_tests.orchestration.runs import at, recorded, resource, sized
from athena_assets_tests.orchestration.test_termination import materialize, run_of, wait_until_told
from athena_assets_tests.step_functions.machine_of import LEASE, Machine

PARTITIONS = ["10", "20", "30"]


@pytest.fixture
def machine(lake: Lake) -> Machine:
    return Machine(lake)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def several(machine: Machine, target: Target, count: int) -> list[object]:
    """How so many callers ended that began together, each with an execution of its own."""
    barrier = threading.Barrier(count)
    callers = [ThreadCaller(machine.publisher(), target).start(barrier) for _ in range(count)]
    return [caller.join(300).outcome or caller.error for caller in callers]


def overlap(lake: Lake, target: Target) -> bool:
    """Whether two queries of the target were under way at one time, by Athena's history."""
    athena, times = lake.aws.client("athena"), []
    for query in lake.queries(target.location):
        status = athena.get_query_execution(QueryExecutionId=query.query_id)["QueryExecution"]["Status"]
        times.append((status["SubmissionDateTime"], status["CompletionDateTime"]))
    times.sort()
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(times))


def test_an_execution_publishes_once_and_its_request_finds_it_again(lake: Lake, machine: Machine) -> None:
    target = lake.target()
    outcome = machine.publisher().unload(target, request_id="wish")
    assert isinstance(outcome, Published)
    assert outcome.execution is not None
    assert machine.executions() == ["SUCCEEDED"]
    again = machine.publisher().unload(target, request_id="wish")
    assert again == outcome
    assert machine.executions() == ["SUCCEEDED"]
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)
    other = lake.publisher().unload(target, force=True)
    assert done(machine.publisher().unload(target, request_id="wish")).superseded
    assert isinstance(other, Published)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_ten_executions_queue_and_each_publishes_once(lake: Lake, machine: Machine) -> None:
    target = lake.target(on_conflict="queue", reuse="never")
    outcomes = several(machine, target, 10)
    published = [each.publication.query_id for each in outcomes if isinstance(each, Published)]
    assert len(set(published)) == 10, outcomes
    assert {each.query_id for each in lake.queries(target.location)} == set(published)
    assert not overlap(lake, target)
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_ten_executions_of_one_target_share_one_query(lake: Lake, machine: Machine) -> None:
    target = lake.target()
    outcomes = several(machine, target, 10)
    assert sum(isinstance(each, Published) for each in outcomes) == 1, outcomes
    assert sum(isinstance(each, Reused) for each in outcomes) == 9
    assert machine.executions() == ["SUCCEEDED"] * 10
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_request_started_by_many_is_one_execution(lake: Lake, machine: Machine) -> None:
    target = lake.target()
    barrier = threading.Barrier(5)
    arguments = {"request_id": "wish"}
    callers = [ThreadCaller(machine.publisher(), target, arguments).start(barrier) for _ in range(5)]
    outcomes = [done(caller.join(200).outcome) for caller in callers]
    assert {each.publication.query_id for each in outcomes} == {lake.queries(target.location)[0].query_id}
    assert all(isinstance(each, Published) for each in outcomes)
    assert machine.executions() == ["SUCCEEDED"]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_failed_query_is_raised_as_it_would_be_here_and_never_blocks_the_next_try(
    lake: Lake, machine: Machine
) -> None:
    target = lake.target(query="SELECT n / (n - n) AS n FROM numbers")
    for tries in (1, 2):
        with pytest.raises(errors.QueryUserError) as raised:
            machine.publisher().unload(target, request_id="wish")
        assert raised.value.query_id == lake.queries(target.location)[-1].query_id
        assert machine.executions() == ["FAILED"] * tries
        assert len(lake.queries(target.location)) == tries
        assert lake.state(target.location) == "free"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_request_comes_back_with_the_same_query_only(lake: Lake, machine: Machine) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    running = ThreadCaller(machine.publisher(), target, {"request_id": "wish"}).start()
    lake.wait_until_held(hold)
    other = replace(target, query="SELECT n FROM numbers WHERE n < 10")
    with pytest.raises(errors.RequestConflict):
        machine.publisher().unload(other, request_id="wish")
    lake.aws.faults.release(hold)
    assert isinstance(running.join(120).outcome, Published)
    with pytest.raises(errors.RequestConflict):
        machine.publisher().unload(other, request_id="wish")
    assert machine.executions() == ["SUCCEEDED"]
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_retry_of_a_request_that_reused_asks_again(lake: Lake, machine: Machine) -> None:
    target = lake.target()
    first = lake.publisher().unload(target)
    assert isinstance(machine.publisher().unload(target, request_id="wish"), Reused)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    again = machine.publisher().unload(target, request_id="wish")
    assert isinstance(again, Published)
    assert again.publication.query_id != done(first).publication.query_id
    lake.assert_published_once(target.location, range(ROWS + 10))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_query_that_fails_inside_athena_is_tried_again_in_the_same_execution(lake: Lake, machine: Machine) -> None:
    target = lake.target()
    lake.aws.faults.fail_queries(after_files=2)
    outcome = machine.publisher().unload(target)
    assert isinstance(outcome, Published)
    assert outcome.attempts == 2
    assert machine.executions() == ["SUCCEEDED"]
    assert [each.state for each in lake.queries(target.location)] == ["FAILED", "SUCCEEDED"]
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("action", "operation"),
    [
        (Respond(429, "TooManyRequestsException", "Rate Exceeded."), "Invoke"),
        (DropReply(), "Invoke"),
        (DropReply(), "StartExecution"),
        (DropReply(), "DescribeExecution"),
        (CutReply(5), "DescribeExecution"),
        (Respond(400, "ExecutionDoesNotExist", "Execution Does Not Exist"), "DescribeExecution"),
        (Respond(400, "ExecutionLimitExceeded", "Too many"), "StartExecution"),
    ],
    ids=[
        "function throttled",
        "step's reply lost",
        "start's reply lost",
        "look's reply lost",
        "look's reply cut",
        "not found yet",
        "too many executions",
    ],
)
def test_a_lost_reply_is_no_second_execution_and_no_second_query(
    lake: Lake, machine: Machine, action: Action, operation: str
) -> None:
    target = lake.target()
    service = "lambda" if operation == "Invoke" else "states"
    rule = lake.aws.faults.add(Fault(action, service, operation))
    outcome = machine.publisher().unload(target)
    assert lake.aws.faults.hits(rule) == 1
    assert isinstance(outcome, Published)
    assert machine.executions() == ["SUCCEEDED"]
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("late", [False, True], ids=["applied", "applied later"])
def test_a_step_that_is_killed_is_gone_on_from(lake: Lake, machine: Machine, write: int, late: bool) -> None:
    """The function's process is killed in one of its writes of the register, which is applied before or after that."""
    target = lake.target()
    held = HoldRequest() if late else HoldReply()
    rule = lake.aws.faults.add(Fault(held, "s3", "PutObject", "register.json", skip=write))
    caller = ThreadCaller(machine.publisher(), target).start()
    wait_until(lambda: lake.aws.faults.hits(rule) > 0, "the write is under way")
    machine.kill_step()
    lake.aws.faults.remove(rule)
    outcome = caller.join(200).outcome
    assert isinstance(outcome, Published), caller.error
    assert not outcome.adopted
    assert machine.executions() == ["SUCCEEDED"]
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_executions_threads_and_dagster_runs_of_one_location_share_one_query(
    lake: Lake, machine: Machine, instance: dg.DagsterInstance
) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    asset = build_unload_asset(target)

    def dagster() -> None:
        runs.append(dg.materialize([asset], instance=instance, resources={"athena": resource(lake)}))

    runs: list[dg.ExecuteInProcessResult] = []
    callers = [ThreadCaller(machine.publisher(), target).start(), ThreadCaller(lake.publisher(LEASE), target).start()]
    run = threading.Thread(target=dagster)
    run.start()
    lake.wait_until_held(hold)
    lake.aws.faults.release(hold)
    outcomes = [caller.join(120).outcome for caller in callers]
    run.join(120)
    assert all(isinstance(each, Published | Reused) for each in outcomes), [each.error for each in callers]
    assert runs[0].success
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_new_process_finds_the_execution_of_one_that_died(lake: Lake, machine: Machine, cli: Cli) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    first = cli.start("unload", cli.define(target), "--state-machine", machine.arn, "--request-id", "wish")
    lake.wait_until_held(hold)
    first.kill()
    first.wait()
    caller = ThreadCaller(machine.publisher(), target, {"request_id": "wish"}).start()
    wait_until(lambda: caller.told("execution"), "it finds the execution")
    assert machine.executions() == ["RUNNING"]
    lake.aws.faults.release(hold)
    assert isinstance(caller.join(120).outcome, Published)
    assert machine.executions() == ["SUCCEEDED"]
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("partitions", [[], PARTITIONS], ids=["one", "three"])
def test_an_interrupted_caller_stops_its_executions_and_their_queries(
    lake: Lake, machine: Machine, cli: Cli, number: signal.Signals, partitions: list[str]
) -> None:
    target = sized(lake) if partitions else lake.target()
    locations = [at(target, key) for key in partitions] or [target.location]
    lake.aws.faults.hold_queries()
    keys = [word for key in partitions for word in ("--partition", key)]
    process = cli.start("unload", cli.define(target), "--state-machine", machine.arn, *keys)
    wait_until(lambda: all(lake.state(each) == "running" for each in locations), "the queries' ids are recorded")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert machine.executions() == ["ABORTED"] * len(locations)
    for location in locations:
        assert [each.state for each in lake.queries(location)] == ["CANCELLED"]
        assert lake.state(location) == "free"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_execution_that_somebody_stops_is_told_and_the_next_caller_adopts_its_query(
    lake: Lake, machine: Machine
) -> None:
    target = lake.target()
    hold = lake.aws.faults.hold_queries()
    caller = ThreadCaller(machine.publisher(), target, {"request_id": "wish"}).start()
    lake.wait_until_held(hold)
    wait_until(lambda: lake.state(target.location) == "running", "the query's id is recorded")
    [execution] = [line.split()[-1] for line in caller.story if line.startswith("execution")]
    machine.states.stop_execution(executionArn=execution)
    error = caller.join(120).error
    assert isinstance(error, errors.ExecutionStopped)
    lake.aws.faults.release(hold)
    outcome = machine.publisher().unload(target, request_id="wish")
    assert isinstance(outcome, Published)
    assert machine.executions() == ["ABORTED", "SUCCEEDED"]
    assert len(lake.queries(target.location)) == 1
    lake.assert_published_once(target.location)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_dagster_lets_an_execution_do_it_and_records_it(
    lake: Lake, machine: Machine, instance: dg.DagsterInstance
) -> None:
    target = lake.target()
    by_machine = resource(lake, runner="step_functions", state_machine_arn=machine.arn)
    result = dg.materialize([build_unload_asset(target)], instance=instance, resources={"athena": by_machine})
    [metadata] = recorded(result)
    [query] = lake.queries(target.location)
    assert metadata["athena_assets/query_id"] == query.query_id
    assert metadata["athena_assets/request_id"].startswith(result.run_id)
    assert metadata["athena_assets/execution"].startswith(machine.arn.replace(":stateMachine:", ":execution:"))
    assert metadata["dagster/row_count"] == ROWS
    register = lake.register(target.location)
    assert register is not None
    assert register.publication is not None
    assert register.publication.run == result.run_id
    told = [event.user_message for event in instance.all_logs(result.run_id)]
    assert any(line.startswith("execution arn:") for line in told)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_terminated_run_stops_its_execution_and_the_query(
    lake: Lake, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = lake.target()
    lake.aws.faults.hold_queries()
    monkeypatch.setenv("TEST_STATE_MACHINE", machine.arn)
    process = materialize(lake, target, tmp_path)
    wait_until(lambda: lake.state(target.location) == "running", "the query's id is recorded")
    wait_until_told(tmp_path, "execution arn:")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert run_of(tmp_path).is_failure_or_canceled, output
    assert machine.executions() == ["ABORTED"], output
    assert [each.state for each in lake.queries(target.location)] == ["CANCELLED"]
    assert lake.state(target.location) == "free"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_partitions_run_as_executions_side_by_side_and_one_failure_ends_no_other(lake: Lake, machine: Machine) -> None:
    target = sized(lake)
    results = dict(machine.publisher().unload_partitions(target, [*PARTITIONS, "no number"]))
    assert [type(results[key]) for key in PARTITIONS] == [Published] * 3
    assert isinstance(results["no number"], errors.QueryUserError)
    for key in PARTITIONS:
        lake.assert_published_once(at(target, key), range(int(key)))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_who_skips_is_told_who_holds_the_slot_and_may_ask_again(lake: Lake, machine: Machine) -> None:
    target = lake.target(on_conflict="skip")
    hold = lake.aws.faults.hold_queries()
    holder = ThreadCaller(lake.publisher(60), target).start()
    query_id = lake.wait_until_held(hold)
    skipped = machine.publisher().unload(target, request_id="wish")
    assert isinstance(skipped, Skipped)
    assert skipped.query_id in (query_id, None)
    lake.aws.faults.release(hold)
    assert isinstance(holder.end(), Published)
    assert isinstance(machine.publisher().unload(target, request_id="wish"), Reused)
    assert machine.executions() == ["SUCCEEDED"] * 2


@pytest.mark.long
@pytest.mark.timeout(300)
def test_who_has_no_dagster_and_no_python_starts_an_execution_with_a_document(lake: Lake) -> None:
    aws = lake.aws
    topic = aws.client("sns").create_topic(Name="results")["TopicArn"]
    queue = aws.client("sqs").create_queue(QueueName="results")["QueueUrl"]
    queue_arn = aws.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    aws.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue_arn["QueueArn"])
    machine, target = Machine(lake, Topic(topic)), lake.target()
    document = Wish(target=target, output_location=lake.settings.output_location).document()
    good = machine.wait(machine.start(document, "good"))
    assert good["status"] == "SUCCEEDED"
    assert json.loads(good["output"])["status"] == "published"
    lake.assert_published_once(target.location)
    register = lake.register(target.location)
    assert register is not None
    assert register.publication is not None
    assert (register.publication.request, register.publication.run) == ("good", good["executionArn"])
    bad = machine.wait(machine.start(document | {"partition": "none"}, "bad"))
    assert (bad["status"], bad["error"]) == ("FAILED", "InvalidTarget")
    assert "partition" in bad["cause"]
    messages: dict[str, Any] = {}
    wait_until(lambda: len(told(aws.client("sqs"), queue, messages)) == 2, "both results are told")
    assert {name: message["status"] for name, message in messages.items()} == {"good": "published", "bad": "failed"}


def told(sqs: Any, queue: str, found: dict[str, Any]) -> dict[str, Any]:
    """The messages so far, by the names of their executions."""
    for message in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", ()):
        body = json.loads(json.loads(message["Body"])["Message"])
        found[body["name"]] = body
    return found
