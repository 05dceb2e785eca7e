"""`athena-assets local`: the embedded AWS in the foreground.

Exit status 0 after Ctrl-C, 1 if it could not start or ended by itself, 128 and the signal's number after another one.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from athena_assets.dev.server import BUCKET, Server, load_sample, server
from athena_assets.dev.states import make_state_machine
from athena_assets.errors import AthenaAssetsError

# What would win over the variables that are exported, or be looked for in a configuration that is not read.
_IN_THE_WAY = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until a signal."""
    parser = argparse.ArgumentParser(prog="athena-assets local")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--state-machine", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        with server(options.port) as running:
            rows = load_sample(running.aws) if options.sample else {}
            results = {"ATHENA_ASSETS_OUTPUT_LOCATION": f"s3://{BUCKET}/athena-results/"} if rows else {}
            machine = make_state_machine(running.aws, results) if options.state_machine else None
            _say(running, rows, machine, as_json=options.json)
            status = running.process.wait()
            sys.stderr.write(f"The embedded AWS ended by itself, with status {status}.\n")
            return 1
    except AthenaAssetsError as error:
        if options.json:
            sys.stdout.write(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}) + "\n")
        sys.stderr.write(f"athena-assets: {type(error).__name__}: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nThe embedded AWS is gone, and its state with it.\n")
        return 0


def _say(running: Server, rows: dict[str, int], machine: str | None, *, as_json: bool) -> None:
    environment = running.environment | ({"ATHENA_ASSETS_BUCKET": BUCKET} if rows else {})
    if as_json:
        document: dict[str, object] = {
            "endpoint_url": running.aws.endpoint_url,
            "environment": environment,
            "sample": rows,
            "state_machine": machine,
        }
        lines = [json.dumps(document)]
    else:
        lines = [f"The embedded AWS (S3, Glue, Athena) listens at {running.aws.endpoint_url}. For another shell:", ""]
        lines += [f"unset {' '.join(_IN_THE_WAY)}"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        if rows:
            tables = ", ".join(f"{name} {count:,}" for name, count in rows.items())
            lines += ["", f"Loaded into S3 and Glue (rows): {tables}."]
        if machine is not None:
            lines += ["", f"A state machine that publishes: {machine}"]
        lines += ["", "Ctrl-C ends it; its state is gone then."]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # through the context managers


if __name__ == "__main__":
    sys.exit(main())
