"""The Dagster resource: settings in, publisher out."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr
from pydantic.config import JsonDict

from athena_assets.aws.session import AwsSettings
from athena_assets.core.policy import LEASE_SECONDS
from athena_assets.errors import InvalidTarget
from athena_assets.step_functions.publisher import StepFunctionsPublisher
from athena_assets.unload import SAMPLE_ROWS, Publisher

PROCESS, STEP_FUNCTIONS = "process", "step_functions"

# Dagster masks such a field's value wherever it shows a resource's configuration.
_SECRET: JsonDict = {"dagster__is_secret": True}


class AthenaUnloadResource(dg.ConfigurableResource["AthenaUnloadResource"]):
    """How to reach AWS, for the assets of `build_unload_asset` and `unload_assets`.

    Credentials are best left to boto3's own chain (role, profile, environment); else give them as `dg.EnvVar`.
    The names are those of dagster-aws's S3Resource. It is not the base class: its `max_attempts`, `use_ssl` and
    `verify` would stand in the launchpad without effect, because what a call's repetition means is decided per call.
    """

    region_name: str | None = Field(
        default=None, description="AWS region, such as eu-central-1. None: the one that boto3 finds."
    )
    profile_name: str | None = Field(
        default=None, description="Profile of the shared AWS configuration. None: the default one."
    )
    endpoint_url: str | None = Field(
        default=None, description="One endpoint for all services, such as the embedded AWS. None: AWS itself."
    )
    aws_access_key_id: str | None = Field(
        default=None, description="Access key id, best as EnvVar. None: boto3's credential chain."
    )
    aws_secret_access_key: str | None = Field(
        default=None,
        description="Secret access key, best as EnvVar. None: boto3's credential chain.",
        repr=False,
        json_schema_extra=_SECRET,
    )
    aws_session_token: str | None = Field(
        default=None,
        description="Session token of temporary credentials, best as EnvVar. None: there is none.",
        repr=False,
        json_schema_extra=_SECRET,
    )
    workgroup: str = Field(default="primary", description="Athena workgroup of targets that name none.")
    output_location: str | None = Field(
        default=None,
        description="Where Athena writes query results, which for an UNLOAD is the list of its files: s3://bucket/path/."
        " Never a target's location. None: what the workgroup says.",
    )
    expected_bucket_owner: str | None = Field(
        default=None,
        description="12-digit account id: calls on a bucket of another account are refused. None: not checked.",
    )
    guard_workgroups: list[str] = Field(
        default=[],
        description="Athena workgroups in which a target's guard looks for running queries, besides the one that the"
        " query runs in.",
    )
    lease_seconds: float = Field(
        default=LEASE_SECONDS,
        description="Seconds after which a caller that died may be replaced. Too short a time costs queries.",
        gt=0,
    )

    runner: str = Field(
        default="process",
        description="Who runs the protocol: `process`, the run itself, or `step_functions`, an execution of the state"
        " machine, which goes on if the run dies, and which its retry finds again.",
    )
    state_machine_arn: str | None = Field(
        default=None,
        description="The state machine of deploy/step_functions.yaml, with runner step_functions. None: there is none.",
    )
    preview_rows: int = Field(
        default=SAMPLE_ROWS,
        description="Rows of each result that its materialization shows. 0: none, where Dagster may not hold data.",
        ge=0,
        le=100,
    )

    _publisher: Publisher | None = PrivateAttr(default=None)
    _open: list[Generator[Any]] = PrivateAttr(default_factory=list)

    def publisher(self) -> Publisher:
        """The one publisher of this resource; Dagster makes a resource for each run. No call is sent by making it.

        Raises:
            InvalidTarget: settings that do not go together.
        """
        if self._publisher is None:
            settings = AwsSettings(
                region=self.region_name,
                profile=self.profile_name,
                endpoint_url=self.endpoint_url,
                access_key_id=self.aws_access_key_id,
                secret_access_key=self.aws_secret_access_key,
                session_token=self.aws_session_token,
                workgroup=self.workgroup,
                output_location=self.output_location,
                expected_bucket_owner=self.expected_bucket_owner,
                guard_workgroups=tuple(self.guard_workgroups),
            )
            self._publisher = self._made(settings)
        return self._publisher

    def _made(self, settings: AwsSettings) -> Publisher:
        if self.runner == PROCESS and self.state_machine_arn is None:
            return Publisher(settings, lease_seconds=self.lease_seconds)
        if self.runner == STEP_FUNCTIONS and self.state_machine_arn is not None:
            return StepFunctionsPublisher(
                settings, state_machine=self.state_machine_arn, lease_seconds=self.lease_seconds
            )
        raise InvalidTarget(
            "(any)",
            "the resource's runner",
            f"runner is {self.runner!r} and state_machine_arn is {self.state_machine_arn!r}.",
            f"Use {PROCESS!r} without a state machine, or {STEP_FUNCTIONS!r} with one.",
        )

    @contextmanager
    def closing(self, publications: Generator[Any]) -> Iterator[None]:
        """Closes an iteration over publications, which stops those under way, at its end or else with the resource."""
        self._open.append(publications)
        try:
            yield
        finally:
            self._open.remove(publications)
            publications.close()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Dagster's hook: the run (or its part in this process) is over, in whatever way."""
        for publications in self._open:
            publications.close()
