"""Replies of AWS, sorted: real clients against a server that answers whatever a test asks for."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore import exceptions
from botocore.exceptions import TokenRetrievalError

from athena_assets.aws.athena import Athena
from athena_assets.aws.glue import UpstreamVersions
from athena_assets.aws.replies import Refusal, call, question
from athena_assets.aws.session import AwsClients, AwsSettings
from athena_assets.aws.workgroup import read_workgroup
from athena_assets.core.effects import CountRows, PollQuery, Refused, StartQuery, Unanswered
from athena_assets.core.target import UpstreamTable
from athena_assets.errors import AccessDenied, ServiceUnavailable
from athena_assets_tests.core.examples import START

SLOT = "s3://lake/marts/daily/"


@dataclass
class Reply:
    """What the server does with every request. `announced`: the length that it claims, if it then sends less."""

    status: int = 200
    body: bytes = b""
    announced: int | None = None
    hang_up: bool = False
    headers: dict[str, str] = field(default_factory=dict)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply = Reply()
        self.requests: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"  # answers `Expect: 100-continue`, for which a client else waits a second

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(self.command)
        reply = self.server.reply
        self.close_connection = True
        if reply.hang_up:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(reply.body) if reply.announced is None else reply.announced))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def server(running_server: Server) -> Server:
    running_server.reply = Reply()
    running_server.requests.clear()
    return running_server


def clients_of(port: int) -> AwsClients:
    return AwsClients(AwsSettings(region="eu-central-1", endpoint_url=f"http://127.0.0.1:{port}"))


@pytest.fixture(scope="module")
def clients(running_server: Server) -> AwsClients:
    return clients_of(running_server.server_port)


KEY = {"Bucket": "lake", "Key": "a/b"}
Answer = Any


@dataclass
class Sdk:
    """The operations of the adapters, each with one HTTP attempt."""

    clients: AwsClients

    def put(self) -> Answer:
        return call(SLOT, self.clients.s3_once.put_object, {**KEY, "Body": b"x", "IfMatch": '"e"', "ACL": None})

    def copy(self) -> Answer:
        return call(SLOT, self.clients.s3_once.copy_object, {**KEY, "CopySource": "lake/x", "IfNoneMatch": "*"})

    def delete(self) -> Answer:
        return call(SLOT, self.clients.s3_once.delete_object, {**KEY, "IfMatch": '"e"'})

    def start(self) -> Answer:
        return call(SLOT, self.clients.athena_once.start_query_execution, {"QueryString": "SELECT 1"})

    def read(self) -> Answer:
        def get(**arguments: Any) -> bytes:
            return self.clients.s3_once.get_object(**arguments)["Body"].read()

        return question(SLOT, get, KEY)

    def listing(self) -> Answer:
        return question(SLOT, self.clients.s3_once.list_objects_v2, {"Bucket": "lake"})

    def head(self) -> Answer:
        return question(SLOT, self.clients.s3_once.head_object, KEY)

    def poll(self) -> Answer:
        return question(SLOT, self.clients.athena_once.get_query_execution, {"QueryExecutionId": "q"})


Operation = Callable[[Sdk], Answer]
S3_WRITES = [Sdk.put, Sdk.copy, Sdk.delete]
S3_READS = [Sdk.read, Sdk.listing]
ATHENA = [Sdk.start, Sdk.poll]


@pytest.fixture(scope="module")
def sdk(clients: AwsClients) -> Sdk:
    return Sdk(clients)


def s3_error(status: int, code: str) -> Reply:
    return Reply(status, f"<Error><Code>{code}</Code><Message>Said so</Message></Error>".encode())


def athena_error(status: int, code: str, **more: str) -> Reply:
    return Reply(status, json.dumps({"__type": code, "Message": "Said so", **more}).encode())


# --- an answer -------------------------------------------------------------------------------------------------------


def test_an_answer_is_handed_on_and_arguments_of_none_are_left_out(server: Server, sdk: Sdk) -> None:
    server.reply = Reply(headers={"ETag": '"new"'})
    assert sdk.put()["ETag"] == '"new"'
    server.reply = Reply(body=b"contents")
    assert sdk.read() == b"contents"


def test_an_answer_of_athena_is_handed_on(server: Server, sdk: Sdk) -> None:
    server.reply = Reply(body=b'{"QueryExecutionId": "q-1"}')
    assert sdk.start()["QueryExecutionId"] == "q-1"


# --- no answer that tells anything -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [*S3_WRITES, *S3_READS])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (500, "InternalError"),
        (502, "BadGateway"),
        (503, "SlowDown"),
        (503, "ServiceUnavailable"),
        (504, "GatewayTimeout"),
        (400, "RequestTimeout"),
    ],
)
def test_an_error_of_s3_itself_is_no_answer(
    server: Server, sdk: Sdk, operation: Operation, status: int, code: str
) -> None:
    server.reply = s3_error(status, code)
    assert operation(sdk) == Unanswered(f"HTTP {status} {code}")
    assert len(server.requests) == 1


@pytest.mark.parametrize("operation", ATHENA)
def test_an_error_of_athena_itself_is_no_answer(server: Server, sdk: Sdk, operation: Operation) -> None:
    server.reply = athena_error(500, "InternalServerException")
    assert operation(sdk) == Unanswered("HTTP 500 InternalServerException")
    assert len(server.requests) == 1


@pytest.mark.parametrize("operation", [*S3_WRITES, *S3_READS, Sdk.head, *ATHENA])
def test_a_gateway_that_speaks_html_is_no_answer(server: Server, sdk: Sdk, operation: Operation) -> None:
    server.reply = Reply(502, b"<html>Bad gateway")
    assert isinstance(operation(sdk), Unanswered)


@pytest.mark.parametrize("operation", [*S3_WRITES, *S3_READS, Sdk.head, *ATHENA])
def test_a_connection_that_closes_is_no_answer_and_the_request_is_sent_once(
    server: Server, sdk: Sdk, operation: Operation
) -> None:
    server.reply = Reply(hang_up=True)
    answer = operation(sdk)
    assert isinstance(answer, Unanswered)
    assert answer.reason.startswith("ConnectionClosedError: ")
    assert len(server.requests) == 1


@pytest.mark.parametrize("operation", [Sdk.put, Sdk.read, Sdk.start])
def test_a_server_that_is_not_there_is_no_answer(operation: Operation) -> None:
    with socket.socket() as reserved:  # bound and not listening: whoever connects is refused
        reserved.bind(("127.0.0.1", 0))
        answer = operation(Sdk(clients_of(reserved.getsockname()[1])))
    assert isinstance(answer, Unanswered)
    assert answer.reason.startswith("EndpointConnectionError: ")


def test_an_object_that_ends_early_is_no_answer(server: Server, sdk: Sdk) -> None:
    server.reply = Reply(body=b'{"fence": 7', announced=100)
    assert isinstance(sdk.read(), Unanswered)


@pytest.mark.parametrize("operation", [Sdk.listing, Sdk.copy])
@pytest.mark.parametrize("announced", [None, 500])
def test_a_reply_of_s3_that_ends_early_is_no_answer(
    server: Server, sdk: Sdk, operation: Operation, announced: int | None
) -> None:
    server.reply = Reply(body=b'<?xml version="1.0"?><Result><Contents><Key>a</Key>', announced=announced)
    assert isinstance(operation(sdk), Unanswered)


@pytest.mark.parametrize("code", ["InternalError", "SlowDown"])
def test_an_error_in_the_body_of_a_200_is_no_answer(server: Server, sdk: Sdk, code: str) -> None:
    server.reply = s3_error(200, code)
    assert isinstance(sdk.copy(), Unanswered)


# --- a definite refusal ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", S3_WRITES)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "InvalidRequest"),
        (403, "AccessDenied"),
        (404, "NoSuchKey"),
        (404, "NoSuchBucket"),
        (409, "ConditionalRequestConflict"),
        (412, "PreconditionFailed"),
        (501, "NotImplemented"),
    ],
)
def test_a_write_that_s3_refuses_is_a_refusal_with_status_and_code(
    server: Server, sdk: Sdk, operation: Operation, status: int, code: str
) -> None:
    server.reply = s3_error(status, code)
    answer = operation(sdk)
    assert answer == Refusal(status, code, "Said so")
    assert answer.as_answer() == Refused(status, code)
    assert not answer.throttled
    assert len(server.requests) == 1


def test_a_refusal_without_a_body_has_the_status_as_its_code(server: Server, sdk: Sdk) -> None:
    server.reply = Reply(412)
    assert sdk.put().as_answer() == Refused(412, "412")


def test_athenas_own_code_is_kept(server: Server, sdk: Sdk) -> None:
    server.reply = athena_error(400, "InvalidRequestException", AthenaErrorCode="IDEMPOTENT_PARAMETER_MISMATCH")
    assert sdk.start() == Refusal(400, "InvalidRequestException", "Said so", "IDEMPOTENT_PARAMETER_MISMATCH")


@pytest.mark.parametrize(
    ("status", "code"), [(400, "TooManyRequestsException"), (400, "ThrottlingException"), (429, "ThrottlingException")]
)
def test_a_throttled_call_was_definitely_not_performed(server: Server, sdk: Sdk, status: int, code: str) -> None:
    server.reply = athena_error(status, code)
    answer = sdk.start()
    assert answer == Refusal(status, code, "Said so")
    assert answer.throttled


@pytest.mark.parametrize("code", ["AccessDeniedException", "InvalidRequestException"])
def test_a_start_that_athena_refuses_is_a_refusal(server: Server, sdk: Sdk, code: str) -> None:
    server.reply = athena_error(400, code)
    answer = sdk.start()
    assert answer == Refusal(400, code, "Said so")
    assert not answer.throttled


# --- questions -------------------------------------------------------------------------------------------------------


def test_a_missing_object_is_a_refusal_that_means_absent(server: Server, sdk: Sdk) -> None:
    server.reply = s3_error(404, "NoSuchKey")
    assert sdk.read() == Refusal(404, "NoSuchKey", "Said so")
    server.reply = Reply(404)
    assert sdk.head().status == 404


@pytest.mark.parametrize("operation", S3_READS)
def test_a_missing_bucket_is_not_a_missing_object(server: Server, sdk: Sdk, operation: Operation) -> None:
    server.reply = s3_error(404, "NoSuchBucket")
    with pytest.raises(AccessDenied, match="HTTP 404 NoSuchBucket"):
        operation(sdk)


@pytest.mark.parametrize("operation", S3_READS)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "InvalidRequest"),
        (401, "Unauthorized"),
        (403, "AccessDenied"),
        (403, "InvalidAccessKeyId"),
        (403, "SignatureDoesNotMatch"),
        (403, "RequestTimeTooSkewed"),
    ],
)
def test_what_no_wait_can_cure_is_raised(
    server: Server, sdk: Sdk, operation: Operation, status: int, code: str
) -> None:
    server.reply = s3_error(status, code)
    with pytest.raises(AccessDenied) as caught:
        operation(sdk)
    assert caught.value.subject == SLOT
    assert f"HTTP {status} {code}" in caught.value.what


def test_a_bucket_of_another_region_behind_one_endpoint_is_raised(server: Server, sdk: Sdk) -> None:
    server.reply = replace(s3_error(301, "PermanentRedirect"), headers={"x-amz-bucket-region": "us-east-1"})
    with pytest.raises(AccessDenied, match="HTTP 301 PermanentRedirect"):
        sdk.listing()


def test_a_head_that_is_forbidden_is_raised_too(server: Server, sdk: Sdk) -> None:
    server.reply = Reply(403)
    with pytest.raises(AccessDenied, match="HTTP 403 403"):
        sdk.head()


@pytest.mark.parametrize("code", ["ThrottlingException", "TooManyRequestsException"])
def test_a_throttled_question_is_unanswered(server: Server, sdk: Sdk, code: str) -> None:
    server.reply = athena_error(400, code)
    assert sdk.poll() == Unanswered(f"HTTP 400 {code}")


# --- credentials -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [*S3_WRITES, *S3_READS])
@pytest.mark.parametrize(("status", "code"), [(400, "ExpiredToken"), (400, "InvalidToken")])
def test_credentials_that_s3_no_longer_takes_are_raised_from_every_call(
    server: Server, sdk: Sdk, operation: Operation, status: int, code: str
) -> None:
    server.reply = s3_error(status, code)
    with pytest.raises(AccessDenied) as caught:
        operation(sdk)
    assert caught.value.subject == SLOT
    assert f"({code}: Said so)" in caught.value.what
    assert isinstance(caught.value.__cause__, exceptions.ClientError)


@pytest.mark.parametrize("operation", ATHENA)
@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException", "InvalidClientTokenId"])
def test_credentials_that_athena_no_longer_takes_are_raised_from_every_call(
    server: Server, sdk: Sdk, operation: Operation, code: str
) -> None:
    server.reply = athena_error(400, code)
    with pytest.raises(AccessDenied, match=code):
        operation(sdk)


def test_no_credentials_at_all_are_raised_and_nothing_is_sent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AccessDenied, match="Unable to locate credentials") as caught:
        Sdk(clients_of(server.server_port)).put()
    assert server.requests == []
    assert caught.value.next_step.startswith("Mend credentials")


@pytest.mark.parametrize(
    "error",
    [
        exceptions.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        exceptions.CredentialRetrievalError(provider="process", error_msg="exit 1"),
        exceptions.UnauthorizedSSOTokenError(),
        exceptions.SSOTokenLoadError(error_msg="no token"),
        exceptions.NoRegionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_credentials_that_can_not_be_had_are_raised(error: Exception) -> None:
    def operation() -> None:
        raise error

    with pytest.raises(AccessDenied) as caught:
        call(SLOT, operation, {})
    assert caught.value.__cause__ is error


def test_a_bug_of_our_own_is_not_swallowed() -> None:
    def operation() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        question(SLOT, operation, {})


def test_a_json_reply_that_breaks_off_is_no_answer(server: Any, clients: Any) -> None:
    athena = Athena(clients, SLOT)
    server.reply = Reply(body=b'{"QueryExecutionId": "q', announced=60)
    assert isinstance(athena.start(StartQuery(START, "t" * 64)), Unanswered)
    server.reply = Reply(body=b'{"QueryExecution": {"Status', announced=600)
    assert isinstance(athena.poll(PollQuery("q")), Unanswered)
    server.reply = Reply(body=b'{"QueryExecutions": [{"Que', announced=600)
    assert isinstance(athena.poll_many(("q",))["q"], Unanswered)
    server.reply = Reply(body=b'{"QueryRuntimeStatistics": {"Ro', announced=600)
    assert athena.count_rows(CountRows("q")) is None
    server.reply = Reply(body=b'{"Table": {"Na', announced=600)
    assert UpstreamVersions(clients).resolve((UpstreamTable("d", "t"),))[0].version is None
    server.reply = Reply(body=b'{"WorkGroup": {"Na', announced=600)
    with pytest.raises(ServiceUnavailable):
        read_workgroup(clients, "primary", seconds=0)


def test_a_failed_token_refresh_is_a_matter_of_credentials() -> None:
    def expired() -> None:
        raise TokenRetrievalError(provider="sso", error_msg="expired")

    with pytest.raises(AccessDenied):
        call(SLOT, expired, {})
