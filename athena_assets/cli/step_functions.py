"""`step-functions`: what a state machine needs that publishes targets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import click

from athena_assets.cli.exits import Exit
from athena_assets.cli.publish import REQUEST_ID
from athena_assets.cli.session import EPILOG, Session, also_here
from athena_assets.cli.targets import find_targets
from athena_assets.step_functions.documents import Wish
from athena_assets.step_functions.machine import Bus, Notify, Topic, definition_text, state_machine

FUNCTION = "${Function}"

# As botocore's models of lambda, sns and events have them, or a name that CloudFormation is to replace.
_PLACEHOLDER = r"\$\{[\w.]+\}"
_FUNCTION_PATTERN = (
    r"(arn:aws[a-z-]*:lambda:)?([a-z]{2}(-[a-z]+)+-\d:)?(\d{12}:)?(function:)?[\w-]{1,64}(:(\$LATEST|[\w-]+))?"
)
_TOPIC_PATTERN = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}"
_BUS_PATTERN = r"(arn:aws[a-z-]*:events:[a-z0-9-]+:\d{12}:event-bus/)?[/.\w-]{1,256}"


def _named(what: str, pattern: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    expression = re.compile(f"{pattern}|{_PLACEHOLDER}", re.ASCII)

    def check(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and not expression.fullmatch(value):
            raise click.BadParameter(f"{value!r} is not {what}.")
        return value

    return check


@click.group("step-functions", epilog=EPILOG)
@also_here
@click.pass_context
def step_functions(context: click.Context) -> None:
    """What a state machine needs that publishes targets (docs/step-functions.md)."""
    session = context.find_object(Session)
    assert session is not None
    session.command = f"step-functions {context.invoked_subcommand}"


@step_functions.command("input", epilog=EPILOG)
@click.argument("target", metavar="TARGET")
@click.option("--partition", metavar="KEY", help="The partition to publish.")
@click.option("--force", is_flag=True, help="Run the query anew, whatever is published; join nobody.")
@REQUEST_ID
@also_here
@click.pass_obj
def input_(session: Session, target: str, partition: str | None, force: bool, request_id: str | None) -> int:
    """Write the input with which an execution publishes a target, for whoever starts it: a schedule, a script.

    Without --request-id, each execution is a wish of its own. `unload --state-machine ARN` starts executions itself.
    """
    found = find_targets(target, session.source)
    if len(found) != 1:
        raise click.UsageError(f"{target!r} means {len(found)} targets; name one.")
    found[0].location_for(partition)
    wish = Wish(target=found[0], partition=partition, force=force, request_id=request_id)
    wish.text()
    session.document["input"] = wish.document()
    session.say(json.dumps(wish.document(), indent=1))
    return Exit.DONE


@step_functions.command(epilog=EPILOG)
@click.option(
    "--function",
    metavar="NAME_OR_ARN",
    callback=_named("a Lambda function's name or ARN", _FUNCTION_PATTERN),
    default=FUNCTION,
    help="The function that runs the handler.  [default: ${Function}, for CloudFormation to replace]",
)
@click.option(
    "--notify-topic",
    metavar="ARN",
    callback=_named("an SNS topic's ARN", _TOPIC_PATTERN),
    help="Publish the end of every execution to this SNS topic.",
)
@click.option(
    "--notify-bus",
    metavar="NAME",
    callback=_named("an EventBridge bus's name or ARN", _BUS_PATTERN),
    help="Send the end of every execution to this EventBridge bus.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it.  [default: stdout]",
)
@also_here
@click.pass_obj
def export(
    session: Session, function: str, notify_topic: str | None, notify_bus: str | None, output: Path | None
) -> int:
    """Write the state machine's definition in the Amazon States Language.

    deploy/step_functions.yaml has it already. This is for other ways to deploy, such as Terraform.
    """
    if notify_topic is not None and notify_bus is not None:
        raise click.UsageError("--notify-topic and --notify-bus exclude each other: a rule of the bus can do both.")
    notify: Notify | None = None
    if notify_topic is not None:
        notify = Topic(notify_topic)
    elif notify_bus is not None:
        notify = Bus(notify_bus)
    definition = state_machine(function, notify)
    session.document |= {"definition": definition, "written": None if output is None else str(output)}
    if output is None:
        session.say(definition_text(definition))
        return Exit.DONE
    try:
        output.write_text(definition_text(definition) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(output), error.strerror or str(error)) from error
    session.say(f"Written to {output}.")
    return Exit.DONE
