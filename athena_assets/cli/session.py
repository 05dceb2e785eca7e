"""What all commands share: the options of `athena-assets` itself, the publisher made from them, and the output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from athena_assets.aws.session import AwsSettings
from athena_assets.core.policy import LEASE_SECONDS
from athena_assets.unload import Publisher

F = TypeVar("F", bound=Callable[..., Any])

TARGETS_VARIABLE = "ATHENA_ASSETS_TARGETS"
DEPLOYMENT = "athena_assets.defs"

EPILOG = "The options of athena-assets itself (--json, --from, --profile ...) may also stand here."


@dataclass(slots=True)
class Session:
    """One invocation. `document` is what `--json` prints at the end, filled by the command as it goes."""

    json: bool = False
    source: str = DEPLOYMENT
    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    workgroup: str = "primary"
    output_location: str | None = None
    expected_bucket_owner: str | None = None
    guard_workgroups: tuple[str, ...] = ()
    command: str | None = None
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> AwsSettings:
        return AwsSettings(
            region=self.region,
            profile=self.profile,
            endpoint_url=self.endpoint_url,
            workgroup=self.workgroup,
            output_location=self.output_location or _deployments_results(),
            expected_bucket_owner=self.expected_bucket_owner,
            guard_workgroups=self.guard_workgroups,
        )

    def publisher(self, lease_seconds: float = LEASE_SECONDS) -> Publisher:
        return Publisher(self.settings, lease_seconds=lease_seconds)

    def say(self, text: str) -> None:
        """A line of the result, for people."""
        if not self.json:
            write(text)

    def tell(self, text: str) -> None:
        """A line of the story: on stderr, also with `--json`."""
        write(text, err=True)


def write(text: str, *, err: bool = False) -> None:
    """A line of output. A reader that has gone away ends nothing that is under way, nor changes its exit status."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        stream = sys.stderr if err else sys.stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _deployments_results() -> str | None:
    """As definitions.py has it, so that a target is published alike by the command line and by Dagster."""
    bucket = os.environ.get("ATHENA_ASSETS_BUCKET")
    return f"s3://{bucket}/athena-results/" if bucket else None


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    session = context.find_object(Session)
    assert session is not None and parameter.name is not None
    if value:
        setattr(session, parameter.name, value)


# Profile and endpoint have no variables here: boto3 reads AWS_PROFILE, AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_S3 itself,
# each with its own precedence. Of the region's two it reads only AWS_DEFAULT_REGION.
_SHARED: tuple[tuple[tuple[str, ...], dict[str, Any], tuple[str, ...]], ...] = (
    (("--json",), {"is_flag": True, "help": "Print one JSON document to stdout, also for an error."}, ()),
    (
        ("--from", "source"),
        {
            "metavar": "MODULE",
            "help": "The module or package whose Target objects are known by their names"
            f" [default: {DEPLOYMENT}, this deployment's].",
        },
        (TARGETS_VARIABLE,),
    ),
    (("--region",), {"help": "AWS region."}, ("AWS_REGION", "AWS_DEFAULT_REGION")),
    (("--profile",), {"help": "Profile of the shared AWS configuration  [env: AWS_PROFILE]"}, ()),
    (
        ("--endpoint-url",),
        {"help": "One endpoint for all services, such as the embedded AWS  [env: AWS_ENDPOINT_URL]"},
        (),
    ),
    (
        ("--workgroup",),
        {"help": "Athena workgroup of targets that name none  [default: primary]"},
        ("ATHENA_ASSETS_WORKGROUP",),
    ),
    (
        ("--output-location",),
        {
            "metavar": "S3_LOCATION",
            "help": "Where Athena writes query results; never a target's location  [default: athena-results/ in"
            " ATHENA_ASSETS_BUCKET, else what the workgroup says]",
        },
        ("ATHENA_ASSETS_OUTPUT_LOCATION",),
    ),
    (
        ("--expected-bucket-owner",),
        {"metavar": "ACCOUNT_ID", "help": "Calls on a bucket of another account are refused."},
        ("ATHENA_ASSETS_EXPECTED_BUCKET_OWNER",),
    ),
    (
        ("--guard-workgroup", "guard_workgroups"),
        {
            "metavar": "WORKGROUP",
            "multiple": True,
            "help": "Where a target's guard looks for running queries, besides the query's own workgroup; repeatable.",
        },
        ("ATHENA_ASSETS_GUARD_WORKGROUPS",),
    ),
)


def shared_options(command: F) -> F:
    """The options of the program, on the program."""
    return _with_options(command, hidden=False)


def also_here(command: F) -> F:
    """The same on one of its commands, where most people write them; what stands here holds."""
    return _with_options(command, hidden=True)


def _with_options(command: F, *, hidden: bool) -> F:
    for names, settings, variables in reversed(_SHARED):
        # The program's options are read first, its variables once.
        environment = {} if hidden or not variables else {"envvar": variables, "show_envvar": True}
        option = click.option(
            *names, **settings, **environment, hidden=hidden, expose_value=False, callback=_store, default=None
        )
        command = option(command)
    return command
