"""The program: its commands, and how every ending becomes an exit status."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from athena_assets.cli.exits import MEANINGS, Exit, exit_of
from athena_assets.cli.local import local
from athena_assets.cli.look import scrub, show, status
from athena_assets.cli.mend import gc, rebuild, repair, restore
from athena_assets.cli.orphans import orphans
from athena_assets.cli.publish import takeover, unload
from athena_assets.cli.report import error_document
from athena_assets.cli.session import Session, shared_options, write
from athena_assets.cli.step_functions import step_functions
from athena_assets.errors import AthenaAssetsError

_HELPED = 0  # the output is the help, and no document
_EXITS = "\n".join(f"{code:>4}  {meaning}" for code, meaning in MEANINGS.items())


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"\b\nExit status:\n{_EXITS}",
)
@click.version_option(package_name="athena_assets")
@shared_options
@click.pass_context
def program(context: click.Context) -> None:
    """Publish Athena query results to S3 exactly once."""
    session = context.find_object(Session)
    assert session is not None
    session.command = context.invoked_subcommand


for command in (unload, status, show, scrub, gc, restore, repair, rebuild, takeover, orphans, step_functions, local):
    program.add_command(command)


def main() -> NoReturn:
    """The console script. SIGTERM and SIGHUP stop the query and free the slot, as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """One invocation; returns the exit status. Nothing is raised."""
    session = Session(json="--json" in arguments)  # before parsing, which may fail
    code, error = _run(session, arguments)
    if session.json and code is not _HELPED:
        document: dict[str, Any] = {"command": session.command, "exit_status": int(code), **session.document}
        if error is not None:
            document["error"] = error
        write(json.dumps(document, indent=1))
    return int(code)


def _run(session: Session, arguments: Sequence[str]) -> tuple[int, dict[str, Any] | None]:
    """The exit status, and the error as a document."""
    try:
        code = program.main(list(arguments), prog_name="athena-assets", standalone_mode=False, obj=session)
        # Commands return an Exit; click returns an int of its own after --help and --version.
        return (code if isinstance(code, Exit) else _HELPED), None
    except click.ClickException as error:
        if not session.json:
            error.show()
        return Exit.USAGE, {"kind": type(error).__name__, "message": error.format_message()}
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):  # of a question; "from None" hides it as the cause
            session.tell("athena-assets: the question got no answer. Nothing was deleted. Use --yes.")
            return Exit.USAGE, {"kind": "EOFError", "message": "The question got no answer. Use --yes."}
        return _interrupted(session, Exit.INTERRUPTED)
    except SystemExit as error:
        return _interrupted(session, int(error.code or 0))
    except AthenaAssetsError as error:
        session.tell(f"athena-assets: {type(error).__name__}: {error}")
        return exit_of(type(error)), error_document(error)
    except Exception as error:  # noqa: BLE001 - everything ends in an exit status; what is told apart is above
        if type(error).__module__ == "botocore.exceptions":
            # Only the adapters import botocore. What passes through them is of the settings, before any call: an
            # endpoint that is no URL.
            session.tell(f"athena-assets: {type(error).__name__}: {error} Nothing was sent. Check the AWS settings.")
            return Exit.USAGE, error_document(error)
        traceback.print_exc()
        return Exit.BUG, error_document(error)


def _interrupted(session: Session, code: int) -> tuple[int, dict[str, Any]]:
    session.tell("athena-assets: interrupted.")
    return code, {"kind": "Interrupted", "message": "Interrupted: what was under way was stopped."}


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # through the publisher, which stops the query and frees the slot
