"""The embedded AWS as a process that a Ctrl-C does not reach: it ends after those who use it, and never outlives us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from athena_assets.demo import guard
from athena_assets.dev.extra import require_local
from athena_assets.errors import AthenaAssetsError
from athena_assets.local import EmbeddedAws

PROJECT = Path(__file__).resolve().parents[2]
BUCKET = "athena-assets-demo"
DATABASE = "nycflights"
STOP_SECONDS = 5.0


class StartFailed(AthenaAssetsError):
    """Something that was started ended at once, or never answered."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running embedded AWS. `environment` points AWS clients at it, and at nothing of the user's."""

    aws: EmbeddedAws
    process: subprocess.Popen[bytes]
    environment: dict[str, str]


@contextmanager
def server(port: int = 0) -> Iterator[Server]:
    """Starts the server and stops it at the end. It dies with this process, however that ends.

    Raises:
        ExtraMissing, StartFailed: nothing is left running.
    """
    require_local("embedded AWS")
    command = [
        sys.executable,
        "-m",
        "athena_assets.local.server",
        "--port",
        str(port),
        "--parent-pid",
        str(os.getpid()),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=our_environment(),
        start_new_session=True,  # out of the terminal's group
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise StartFailed(
                "embedded AWS",
                f"it ended at its start with status {process.wait()}.",
                not_done="Nothing else was started.",
                next_step="What it said stands above; a port that is taken is the usual reason.",
            )
        aws = EmbeddedAws.attach(f"http://127.0.0.1:{json.loads(line)['port']}")
        yield Server(aws, process, aws.environment())
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def our_environment() -> dict[str, str]:
    """This process's environment without the user's AWS, Dagster and proxy settings, importing this very package."""
    environment = guard.clean_environment(os.environ)
    paths = [str(PROJECT), environment.get("PYTHONPATH", "")]
    return environment | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def load_sample(aws: EmbeddedAws) -> dict[str, int]:
    """Makes the bucket, and puts the flights of 2013 there and into Glue. Returns the rows of each table."""
    from athena_assets.demo import sample  # needs pyarrow

    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    return sample.load_sample(s3, aws.client("glue"), BUCKET, DATABASE)
