"""`python -m athena_assets.demo`: exit status 0 if every number is right, 1 if one is not, 130 if interrupted."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console

from athena_assets.demo import dagster_scenes, guard, scenes
from athena_assets.demo.dagster_runs import Runs
from athena_assets.demo.report import Report, Scene, new_console
from athena_assets.demo.stage import Stage
from athena_assets.errors import AthenaAssetsError
from athena_assets.local import EmbeddedAws, EmbeddedAwsError

BUCKET = "athena-assets-demo"


def main() -> int:
    """The whole demo, with nothing of the user's settings."""
    environment = guard.clean_environment(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    guard.refuse_other_hosts()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    return run(new_console(), all_scenes)


def all_scenes(stage: Stage, runs: Runs) -> list[Scene]:
    """What `make demo` shows, in its order: the later scenes build on what the earlier ones published."""
    return [
        Scene("naive, 8 threads", lambda: scenes.naive(stage)),
        Scene("ours, 8 threads", lambda: scenes.ours(stage)),
        Scene("ours, Dagster x 4", lambda: dagster_scenes.at_once(stage, runs)),
        Scene("SIGKILL in mid-query", lambda: dagster_scenes.killed(stage, runs)),
        Scene("upstream changes", lambda: dagster_scenes.changed(stage, runs)),
    ]


def run(console: Console, choose: Callable[[Stage, Runs], Sequence[Scene]]) -> int:
    """Plays scenes on an embedded AWS of their own, of which nothing is left afterwards. Returns the exit status."""
    with Report(console) as report:
        try:
            with tempfile.TemporaryDirectory(prefix="athena-assets-demo-") as folder, EmbeddedAws.start() as aws:
                report.say(f"embedded AWS at {aws.endpoint_url}; no AWS profile is read, no other host is connected to")
                stage = Stage.build(aws, BUCKET, report.say)
                with Runs(stage, Path(folder)) as runs:
                    report.play(choose(stage, runs))
        except (AthenaAssetsError, EmbeddedAwsError) as error:
            report.failed(str(error))
        except KeyboardInterrupt:
            console.print("Interrupted. Everything that the demo started is gone.")
            return 130
    return report.conclude()


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # through all the context managers


if __name__ == "__main__":
    sys.exit(main())
