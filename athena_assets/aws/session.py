"""The AWS settings and the clients made from them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ConfigParseError, ProfileNotFound

from athena_assets.aws.shared import Shared
from athena_assets.core.effects import QueriesFound
from athena_assets.errors import AccessDenied, InvalidTarget

if TYPE_CHECKING:
    from mypy_boto3_athena import AthenaClient
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_stepfunctions import SFNClient

CONNECT_TIMEOUT = 5  # seconds
READ_TIMEOUT = 20
HURRIED_TIMEOUT = 3
POOL = 256  # connections for each client, which threads share: a fleet's calls, and the copies of each at once


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """How to reach AWS. None means boto3's own default (environment, profile, instance role).

    Args:
        region: for example `eu-central-1`.
        profile: a profile of the shared AWS configuration.
        endpoint_url: one endpoint for all services, such as the embedded AWS.
        access_key_id, secret_access_key, session_token: explicit credentials.
        workgroup: Athena workgroup of targets that name none.
        output_location: where Athena writes data manifests, `s3://...`; None: where the workgroup says.
        expected_bucket_owner: 12-digit account id; S3 refuses a call on a bucket of another account.
        guard_workgroups: Athena workgroups in which a target's guard looks for running queries, besides the one that
            the query runs in.
    """

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    workgroup: str = "primary"
    output_location: str | None = None
    expected_bucket_owner: str | None = None
    guard_workgroups: tuple[str, ...] = ()


class AwsClients:
    """Clients of one session, made when first used. Clients are thread-safe (boto3 guide, "Clients")."""

    def __init__(self, settings: AwsSettings) -> None:
        self.settings = settings
        self.looks = Shared[QueriesFound]()  # at what runs in a workgroup
        try:
            self._session = boto3.session.Session(
                aws_access_key_id=settings.access_key_id,
                aws_secret_access_key=settings.secret_access_key,
                aws_session_token=settings.session_token,
                # Every other AWS SDK reads AWS_REGION; boto3 knows AWS_DEFAULT_REGION only.
                region_name=settings.region or os.environ.get("AWS_REGION") or None,
                profile_name=settings.profile,
            )
        except (ConfigParseError, ProfileNotFound) as error:
            raise AccessDenied(
                "AWS settings",
                f"{error}.",
                not_done="Nothing was sent to AWS.",
                next_step="Correct the profile, or leave it out for boto3's own default.",
            ) from error

    @property
    def region(self) -> str | None:
        return self._session.region_name

    @cached_property
    def s3(self) -> S3Client:
        """For reads: the SDK tries again."""
        client: S3Client = self._client("s3", attempts=4)
        return client

    @cached_property
    def s3_once(self) -> S3Client:
        """For writes: one HTTP attempt. An SDK's retry would report our own first, applied write as refused."""
        client: S3Client = self._client("s3", attempts=1)
        return client

    @cached_property
    def athena(self) -> AthenaClient:
        client: AthenaClient = self._client("athena", attempts=4)
        return client

    @cached_property
    def athena_once(self) -> AthenaClient:
        client: AthenaClient = self._client("athena", attempts=1)
        return client

    @cached_property
    def glue(self) -> GlueClient:
        client: GlueClient = self._client("glue", attempts=6)
        return client

    @cached_property
    def glue_once(self) -> GlueClient:
        client: GlueClient = self._client("glue", attempts=1)
        return client

    @cached_property
    def states(self) -> SFNClient:
        """Step Functions, to look."""
        client: SFNClient = self._client("stepfunctions", attempts=4)
        return client

    @cached_property
    def states_start(self) -> SFNClient:
        """To start: one HTTP attempt. An SDK's retry would report our own execution, if it has ended, as another's."""
        client: SFNClient = self._client("stepfunctions", attempts=1)
        return client

    @cached_property
    def states_once(self) -> SFNClient:
        """For an interrupted caller, who has no time."""
        client: SFNClient = self._client("stepfunctions", attempts=1, timeout=HURRIED_TIMEOUT)
        return client

    def _client(self, service: str, *, attempts: int, timeout: float = READ_TIMEOUT) -> Any:
        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=timeout,
            max_pool_connections=POOL,
            retries={"total_max_attempts": attempts, "mode": "standard"},
            tcp_keepalive=True,
            user_agent_extra=f"athena_assets/{version('athena_assets')}",
        )
        try:
            client = self._session.client(service, endpoint_url=self.settings.endpoint_url, config=config)  # type: ignore[call-overload]
            _check_endpoint(client.meta.endpoint_url)
        except (BotoCoreError, ValueError) as error:  # botocore has no class of its own for an endpoint that is no URL
            raise InvalidTarget(
                "(any)",
                "AWS settings",
                f"no client for {service} could be made: {str(error).rstrip('.')}.",
                "Correct the endpoint (such as http://127.0.0.1:4566; also AWS_ENDPOINT_URL and the profile's), the "
                "region or the credentials.",
            ) from error
        return client


def _check_endpoint(url: str) -> None:
    """Some that are no endpoints are found by the first call only."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.port == 0:  # the port raises ValueError if it is none
        raise ValueError(f"Invalid endpoint: {url}")
