"""The handle on an embedded AWS: starts the server process or attaches to one."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config

from athena_assets.local.client_environment import ACCESS_KEY, REGION, SECRET_KEY, client_environment
from athena_assets.local.fault_client import Faults
from athena_assets.local.faults import FunctionRecord, QueryRecord, RequestRecord

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class EmbeddedAwsError(RuntimeError):
    """The server did not start, is gone, or refused a control call. Nothing was changed by a refused call."""


class EmbeddedAws:
    """One embedded AWS. A context manager; only the one who started the server stops it."""

    def __init__(self, endpoint_url: str, process: subprocess.Popen[bytes] | None = None) -> None:
        parts = urlsplit(endpoint_url)
        if parts.scheme != "http" or parts.hostname != "127.0.0.1" or parts.port is None or parts.path.strip("/"):
            raise ValueError(f"an embedded AWS is at http://127.0.0.1:<port>, not at {endpoint_url!r}")
        self.endpoint_url = f"http://127.0.0.1:{parts.port}"
        self.faults = Faults(self._call)
        self._port = parts.port
        self._process = process
        self._session_lock = threading.Lock()
        self._session: boto3.Session | None = None

    @classmethod
    def start(
        cls,
        port: int = 0,
        log_path: str | os.PathLike[str] | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> EmbeddedAws:
        """Starts a server process and waits until it listens. It dies with this process, however that ends.

        `log_path` takes what the server says (only its errors); without one it goes to this process's stderr.
        `state` is a folder, made if need be, that keeps objects, catalog, queries, tokens and workgroups for the next
        server, however this one ends; one server at a time. `EmbeddedAwsError` if another has it or another version
        wrote it.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
        paths = [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        command = [
            sys.executable,
            "-m",
            "athena_assets.local.server",
            "--port",
            str(port),
            "--parent-pid",
            str(os.getpid()),
        ]
        if state is not None:
            command += ["--state", os.fspath(state)]
        log = Path(log_path).open("ab") if log_path is not None else None  # noqa: SIM115 - closed below
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        finally:
            if log is not None:
                log.close()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.stdout.close()
            raise EmbeddedAwsError(f"the embedded AWS ended at its start with status {process.wait()}")
        return cls(f"http://127.0.0.1:{json.loads(line)['port']}", process)

    @classmethod
    def attach(cls, endpoint_url: str) -> EmbeddedAws:
        """A handle on a server that somebody else has started. `ValueError` for anything but 127.0.0.1."""
        handle = cls(endpoint_url)
        if "embedded_aws" not in handle._call("ping"):
            raise EmbeddedAwsError(f"{endpoint_url} is not an embedded AWS")
        return handle

    def client(self, service: str, config: Config | None = None) -> Any:
        """A boto3 client for this server, whatever profiles, proxies and variables the environment has."""
        with self._session_lock:  # sessions are not thread-safe
            if self._session is None:
                nowhere: dict[str, Any] = {
                    "profile": (None, None, None, None),
                    "config_file": (None, None, os.devnull, None),
                    "credentials_file": (None, None, os.devnull, None),
                }
                core = botocore.session.Session(session_vars=nowhere)
                self._session = boto3.Session(
                    aws_access_key_id=ACCESS_KEY,
                    aws_secret_access_key=SECRET_KEY,
                    region_name=REGION,
                    botocore_session=core,
                )
            base = Config(proxies={}, max_pool_connections=64, s3={"addressing_style": "path"})
            return cast(Any, self._session).client(
                service, endpoint_url=self.endpoint_url, config=base if config is None else base.merge(config)
            )

    def environment(self) -> dict[str, str]:
        """Variables for a child process whose AWS clients are to use this server."""
        return client_environment(self.endpoint_url)

    def queries(self) -> list[QueryRecord]:
        """The embedded Athena's own history, oldest first."""
        return [QueryRecord(**record) for record in self._call("queries")]

    def functions(self) -> list[FunctionRecord]:
        """The subprocesses of Lambda functions that are alive now, oldest first."""
        return [FunctionRecord(**record) for record in self._call("functions")]

    def requests(
        self, service: str | None = None, operation: str | None = None, key_contains: str | None = None
    ) -> list[RequestRecord]:
        """The HTTP requests served (the last 200,000), in order; control calls are not among them."""
        found = self._call("requests", service=service, operation=operation, key_contains=key_contains)
        return [RequestRecord(**record) for record in found]

    def reset(self) -> None:
        """Stops all queries, executions and functions, lets held requests go, and empties everything.

        Everything: buckets, tables, functions, state machines, history, faults, log.
        """
        self._call("reset")

    def stop(self) -> None:
        """Ends the server if this handle started it. What it knew is gone, unless it was started with a `state`."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _call(self, name: str, **arguments: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("POST", f"/_embedded/{name}", json.dumps(arguments))
            response = connection.getresponse()
            body = response.read()
        except OSError as error:
            raise EmbeddedAwsError(f"no embedded AWS answers at {self.endpoint_url}: {error}") from error
        finally:
            connection.close()
        try:
            document = json.loads(body)
        except ValueError as error:
            raise EmbeddedAwsError(f"{self.endpoint_url} is not an embedded AWS: it answered {body[:200]!r}") from error
        if response.status != 200:
            raise EmbeddedAwsError(str(document))
        return document
