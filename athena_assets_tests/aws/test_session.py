"""AWS settings: what cannot be used is told as one of our errors, and the region is found where SDKs look for it."""

import pytest

from athena_assets import AwsSettings, Publisher
from athena_assets.aws.session import AwsClients
from athena_assets.core.location import parse_location
from athena_assets.errors import AccessDenied, InvalidTarget


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(AccessDenied, match="no-such-profile"):
        Publisher(AwsSettings(profile="no-such-profile"))


@pytest.mark.parametrize(
    ("settings", "variables", "region"),
    [
        (AwsSettings(region="eu-west-1"), {"AWS_REGION": "us-west-2"}, "eu-west-1"),
        (AwsSettings(), {"AWS_REGION": "us-west-2", "AWS_DEFAULT_REGION": "us-east-2"}, "us-west-2"),
        (AwsSettings(), {"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
        (AwsSettings(), {}, None),
    ],
)
def test_the_region_comes_from_the_settings_then_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, settings: AwsSettings, variables: dict[str, str], region: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert AwsClients(settings).region == region


def test_secrets_stay_out_of_the_repr() -> None:
    text = repr(AwsSettings(access_key_id="id", secret_access_key="s3cret", session_token="t0ken"))
    assert "s3cret" not in text
    assert "t0ken" not in text


@pytest.mark.parametrize(
    "url", ["not a url", "localhost:1", "http://", "ftp://lake", "http://lake:99999", "http://[::1"]
)
@pytest.mark.parametrize("variable", [True, False])
def test_an_endpoint_that_is_no_url_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, url: str, variable: bool
) -> None:
    if variable:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    publisher = Publisher(AwsSettings(region="eu-west-1", endpoint_url=None if variable else url))
    with pytest.raises(InvalidTarget, match=r"AWS settings: no client for s3 could be made: .* Correct the endpoint"):
        publisher.status(parse_location("s3://lake/x/"))


def test_a_missing_region_is_a_wrong_setting() -> None:
    with pytest.raises(InvalidTarget, match="region"):
        _ = AwsClients(AwsSettings()).athena
