"""Lambda functions on the embedded AWS: they run, in subprocesses, and fail as on AWS."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from athena_assets.local import DropReply, DropRequest, EmbeddedAws, Fault, Respond
from athena_assets.local.lambda_api import PAYLOAD_LIMIT, exit_reason, function_name
from athena_assets_tests.local.conftest import eventually, status_of
from athena_assets_tests.local.functions import ROLE, Workshop, zipped

LONG = pytest.mark.long
ECHO = """
import os
def handler(event, context):
    return {"event": event, "pid": os.getpid()}
"""
SLEEP = """
import os, pathlib, time
def handler(event, context):
    while not pathlib.Path(event["until"]).exists():
        time.sleep(0.01)
    return os.getpid()
"""
KINDS = """
import os, signal, sys
class Trouble(Exception):
    pass
def trouble():
    raise Trouble("it is not there")
def handler(event, context):
    if event == "exit":
        sys.exit(7)
    if event == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if event == "set":
        return {1, 2}
    if event == "fork" and os.fork() == 0:
        import time
        time.sleep(600)
    if event == "fork":
        os._exit(9)
    if event:
        trouble()
    return os.getpid()
"""


@pytest.fixture
def shop(server: EmbeddedAws) -> Workshop:
    server.reset()
    return Workshop(server)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended stays until it is waited for, by a server that may be gone itself.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_handler_gets_its_event_and_its_context(shop: Workshop) -> None:
    arn = shop.function(
        "def handler(event, context):\n"
        "    left = context.get_remaining_time_in_millis()\n"
        "    return [event, context.function_name, context.invoked_function_arn, context.aws_request_id, left]\n",
        Timeout=20,
    )
    answer = shop.invoke({"n": [1, None, "é"]})
    event, name, invoked, request_id, left = answer["Payload"]
    assert (event, name, invoked) == ({"n": [1, None, "é"]}, "f", arn)
    assert request_id == answer["ResponseMetadata"]["RequestId"]
    assert 0 < left <= 20_000
    assert (answer["StatusCode"], answer["ExecutedVersion"]) == (200, "$LATEST")


def test_a_handlers_environment_is_its_variables_and_this_server(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, boto3\n"
        "def handler(event, context):\n"
        "    names = [b['Name'] for b in boto3.client('s3').list_buckets()['Buckets']]\n"
        "    return [dict(os.environ), os.getcwd(), names]\n"
    )
    shop.function(code, Environment={"Variables": {"COLOUR": "red", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}})
    shop.aws.client("s3").create_bucket(Bucket="theirs")
    environment, folder, buckets = shop.call()
    assert environment.items() >= {"COLOUR": "red", "AWS_LAMBDA_FUNCTION_NAME": "f"}.items()
    assert environment.items() >= shop.aws.environment().items()
    assert (environment["LAMBDA_TASK_ROOT"], buckets) == (folder, ["theirs"])
    assert "HOME" not in environment


def test_the_zip_may_lie_in_a_bucket(shop: Workshop) -> None:
    s3 = shop.aws.client("s3")
    s3.create_bucket(Bucket="code")
    s3.put_object(Bucket="code", Key="f.zip", Body=zipped({"app.py": ECHO}))
    settings = {"Runtime": "python3.13", "Role": ROLE, "Handler": "app.handler"}
    shop.functions.create_function(FunctionName="f", Code={"S3Bucket": "code", "S3Key": "f.zip"}, **settings)
    assert shop.call("x")["event"] == "x"


def test_code_in_the_zip_comes_before_installed_packages(shop: Workshop) -> None:
    files = {
        "app.py": "import boto3, athena_assets\nhandler = lambda e, c: [boto3.here, athena_assets.here]\n",
        "boto3.py": "here = 'boto3 of the zip'\n",
        "athena_assets/__init__.py": "here = 'athena_assets of the zip'\n",
    }
    settings = {"Runtime": "python3.13", "Role": ROLE, "Handler": "app.handler"}
    shop.functions.create_function(FunctionName="f", Code={"ZipFile": zipped(files)}, **settings)
    assert shop.call() == ["boto3 of the zip", "athena_assets of the zip"]


def test_a_warm_process_is_used_again(shop: Workshop) -> None:
    shop.function("count = 0\ndef handler(event, context):\n    global count\n    count += 1\n    return count\n")
    assert [shop.call() for _ in range(3)] == [1, 2, 3]
    (record,) = shop.aws.functions()
    assert (record.function_name, record.busy, record.invocations) == ("f", False, 3)


def test_simultaneous_invocations_have_a_process_each(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP)
    event = {"until": str(tmp_path / "go")}
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(shop.call, event) for _ in range(3)]
        eventually(lambda: len([record for record in shop.aws.functions() if record.busy]) == 3)
        (tmp_path / "go").touch()
        pids = {call.result() for call in calls}
    assert pids == {record.pid for record in shop.aws.functions()}
    assert len(pids) == 3
    assert shop.call(event) in pids


def test_an_exception_is_told_by_its_bare_name(shop: Workshop) -> None:
    shop.function(KINDS)
    told = shop.failure("raise")
    assert (told["errorType"], told["errorMessage"]) == ("Trouble", "it is not there")
    assert [line for line in told["stackTrace"] if "in trouble" in line]
    assert not [line for line in told["stackTrace"] if "lambda_runtime" in line]
    assert shop.call() == shop.call()  # its process lives on


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("exit", "exit status 7"),
        pytest.param("kill", "signal: killed", marks=LONG),
        ("fork", "exit status 9"),
    ],
)
def test_a_process_that_ends_is_an_exit_error_and_the_next_is_fresh(shop: Workshop, event: str, reason: str) -> None:
    shop.function(KINDS)
    before = shop.call()
    answer = shop.invoke(event)
    request_id = answer["ResponseMetadata"]["RequestId"]
    assert answer["Payload"] == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {request_id} Error: Runtime exited with error: {reason}",
    }
    assert answer["FunctionError"] == "Unhandled"
    assert shop.call() != before


def test_an_exit_without_an_error_has_no_reason() -> None:
    assert exit_reason(0) == "without providing a reason"
    assert exit_reason(-signal.SIGSEGV) == "with error: signal: segmentation fault"


def test_a_process_killed_between_invocations_is_not_noticed(shop: Workshop) -> None:
    shop.function(ECHO)
    pid = shop.call()["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: shop.aws.functions() == [])
    assert shop.call("again")["event"] == "again"


def test_a_process_killed_in_mid_invocation_is_found_by_its_record(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(shop.failure, {"until": str(tmp_path / "never")})
        record = shop.busy()
        os.kill(record.pid, signal.SIGKILL)
        assert call.result()["errorType"] == "Runtime.ExitError"
    assert shop.aws.functions() == []


def test_past_its_timeout_a_process_is_killed(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP, Timeout=1)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(shop.invoke, {"until": str(tmp_path / "never")})
        pid = shop.busy().pid
        answer = call.result()
    request_id = answer["ResponseMetadata"]["RequestId"]
    assert answer["Payload"] == {
        "errorType": "Sandbox.Timedout",
        "errorMessage": f"RequestId: {request_id} Error: Task timed out after 1.00 seconds",
    }
    assert not alive(pid)


@pytest.mark.parametrize(
    ("files", "handler", "kind", "message"),
    [
        ({}, "app.handler", "Runtime.ImportModuleError", "Unable to import module 'app': No module named 'app'"),
        ({"app.py": "x = 1"}, "app.handler", "Runtime.HandlerNotFound", "Handler 'handler' missing on module 'app'"),
        ({"app.py": "handler = lambda e, c: {1}"}, "app.handler", "Runtime.MarshalError", "Unable to marshal response"),
        pytest.param({"app.py": "def ("}, "app.handler", "Runtime.UserCodeSyntaxError", "Syntax error", marks=LONG),
        pytest.param({"app.py": "1 / 0"}, "app.handler", "ZeroDivisionError", "division by zero", marks=LONG),
        pytest.param({}, "app", "Runtime.MalformedHandlerName", "Bad handler 'app': ", marks=LONG),
    ],
)
def test_what_cannot_be_run_is_told_by_lambdas_names(
    shop: Workshop, files: dict[str, str], handler: str, kind: str, message: str
) -> None:
    settings = {"Runtime": "python3.13", "Role": ROLE, "Handler": handler}
    code = {"ZipFile": zipped({"other.txt": "", **files})}
    shop.functions.create_function(FunctionName="f", Code=code, **settings)
    answer = shop.invoke()
    told = answer["Payload"]
    assert (answer["FunctionError"], told["errorType"]) == ("Unhandled", kind)
    assert told["errorMessage"].startswith(message)
    assert told["requestId"] == answer["ResponseMetadata"]["RequestId"]


def test_an_answer_past_the_limit_is_a_function_error(shop: Workshop) -> None:
    shop.function("handler = lambda event, context: 'x' * event\n")
    assert shop.failure(PAYLOAD_LIMIT)["errorType"] == "Function.ResponseSizeTooLarge"


def test_an_unfit_event_is_refused(shop: Workshop) -> None:
    shop.function(ECHO)
    with pytest.raises(ClientError) as large:
        shop.invoke("x" * PAYLOAD_LIMIT)
    assert status_of(large) == (413, "RequestTooLargeException")
    with pytest.raises(ClientError) as torn:
        shop.functions.invoke(FunctionName="f", Payload=b"{")
    assert status_of(torn) == (400, "InvalidRequestContentException")
    assert shop.aws.functions() == []


def test_an_event_runs_in_the_background(shop: Workshop, tmp_path: Path) -> None:
    shop.function("import pathlib\nhandler = lambda event, context: pathlib.Path(event).touch()\n")
    answer = shop.invoke(str(tmp_path / "done"), InvocationType="Event")
    assert (answer["StatusCode"], answer["Payload"]) == (202, None)
    eventually((tmp_path / "done").exists)


def test_a_dry_run_runs_nothing(shop: Workshop) -> None:
    shop.function(ECHO)
    assert shop.invoke(InvocationType="DryRun")["StatusCode"] == 204
    assert shop.aws.functions() == []


def test_an_unknown_function_is_not_found(shop: Workshop) -> None:
    with pytest.raises(ClientError, match=r"function:f$") as e:
        shop.invoke()
    assert status_of(e) == (404, "ResourceNotFoundException")


def test_what_is_no_python_in_a_zip_is_refused(shop: Workshop) -> None:
    shop.function("", name="other", Runtime="nodejs22.x")
    with pytest.raises(ClientError) as other:
        shop.invoke(name="other")
    assert status_of(other) == (400, "InvalidParameterValueException")
    code = {"ZipFile": b"no zip file"}
    shop.functions.create_function(FunctionName="f", Code=code, Runtime="python3.13", Role=ROLE, Handler="app.handler")
    with pytest.raises(ClientError) as torn:
        shop.invoke()
    assert status_of(torn) == (502, "InvalidZipFileException")


def test_a_function_is_invoked_by_name_and_by_arn(shop: Workshop) -> None:
    arn = shop.function(ECHO)
    names = [arn, "f", "f:$LATEST", "123456789012:function:f", f"{arn}:$LATEST"]
    assert [shop.call(1, name=name)["event"] for name in names] == [1] * 5
    assert [function_name(name) for name in names] == ["f"] * 5


def test_a_published_version_keeps_its_code(shop: Workshop) -> None:
    shop.function("handler = lambda event, context: ['first', context.invoked_function_arn]\n")
    version = shop.functions.publish_version(FunctionName="f")["Version"]
    new = zipped({"app.py": "handler = lambda event, context: ['second', context.invoked_function_arn]\n"})
    shop.functions.update_function_code(FunctionName="f", ZipFile=new)
    arn = "arn:aws:lambda:us-east-1:123456789012:function:f"
    assert shop.call() == ["second", arn]
    assert shop.call(name=f"f:{version}") == ["first", f"{arn}:{version}"]
    assert shop.invoke(Qualifier=version)["Payload"] == ["first", f"{arn}:{version}"]


def test_new_code_and_a_new_configuration_have_new_processes(shop: Workshop) -> None:
    shop.function("import os\nhandler = lambda event, context: ['first', os.environ.get('COLOUR'), os.getpid()]\n")
    *first, pid = shop.call()
    new = "import os\nhandler = lambda event, context: ['second', os.environ.get('COLOUR'), os.getpid()]\n"
    shop.functions.update_function_code(FunctionName="f", ZipFile=zipped({"app.py": new}))
    assert not alive(pid)
    *second, pid = shop.call()
    shop.functions.update_function_configuration(FunctionName="f", Environment={"Variables": {"COLOUR": "red"}})
    assert not alive(pid)
    *third, _ = shop.call()
    assert [first, second, third] == [["first", None], ["second", None], ["second", "red"]]


def test_a_deleted_functions_invocation_ends_before_its_process(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(shop.call, {"until": str(tmp_path / "go")})
        pid = shop.busy().pid
        shop.functions.delete_function(FunctionName="f")
        assert [record.pid for record in shop.aws.functions()] == [pid]
        (tmp_path / "go").touch()
        assert call.result() == pid
    eventually(lambda: not alive(pid))
    assert shop.aws.functions() == []


def test_a_reset_ends_busy_and_idle_processes(shop: Workshop, tmp_path: Path) -> None:
    shop.function(SLEEP)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(shop.failure, {"until": str(tmp_path / "never")})
        busy = shop.busy().pid
        (tmp_path / "go").touch()
        idle = shop.call({"until": str(tmp_path / "go")})
        shop.aws.reset()
        assert call.result()["errorType"] == "Runtime.ExitError"
    assert not alive(busy)
    assert not alive(idle)
    assert shop.aws.functions() == []


def test_invocations_are_logged_and_disturbed_like_any_request(shop: Workshop) -> None:
    shop.function("count = 0\ndef handler(event, context):\n    global count\n    count += 1\n    return count\n")
    shop.aws.faults.add(Fault(Respond(429, "TooManyRequestsException", "Rate Exceeded."), "lambda", "Invoke", "f"))
    with pytest.raises(ClientError) as refused:
        shop.invoke()
    assert status_of(refused) == (429, "TooManyRequestsException")
    shop.aws.faults.add(Fault(DropRequest(), "lambda", "Invoke"))
    shop.aws.faults.add(Fault(DropReply(), "lambda", "Invoke"))
    for _ in range(2):
        with pytest.raises(HTTPClientError):
            shop.invoke()
    assert shop.call() == 2  # only the dropped reply had run
    logged = [(record.key, record.status) for record in shop.aws.requests("lambda", "Invoke")]
    assert logged == [("f", 429), ("f", -1), ("f", -1), ("f", 200)]
    assert [record.key for record in shop.aws.requests("lambda", "CreateFunction")] == ["f"]


def test_what_a_handler_prints_is_no_part_of_its_answer(shop: Workshop) -> None:
    shop.function("import os\ndef handler(event, context):\n    print()\n    os.write(1, b'')\n    return 'returned'\n")
    assert shop.call() == shop.call() == "returned"


@LONG
def test_what_a_handler_prints_and_logs_goes_to_the_servers_log(tmp_path: Path) -> None:
    code = (
        "import logging, os, sys\n"
        "def handler(event, context):\n"
        "    print('printed')\n"
        "    os.write(1, b'written\\n')\n"
        "    logging.getLogger(__name__).warning('logged')\n"
        "    return 'returned'\n"
    )
    with EmbeddedAws.start(log_path=tmp_path / "log") as aws:
        shop = Workshop(aws)
        shop.function(code)
        assert shop.call() == "returned"
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[:2] == ["printed", "written"]
    assert (lines[2].split("\t")[0], lines[2].split("\t")[-1]) == ("[WARNING]", "logged")


@LONG
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_subprocesses_die_with_the_server(how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle, busy and stopped ones, and what they have started."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed server leaves its folder
    code = (
        "import os, pathlib, subprocess, time\n"
        "def handler(event, context):\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        "    pathlib.Path(event['pids'] + '.part').write_text(f'{os.getpid()} {child.pid}')\n"
        "    os.rename(event['pids'] + '.part', event['pids'])\n"
        "    time.sleep(event['seconds'])\n"
    )
    with EmbeddedAws.start(log_path=tmp_path / "log") as aws:
        shop = Workshop(aws)
        shop.function(code)

        def invoke(name: str, seconds: float) -> None:
            event: dict[str, Any] = {"pids": str(tmp_path / name), "seconds": seconds}
            with contextlib.suppress(HTTPClientError):
                shop.invoke(event)

        def pids(name: str) -> list[int]:
            eventually((tmp_path / name).exists)
            return [int(pid) for pid in (tmp_path / name).read_text().split()]

        callers = [threading.Thread(target=invoke, args=(name, 600)) for name in ("busy", "stopped")]
        for caller in callers:
            caller.start()
        busy, stopped = pids("busy"), pids("stopped")
        invoke("idle", 0)
        os.kill(stopped[0], signal.SIGSTOP)
        process = aws._process
        assert process is not None
        process.send_signal(how)
        process.wait()
        for pid in [*busy, *stopped, *pids("idle")]:
            eventually(lambda pid=pid: not alive(pid), 10)  # type: ignore[misc]
        for caller in callers:
            caller.join()


def test_a_stopped_process_times_out(shop: Workshop) -> None:
    shop.function(ECHO, Timeout=1)
    pid = shop.call()["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert shop.failure()["errorType"] == "Sandbox.Timedout"
    assert not alive(pid)
