"""The server process: `python -m athena_assets.local.server --port 0`.

Prints one JSON line with its port as soon as it listens. With `--parent-pid` it ends when that process is no longer its
parent, however the parent ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

# moto reads these when it is imported. Virtual-host addressing does not exist on 127.0.0.1, and CORS is for browsers.
os.environ.setdefault("MOTO_DISABLE_GLOBAL_CORS", "true")
os.environ.setdefault("S3_IGNORE_SUBDOMAIN_BUCKETNAME", "true")

from athena_assets.local import moto_task_seams
from athena_assets.local.athena_api import AthenaApi
from athena_assets.local.athena_history import History
from athena_assets.local.athena_runner import Runner
from athena_assets.local.control import Control
from athena_assets.local.fault_rules import FaultRules
from athena_assets.local.gateway import Gateway
from athena_assets.local.http_server import LoopbackServer
from athena_assets.local.query_faults import DEFAULT_ROWS_PER_FILE, QueryFaults
from athena_assets.local.request_log import RequestLog
from athena_assets.local.sandboxes import Sandboxes
from athena_assets.local.state_folder import StateFolder, StateRefused
from athena_assets.local.workgroups import WorkGroups

PARENT_CHECK_SECONDS = 0.1


def build_gateway(
    cache_folder: Path,
    sandboxes: Sandboxes,
    rows_per_file: int = DEFAULT_ROWS_PER_FILE,
    state: StateFolder | None = None,
) -> Gateway:
    """The whole embedded AWS as one application, with what `state` has kept."""
    if state is not None:
        state.restore_stores()
    log, rules, query_faults = RequestLog(), FaultRules(), QueryFaults(rows_per_file)
    history, workgroups = History(state), WorkGroups(state)
    runner = Runner(query_faults, cache_folder, history, state)
    control = Control(log, rules, query_faults, history, runner, workgroups, sandboxes, state)
    moto_task_seams.execute_state_machines()
    return Gateway(AthenaApi(history, runner, workgroups), control, log, rules, sandboxes, state)


def _end(folder: Path, sandboxes: Sandboxes) -> NoReturn:
    """Query threads and held requests may be anywhere: the process ends without waiting for them."""
    sandboxes.kill_all()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _watch_parent(parent: int, folder: Path, sandboxes: Sandboxes) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    _end(folder, sandboxes)


def _call_back_at(port: int) -> None:
    """Step Functions' tasks call this server by moto's clients, which must heed neither proxies nor profiles."""
    calls = {"MOTO_PORT": str(port), "NO_PROXY": "localhost,127.0.0.1", "no_proxy": "localhost,127.0.0.1"}
    os.environ.update(calls, AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull)


def main(arguments: list[str] | None = None) -> None:
    """Serves until a signal or the parent's death."""
    parser = argparse.ArgumentParser(description="The embedded AWS, for tests and demonstrations.")
    parser.add_argument("--host", default="127.0.0.1", help="127.0.0.1; anything else is refused")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--parent-pid", type=int, help="end when this process is gone")
    parser.add_argument("--rows-per-file", type=int, default=DEFAULT_ROWS_PER_FILE, help="of what an UNLOAD writes")
    parser.add_argument("--state", type=Path, help="folder that keeps everything for the next server; none: in memory")
    options = parser.parse_args(arguments)

    folder = Path(tempfile.mkdtemp(prefix="embedded-aws-"))
    sandboxes = Sandboxes(folder)

    def on_signal(number: int, frame: FrameType | None) -> None:
        _end(folder, sandboxes)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    if options.parent_pid is not None:
        threading.Thread(target=_watch_parent, args=(options.parent_pid, folder, sandboxes), daemon=True).start()
    try:
        state = None if options.state is None else StateFolder(options.state)
        gateway = build_gateway(folder, sandboxes, options.rows_per_file, state)
        server = LoopbackServer(options.host, options.port, gateway)
    except (ValueError, OSError, StateRefused) as error:
        shutil.rmtree(folder, ignore_errors=True)
        sys.exit(f"embedded AWS: {error}")
    _call_back_at(server.port)
    sys.stdout.write(json.dumps({"port": server.port, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
