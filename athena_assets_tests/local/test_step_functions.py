"""State machines on the embedded AWS: what ours are made of behaves as on AWS."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from athena_assets.local import CutReply, DropReply, DropRequest, EmbeddedAws, Fault, HoldRequest, Respond
from athena_assets.local.states_gate import without_late
from athena_assets_tests.local.conftest import eventually, status_of
from athena_assets_tests.local.functions import ROLE, Workshop, task

# Fails as often as it is told to, by the kind that it is told, then returns how often it was called.
FLAKY = """
import pathlib
class Trouble(Exception):
    pass
class Other(Exception):
    pass
def handler(event, context):
    calls = pathlib.Path(event["calls"])
    with calls.open("a") as file:
        file.write("x")
    count = len(calls.read_text())
    if count <= event.get("failures", 0):
        raise globals()[event.get("kind", "Trouble")](f"call {count}")
    return count
"""
ECHO = "handler = lambda event, context: event\n"
SLEEP = """
import pathlib, time
def handler(event, context):
    while not pathlib.Path(event["until"]).exists():
        time.sleep(0.01)
    pathlib.Path(event["until"] + ".seen").touch()
    return "done"
"""
RETRY = {"IntervalSeconds": 1, "MaxAttempts": 2, "BackoffRate": 1.5, "MaxDelaySeconds": 2, "JitterStrategy": "FULL"}
END = {"Type": "Succeed"}
WAIT = {"Wait": {"Type": "Wait", "Seconds": 600, "End": True}}


@pytest.fixture
def shop(server: EmbeddedAws) -> Workshop:
    server.reset()
    return Workshop(server)


def kinds(history: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in history]


def test_a_pass_state_takes_parameters_and_the_context_object(shop: Workshop) -> None:
    parameters = {"id.$": "$$.Execution.Id", "name.$": "$$.Execution.Name", "input.$": "$", "memory": None}
    machine = shop.machine({"Begin": {"Type": "Pass", "Parameters": parameters, "End": True}})
    execution = shop.start(machine, {"sql": "SELECT 1"}, name="one")
    output = json.loads(shop.wait(execution)["output"])
    assert output == {"id": execution, "name": "one", "input": {"sql": "SELECT 1"}, "memory": None}
    assert execution == "arn:aws:states:us-east-1:123456789012:execution:m1:one"


def test_a_task_invokes_a_function_and_keeps_what_is_selected(shop: Workshop) -> None:
    shop.function(ECHO)
    step = task(
        Parameters={"FunctionName": "f", "Payload": {"action": "step", "execution.$": "$$.Execution.Id", "n.$": "$.n"}},
        ResultSelector={"got.$": "$.Payload", "version.$": "$.ExecutedVersion"},
        ResultPath="$.last",
        TimeoutSeconds=20,
    )
    output = shop.output({"Step": step}, {"n": [1, None]})
    got = output["last"]["got"]
    assert (output["n"], got["action"], got["n"]) == ([1, None], "step", [1, None])
    assert ":execution:m1:" in got["execution"]
    assert output["last"]["version"] == "$LATEST"


def test_a_machine_waits_by_seconds_path_until_a_choice_ends_it(shop: Workshop, tmp_path: Path) -> None:
    answer = "return {'status': 'waiting' if count < 2 else 'published', 'seconds': 1}"
    shop.function(FLAKY.replace("return count", answer))
    states = {
        "Step": task(Parameters={"FunctionName": "f", "Payload.$": "$.input"}, ResultPath="$.last", Next="Decide"),
        "Decide": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.last.value.status", "StringEquals": "waiting", "Next": "Pause"}],
            "Default": "Done",
        },
        "Pause": {"Type": "Wait", "SecondsPath": "$.last.value.seconds", "Next": "Step"},
        "Done": {"Type": "Pass", "Parameters": {"status.$": "$.last.value.status"}, "End": True},
    }
    execution = shop.start(shop.machine(states), {"input": {"calls": str(tmp_path / "calls")}})
    assert json.loads(shop.wait(execution)["output"]) == {"status": "published"}
    told = kinds(shop.history(execution))
    assert told.count("WaitStateEntered") == told.count("WaitStateExited") == 1


@pytest.mark.parametrize(
    ("failures", "kind", "ends"),
    [(2, "Trouble", "SUCCEEDED"), (1, "Other", "FAILED"), pytest.param(3, "Trouble", "FAILED", marks=pytest.mark.long)],
)
def test_a_task_is_tried_again_by_the_functions_error_type(
    shop: Workshop, tmp_path: Path, failures: int, kind: str, ends: str
) -> None:
    shop.function(FLAKY)
    retry = [{"ErrorEquals": ["Lambda.ServiceException", "Trouble"], **RETRY}]
    document = {"calls": str(tmp_path / "calls"), "failures": failures, "kind": kind}
    ended = shop.run({"Step": task(Retry=retry)}, document)
    assert ended["status"] == ends
    if ends == "SUCCEEDED":
        assert json.loads(ended["output"]) == {"value": failures + 1}
    else:
        assert (ended["error"], json.loads(ended["cause"])["errorMessage"]) == (kind, f"call {failures}")
    assert len((tmp_path / "calls").read_text()) == min(failures + 1, 3 if kind == "Trouble" else 1)


def test_each_retrier_counts_its_own_attempts(shop: Workshop, tmp_path: Path) -> None:
    shop.function(FLAKY)
    shop.aws.faults.add(Fault(Respond(429, "TooManyRequestsException"), "lambda", "Invoke"))
    retry = [
        {"ErrorEquals": ["Trouble"], **RETRY, "MaxAttempts": 1},
        {"ErrorEquals": ["Lambda.TooManyRequestsException"], **RETRY, "MaxAttempts": 1},
    ]
    document = {"calls": str(tmp_path / "calls"), "failures": 1}
    assert shop.output({"Step": task(Retry=retry)}, document) == {"value": 2}
    assert shop.invocations() == [429, 200, 200]


def test_a_refused_invocation_is_named_by_its_code(shop: Workshop) -> None:
    shop.function(ECHO)
    shop.aws.faults.add(Fault(Respond(429, "TooManyRequestsException", "Rate Exceeded."), "lambda", "Invoke"))
    ended = shop.run({"Step": task()})
    assert (ended["status"], ended["error"]) == ("FAILED", "Lambda.TooManyRequestsException")
    assert ended["cause"].startswith("Rate Exceeded. (Service: AWSLambda; Status Code: 429;")


@pytest.mark.parametrize("fault", [DropRequest(), DropReply(), CutReply(3)])
def test_an_invocation_whose_answer_is_lost_is_a_client_exception(shop: Workshop, fault: Any) -> None:
    shop.function(ECHO)
    shop.aws.faults.add(Fault(fault, "lambda", "Invoke"))
    ended = shop.run({"Step": task()}, {"n": 1})
    assert (ended["status"], ended["error"]) == ("FAILED", "Lambda.SdkClientException")
    assert len(shop.aws.functions()) == (0 if isinstance(fault, DropRequest) else 1)


def test_a_function_killed_in_mid_invocation_is_tried_again(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP)
    retry = [{"ErrorEquals": ["Runtime.ExitError", "Sandbox.Timedout"], **RETRY}]
    execution = shop.start(shop.machine({"Step": task(Retry=retry)}), {"until": str(tmp_path / "go")})
    os.kill(shop.busy().pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert json.loads(shop.wait(execution)["output"]) == {"value": "done"}
    assert shop.invocations() == [200, 200]


def test_a_caught_error_lies_beside_the_input(shop: Workshop, tmp_path: Path) -> None:
    shop.function(FLAKY)
    catch = [
        {"ErrorEquals": ["Other"], "Next": "Wrong"},
        {"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Told"},
    ]
    states = {"Step": task(Catch=catch), "Wrong": {"Type": "Fail"}, "Told": {"Type": "Pass", "End": True}}
    output = shop.output(states, {"calls": str(tmp_path / "calls"), "failures": 1})
    assert (output["failures"], output["error"]["Error"]) == (1, "Trouble")
    assert json.loads(output["error"]["Cause"])["errorMessage"] == "call 1"


@pytest.mark.parametrize("error", ["Trouble", "States.Timeout", "Lambda.Unknown"])
def test_a_machine_fails_with_an_error_from_its_input(shop: Workshop, error: str) -> None:
    states = {"Fail": {"Type": "Fail", "ErrorPath": "$.first.Error", "CausePath": "$.first.Cause"}}
    execution = shop.start(shop.machine(states), {"first": {"Error": error, "Cause": "it is not there"}})
    ended = shop.wait(execution)
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", error, "it is not there")
    assert "output" not in ended
    last = shop.history(execution)[-1]
    assert last["type"] == "ExecutionFailed"
    assert last["executionFailedEventDetails"] == {"error": error, "cause": "it is not there"}


def test_a_machine_is_described_as_it_was_defined(shop: Workshop) -> None:
    text = json.dumps({"StartAt": "F", "States": {"F": {"Type": "Fail", "ErrorPath": "$.e", "Cause": "x"}}}, indent=3)
    created = shop.states.create_state_machine(name="one", definition=text, roleArn=ROLE)
    machine = created["stateMachineArn"]
    assert shop.states.describe_state_machine(stateMachineArn=machine)["definition"] == text
    execution = shop.start(machine, {"e": "Trouble"})
    assert shop.states.describe_state_machine_for_execution(executionArn=execution)["definition"] == text
    assert shop.states.create_state_machine(name="one", definition=text, roleArn=ROLE)["stateMachineArn"] == machine
    with pytest.raises(ClientError) as taken:
        shop.states.create_state_machine(name="one", definition=text.replace("$.e", "$.f"), roleArn=ROLE)
    assert status_of(taken) == (400, "StateMachineAlreadyExists")


def test_an_updated_machine_runs_its_new_definition_next(shop: Workshop) -> None:
    machine = shop.machine(WAIT)
    waiting = shop.start(machine)
    fails = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "States.TaskFailed"}}}
    shop.states.update_state_machine(stateMachineArn=machine, definition=json.dumps(fails))
    ended = shop.wait(shop.start(machine))
    assert (ended["status"], ended["error"]) == ("FAILED", "States.TaskFailed")
    assert shop.describe(waiting)["status"] == "RUNNING"


def test_a_task_past_its_timeout_is_a_timeout_and_its_function_goes_on(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP)
    catch = [{"ErrorEquals": ["States.Timeout"], "ResultPath": "$.error", "Next": "Told"}]
    states = {"Step": task(TimeoutSeconds=1, Catch=catch), "Told": {"Type": "Pass", "End": True}}
    execution = shop.start(shop.machine(states), {"until": str(tmp_path / "go")})
    assert json.loads(shop.wait(execution)["output"])["error"]["Error"] == "States.Timeout"
    before = shop.history(execution)
    assert "TaskTimedOut" in kinds(before)
    (tmp_path / "go").touch()
    eventually((tmp_path / "go.seen").exists)
    eventually(lambda: shop.invocations() == [200])
    assert shop.history(execution) == before


def test_what_a_task_did_after_its_timeout_is_left_out_of_the_history() -> None:
    def event(number: int, before: int, kind: str) -> dict[str, Any]:
        return {"id": number, "previousEventId": before, "type": kind}

    told = [
        event(1, 0, "TaskStarted"),
        event(2, 1, "TaskTimedOut"),
        event(3, 2, "TaskStarted"),
        event(4, 1, "TaskSucceeded"),
        event(5, 3, "TaskSucceeded"),
        event(6, 5, "TaskStateExited"),
    ]
    assert without_late(told) == [*told[:3], event(4, 3, "TaskSucceeded"), event(5, 4, "TaskStateExited")]


def test_a_message_is_published_to_a_topic(shop: Workshop) -> None:
    sns, sqs = shop.aws.client("sns"), shop.aws.client("sqs")
    topic = sns.create_topic(Name="results")["TopicArn"]
    queue = sqs.create_queue(QueueName="inbox")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    notify = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sns:publish",
        "Parameters": {"TopicArn": topic, "Subject": "published", "Message": {"outcome.$": "$.outcome"}},
        "ResultPath": None,
        "End": True,
    }
    assert shop.output({"Notify": notify}, {"outcome": {"rows": 3}}) == {"outcome": {"rows": 3}}
    (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
    told = json.loads(message["Body"])
    assert (told["Subject"], json.loads(told["Message"])) == ("published", {"outcome": {"rows": 3}})


def test_a_failed_notification_is_named_and_caught(shop: Workshop) -> None:
    notify = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sns:publish",
        "Parameters": {"TopicArn": "arn:aws:sns:us-east-1:123456789012:absent", "Message": "x"},
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Done"}],
        "End": True,
    }
    states = {"Notify": notify, "Done": {"Type": "Pass", "End": True}}
    assert shop.output(states)["error"]["Error"] == "SNS.NotFoundException"
    shop.aws.faults.add(Fault(Respond(403, "AuthorizationError", "<no>"), "sns", "Publish"))
    error = shop.output(states)["error"]
    assert error["Error"] == "SNS.AuthorizationErrorException"
    assert error["Cause"].startswith("<no> (Service: AmazonSNS; Status Code: 403;")
    shop.aws.faults.add(Fault(DropRequest(), "sns", "Publish"))
    assert shop.output(states)["error"]["Error"] == "SNS.SdkClientException"


def test_an_event_is_put_on_a_bus(shop: Workshop) -> None:
    events, sqs = shop.aws.client("events"), shop.aws.client("sqs")
    queue = sqs.create_queue(QueueName="inbox")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="all", EventPattern=json.dumps({"source": ["ours"]}))
    events.put_targets(Rule="all", Targets=[{"Id": "inbox", "Arn": arn}])
    entry = {"Source": "ours", "DetailType": "Published", "Detail": {"rows.$": "$.rows"}}
    put = {
        "Type": "Task",
        "Resource": "arn:aws:states:::events:putEvents",
        "Parameters": {"Entries": [entry]},
        "ResultPath": "$.put",
        "End": True,
    }
    execution = shop.start(shop.machine({"Notify": put}), {"rows": 3})
    assert json.loads(shop.wait(execution)["output"])["put"]["FailedEntryCount"] == 0
    (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
    told = json.loads(message["Body"])
    assert (told["detail-type"], told["detail"]) == ("Published", {"rows": 3})
    assert execution in told["resources"]


def test_a_start_is_idempotent_by_name_and_input_while_it_runs(shop: Workshop) -> None:
    machine = shop.machine(WAIT)
    first = shop.states.start_execution(stateMachineArn=machine, name="one", input='{"n": 1}')
    again = shop.states.start_execution(stateMachineArn=machine, name="one", input='{"n": 1}')
    assert (again["executionArn"], again["startDate"]) == (first["executionArn"], first["startDate"])
    with pytest.raises(ClientError) as other:
        shop.start(machine, {"n": 2}, name="one")
    assert status_of(other) == (400, "ExecutionAlreadyExists")
    shop.states.stop_execution(executionArn=first["executionArn"])
    with pytest.raises(ClientError) as ended:
        shop.states.start_execution(stateMachineArn=machine, name="one", input='{"n": 1}')
    assert status_of(ended) == (400, "ExecutionAlreadyExists")
    assert len(shop.states.list_executions(stateMachineArn=machine)["executions"]) == 1


def test_a_start_whose_answer_is_lost_is_found_when_it_is_sent_again(shop: Workshop) -> None:
    machine = shop.machine(WAIT)
    shop.aws.faults.add(Fault(DropReply(), "states", "StartExecution", key_contains="one"))
    other = shop.start(machine, name="two")
    with pytest.raises(HTTPClientError):
        shop.start(machine, name="one")
    execution = shop.start(machine, name="one")
    listed = shop.states.list_executions(stateMachineArn=machine)["executions"]
    assert {entry["executionArn"] for entry in listed} == {other, execution}
    logged = [(record.key, record.status) for record in shop.aws.requests("states", "StartExecution")]
    assert logged == [("two", 200), ("one", -1), ("one", 200)]


def test_one_name_started_by_many_at_once_is_one_execution(shop: Workshop) -> None:
    machine = shop.machine(WAIT)
    with ThreadPoolExecutor(8) as pool:
        started = set(pool.map(lambda _: shop.start(machine, name="one"), range(8)))
    assert len(started) == 1
    assert len(shop.states.list_executions(stateMachineArn=machine)["executions"]) == 1


def test_executions_without_a_name_have_names_of_their_own(shop: Workshop) -> None:
    machine = shop.machine(WAIT)
    started = {shop.start(machine), shop.start(machine)}
    listed = shop.states.list_executions(stateMachineArn=machine)["executions"]
    assert {entry["executionArn"] for entry in listed} == started
    assert len({entry["name"] for entry in listed}) == 2


def test_an_unfit_name_is_refused(shop: Workshop) -> None:
    machine = shop.machine(WAIT)
    for name in ("a b", "a/b", "a:b", "x" * 81):
        with pytest.raises(ClientError) as refused:
            shop.start(machine, name=name)
        assert status_of(refused) == (400, "InvalidName")


def test_an_execution_stopped_in_a_wait_is_aborted_at_once(shop: Workshop) -> None:
    execution = shop.start(shop.machine(WAIT))
    stopped = shop.states.stop_execution(executionArn=execution, error="Ours", cause="by a test")
    found = shop.describe(execution)
    assert (found["status"], found["error"], found["cause"]) == ("ABORTED", "Ours", "by a test")
    assert found["stopDate"] == stopped["stopDate"]
    assert shop.states.stop_execution(executionArn=execution)["stopDate"] == stopped["stopDate"]
    last = shop.history(execution)[-1]
    assert last["executionAbortedEventDetails"] == {"error": "Ours", "cause": "by a test"}


def test_an_execution_stopped_in_a_task_is_aborted_and_its_function_goes_on(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP)
    states = {"Step": task(Next="More"), "More": task()}
    execution = shop.start(shop.machine(states), {"until": str(tmp_path / "go")})
    record = shop.busy()
    shop.states.stop_execution(executionArn=execution)
    found, before = shop.describe(execution), shop.history(execution)
    assert (found["status"], "output" in found, "error" in found) == ("ABORTED", False, False)
    assert kinds(before)[-2:] == ["TaskStarted", "ExecutionAborted"]
    assert shop.aws.functions() == [record]
    (tmp_path / "go").touch()
    eventually((tmp_path / "go.seen").exists)
    eventually(lambda: shop.invocations() == [200])
    eventually(lambda: not shop.aws.functions()[0].busy)
    later = shop.describe(execution)
    assert (later["status"], later["stopDate"]) == ("ABORTED", found["stopDate"])
    assert shop.history(execution) == before
    assert shop.invocations() == [200]


def test_an_execution_stopped_before_its_next_attempt_makes_none(shop: Workshop, tmp_path: Path) -> None:
    shop.function(FLAKY)
    retry = [{"ErrorEquals": ["Trouble"], "IntervalSeconds": 1, "MaxAttempts": 5}]
    execution = shop.start(shop.machine({"Step": task(Retry=retry)}), {"calls": str(tmp_path / "calls"), "failures": 9})
    eventually(lambda: "TaskFailed" in kinds(shop.history(execution)))
    shop.states.stop_execution(executionArn=execution)
    assert shop.describe(execution)["status"] == "ABORTED"
    assert len(shop.invocations()) == 1


def test_stopping_what_has_ended_changes_nothing(shop: Workshop) -> None:
    execution = shop.start(shop.machine({"Done": END}), {"n": 1})
    ended = shop.wait(execution)
    stopped = shop.states.stop_execution(executionArn=execution, error="Ours", cause="by a test")
    assert stopped["stopDate"] == ended["stopDate"]
    assert shop.describe(execution)["status"] == "SUCCEEDED"
    with pytest.raises(ClientError) as absent:
        shop.states.stop_execution(executionArn=execution + "x")
    assert status_of(absent) == (400, "ExecutionDoesNotExist")


def test_a_history_is_told_in_pages_and_from_its_end(shop: Workshop) -> None:
    execution = shop.start(shop.machine({"One": {"Type": "Pass", "Next": "Two"}, "Two": END}), {"n": 1})
    shop.wait(execution)
    events = shop.history(execution)
    assert kinds(events) == [
        "ExecutionStarted",
        "PassStateEntered",
        "PassStateExited",
        "SucceedStateEntered",
        "SucceedStateExited",
        "ExecutionSucceeded",
    ]
    assert [event["id"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert json.loads(events[-1]["executionSucceededEventDetails"]["output"]) == {"n": 1}
    assert shop.history(execution, reverseOrder=True, maxResults=1) == events[-1:]
    pages = shop.states.get_paginator("get_execution_history").paginate(
        executionArn=execution, PaginationConfig={"PageSize": 4}
    )
    assert [event for page in pages for event in page["events"]] == events


def test_an_execution_past_its_own_timeout_has_timed_out(shop: Workshop) -> None:
    machine = shop.machine(WAIT, TimeoutSeconds=1)
    execution = shop.start(machine, name="one")
    ended = shop.wait(execution)
    assert (ended["status"], ended["stopDate"] > ended["startDate"]) == ("TIMED_OUT", True)
    assert kinds(shop.history(execution))[-1] == "ExecutionTimedOut"


def test_ten_executions_at_once_each_with_several_invocations(shop: Workshop) -> None:
    shop.function("handler = lambda event, context: event + 1\n")
    states = {}
    for name, following in zip("ABC", "BCD", strict=True):
        step = task(OutputPath="$.Payload", Next=following)
        del step["ResultSelector"]
        states[name] = step
    machine = shop.machine({**states, "D": END})
    executions = [shop.start(machine, number * 10) for number in range(10)]
    assert [json.loads(shop.wait(each)["output"]) for each in executions] == [n * 10 + 3 for n in range(10)]
    assert shop.invocations() == [200] * 30
    assert len(shop.aws.functions()) <= 10


def test_a_reset_lets_no_execution_go_on(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP)
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 5, "JitterStrategy": "FULL"}]
    machine = shop.machine({"Step": task(Retry=retry)})
    shop.start(machine, {"until": str(tmp_path / "never")})
    shop.busy()
    hold = shop.aws.faults.add(Fault(HoldRequest(), "lambda", "Invoke"))
    shop.start(machine, {"until": str(tmp_path / "never")})
    eventually(lambda: shop.aws.faults.hits(hold) == 1)
    shop.aws.reset()
    assert shop.aws.functions() == []
    assert shop.states.list_state_machines()["stateMachines"] == []
