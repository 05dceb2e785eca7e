"""The server as a process: where it listens, how it starts, when it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from athena_assets.local import EmbeddedAws, EmbeddedAwsError
from athena_assets.local.http_server import LoopbackServer, Reply
from athena_assets_tests.local.conftest import Lake, eventually

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import os, sys
from athena_assets.local import EmbeddedAws
aws = EmbeddedAws.start()
print(aws.endpoint_url, flush=True)
sys.stdin.read()
"""


def listens(endpoint_url: str) -> bool:
    port = urlsplit(endpoint_url).port
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port or 0))) == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_dies_with_its_parent(how: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PARENT], env=environment, **pipes) as parent:  # type: ignore[call-overload]
        endpoint_url = parent.stdout.readline().decode().strip()
        assert listens(endpoint_url)
        parent.send_signal(how)
        parent.wait()
        eventually(lambda: not listens(endpoint_url), 5)


def test_a_stopped_server_is_gone_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with EmbeddedAws.start() as aws:
        assert len(list(tmp_path.iterdir())) == 1
    assert not listens(aws.endpoint_url)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(EmbeddedAwsError):
        aws.queries()


def test_start_up_is_quick_and_the_log_is_quiet(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = time.monotonic()
    with EmbeddedAws.start(log_path=log) as aws:
        elapsed = time.monotonic() - started
        aws.client("s3").list_buckets()
    assert elapsed < 10  # about one second; a loaded machine may take longer
    assert log.read_text() == ""


@pytest.mark.parametrize(
    "url", ["http://localhost:5000", "http://10.0.0.1:5000", "https://127.0.0.1:5000", "http://127.0.0.1"]
)
def test_only_a_loopback_endpoint_is_attached_to(url: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        EmbeddedAws.attach(url)


def test_attaching_to_something_else_is_refused() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(EmbeddedAwsError):
        EmbeddedAws.attach(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("host", ["0.0.0.0", "localhost", "::", "127.0.0.2"])
def test_the_server_binds_to_nothing_but_loopback(host: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1 only"):
        LoopbackServer(host, 0, lambda environ, body: Reply(200, [], b""))


def test_a_refused_host_is_said_and_ends_the_process() -> None:
    command = [sys.executable, "-m", "athena_assets.local.server", "--host", "0.0.0.0"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert found.returncode != 0
    assert "127.0.0.1 only" in found.stderr


def test_child_processes_reach_it_through_their_environment(lake: Lake) -> None:
    script = "import boto3, json; print(json.dumps([b['Name'] for b in boto3.client('s3').list_buckets()['Buckets']]))"
    environment = {**os.environ, "AWS_PROFILE": "", **lake.aws.environment()}
    del environment["AWS_PROFILE"]
    answer = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=True, timeout=60
    )
    assert sorted(json.loads(answer.stdout)) == ["data", "out", "results"]


def test_clients_ignore_the_persons_profile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "a-profile-that-does-not-exist")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    handle = EmbeddedAws.attach(lake.aws.endpoint_url)
    assert len(handle.client("s3").list_buckets()["Buckets"]) == 3


def test_connections_are_kept(lake: Lake) -> None:
    signed = "Authorization: AWS4-HMAC-SHA256 Credential=embedded/20260101/us-east-1/s3/aws4_request, Signature=0"
    with socket.create_connection(("127.0.0.1", int(urlsplit(lake.aws.endpoint_url).port or 0))) as connection:
        reader = connection.makefile("rb")
        for method, body in (("PUT", b"content"), ("GET", b""), ("HEAD", b""), ("GET", b"")):
            head = f"{method} /out/k HTTP/1.1\r\nHost: 127.0.0.1\r\n{signed}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert reader.readline().startswith(b"HTTP/1.1 200")
            headers = {}
            while (line := reader.readline().strip()) != b"":
                name, _, value = line.decode().partition(": ")
                headers[name.lower()] = value
            assert headers["connection"] == "keep-alive"
            if method == "GET":
                assert reader.read(int(headers["content-length"])) == b"content"


def test_sixty_four_threads_are_served_at_once(lake: Lake) -> None:
    def work(number: int) -> bytes:
        for turn in range(5):
            lake.put(f"{number}/{turn}", str(number).encode())
        return lake.read(f"{number}/4")

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(work, range(64))) == [str(number).encode() for number in range(64)]
    assert len(lake.keys()) == 320


def test_large_objects_pass_unchanged(lake: Lake) -> None:
    body = os.urandom(12 * 1024 * 1024)
    lake.put("large", body)
    assert lake.read("large") == body
    tail = lake.s3.get_object(Bucket="out", Key="large", Range="bytes=-10")["Body"].read()
    assert tail == body[-10:]
