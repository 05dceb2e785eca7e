"""A private PostgreSQL server, from the machine's own programs."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "dagster"
ACCOUNT = "postgres"  # who runs the server where we are root: initdb refuses root


def programs() -> Path:
    """The folder of initdb and postgres. Fails the test if there is none."""
    found = [Path(each).resolve().parent for each in (shutil.which("initdb"),) if each]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.fail("PostgreSQL is not installed. On Debian and Ubuntu: apt-get install postgresql")


@contextmanager
def postgres_server() -> Iterator[Mapping[str, str]]:
    """A server with an empty database, on a free port of 127.0.0.1; yields the variables of deploy/dagster.yaml."""
    folder = programs()
    account = ACCOUNT if os.geteuid() == 0 else None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="athena_assets_postgres_") as parent:
        Path(parent).chmod(0o755)
        home = Path(parent) / "home"
        home.mkdir()
        if account:
            shutil.chown(home, ACCOUNT, ACCOUNT)
        data = home / "data"
        made = subprocess.run(
            f"{folder}/initdb -D {data} -U {USER} -A trust -E UTF8 --locale=C --no-sync".split(),
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
            user=account,
            group=account,
        )
        assert made.returncode == 0, made.stderr
        options = f"-D {data} -p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off".split()
        log = Path(parent) / "server.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [f"{folder}/postgres", *options],
                cwd=home,
                stdout=output,
                stderr=output,
                start_new_session=True,
                user=account,
                group=account,
            )
        try:
            _wait_until_ready(server, port, log)
            yield {
                "DAGSTER_POSTGRES_HOSTNAME": "127.0.0.1",
                "DAGSTER_POSTGRES_PORT": port,
                "DAGSTER_POSTGRES_DB": "postgres",
                "DAGSTER_POSTGRES_USER": USER,
                "DAGSTER_POSTGRES_PASSWORD": "unused: the server trusts its own machine",
            }
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown: it does not wait for connections to be closed
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_ready(server: "subprocess.Popen[bytes]", port: str, log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < until, f"PostgreSQL is not up: {log.read_text()}"
        if "database system is ready to accept connections" in log.read_text():
            return
        time.sleep(0.1)
