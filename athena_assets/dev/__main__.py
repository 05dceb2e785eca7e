"""`make dev`: the embedded AWS with the sample data, and `dagster dev` on it, until Ctrl-C.

Exit status 0 after Ctrl-C, 1 if something could not start, 128 and the signal's number after another one, and that of
`dagster dev` if it ends by itself.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from athena_assets.dev.dagster_dev import DagsterDev, prepare_home
from athena_assets.dev.server import BUCKET, PROJECT, StartFailed, load_sample, server
from athena_assets.errors import AthenaAssetsError

UI_PORT = 3000  # Dagster's own default, if it is free
LOOK_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs everything, says where it is, and stops it."""
    parser = argparse.ArgumentParser(
        prog="python -m athena_assets.dev", description="AWS and Dagster, on this machine."
    )
    parser.add_argument("--port", type=int, help=f"of the UI [{UI_PORT}, or a free one if that is taken]")
    parser.add_argument("--home", type=Path, default=PROJECT / ".local" / "dagster", help="DAGSTER_HOME [%(default)s]")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        if options.port is not None and not _is_free(options.port):
            raise StartFailed(
                "dagster dev",
                f"port {options.port} is taken.",
                not_done="Nothing was started.",
                next_step="Name another --port, or none: then a free one is taken.",
            )
        with server() as running:
            rows = load_sample(running.aws)
            say(f"embedded AWS at {running.aws.endpoint_url}, bucket {BUCKET}, {rows['flights']:,} flights; no AWS")
            say("account is used. It starts empty each time; what Dagster remembers of earlier times stays.")
            environment = running.environment | {"ATHENA_ASSETS_BUCKET": BUCKET}
            port = options.port or (UI_PORT if _is_free(UI_PORT) else _free_port())
            with DagsterDev.start(port, prepare_home(options.home), environment) as dagster:
                return _watch(dagster)
    except AthenaAssetsError as error:
        say(f"{type(error).__name__}: {error}")
        return 1
    except KeyboardInterrupt:
        say("everything is stopped.")
        return 0


def say(line: str) -> None:
    """A line of ours among those of Dagster."""
    sys.stdout.write(f"[dev] {line}\n")
    sys.stdout.flush()


def _watch(dagster: DagsterDev) -> int:
    say(f"Dagster is starting; its home is {dagster.home} ...")
    answered = False
    while (status := dagster.process.poll()) is None:
        if not answered and dagster.answers():
            answered = True
            say(f"Dagster is up: {dagster.address} (Ctrl-C ends everything)")
        time.sleep(LOOK_SECONDS)
    if not answered:
        raise StartFailed(
            "dagster dev",
            f"it ended with status {status} before it answered.",
            not_done="The embedded AWS was stopped too.",
            next_step="What it said stands above.",
        )
    return status


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # through the context managers


if __name__ == "__main__":
    sys.exit(main())
