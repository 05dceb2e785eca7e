"""`local`: the embedded AWS in the foreground, in this very process, replaced: nothing of it is imported here."""

from __future__ import annotations

import os
import sys

import click

from athena_assets.cli.session import EPILOG, Session, also_here


@click.command(epilog=EPILOG)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="0: a free one.  [default: 0]")
@click.option("--sample", is_flag=True, help="Load the tables of the flights that left New York in 2013.")
@click.option("--state-machine", is_flag=True, help="Make a state machine that publishes, and print its ARN.")
@also_here
@click.pass_obj
def local(session: Session, port: int, sample: bool, state_machine: bool) -> None:
    """Start the embedded AWS (S3, Glue, Athena, Step Functions) on 127.0.0.1, until Ctrl-C.

    Prints the environment variables that point AWS clients at it. Its state is gone when it ends. Needs the extra
    `local`: pip install 'athena_assets[local]'.
    """
    command = [sys.executable, "-m", "athena_assets.dev.local", "--port", str(port)]
    command += ["--sample"] if sample else []
    command += ["--state-machine"] if state_machine else []
    command += ["--json"] if session.json else []
    sys.stdout.flush()
    os.execv(sys.executable, command)
