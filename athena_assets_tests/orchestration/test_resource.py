"""The resource: what users of dagster-aws know, and secrets that stay secret."""

import dagster as dg
import pytest
from dagster_aws.s3 import S3Resource

from athena_assets import Publisher
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration import AthenaUnloadResource
from athena_assets.step_functions.publisher import StepFunctionsPublisher

MACHINE = "arn:aws:states:eu-central-1:123456789012:stateMachine:unload"
SECRETS = ["aws_secret_access_key", "aws_session_token"]


def test_session_settings_have_the_names_that_dagster_aws_gives_them() -> None:
    ours, theirs = AthenaUnloadResource.model_fields, S3Resource.model_fields
    session = {name for name in ours if name in theirs}
    assert session == {"region_name", "profile_name", "endpoint_url", "aws_access_key_id", *SECRETS}
    for name in session:
        assert (ours[name].annotation, ours[name].default) == (theirs[name].annotation, theirs[name].default)


def test_every_setting_says_what_it_means() -> None:
    for name, field in AthenaUnloadResource.model_fields.items():
        assert field.description, name
        assert field.default is not None or "None:" in field.description, name


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_does_not_show_in_the_repr(name: str) -> None:
    resource = AthenaUnloadResource.model_validate({name: "hush"})
    assert "hush" not in repr(resource)
    assert "hush" not in repr(resource.publisher().settings)


@pytest.mark.parametrize("name", SECRETS)
def test_dagsters_ui_is_told_which_settings_are_secret(name: str) -> None:
    fields = AthenaUnloadResource.to_config_schema().as_field().config_type.fields  # type: ignore[attr-defined]
    assert fields[name].is_secret
    assert not fields["region_name"].is_secret


def test_environment_variables_are_read_when_a_run_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Publisher] = []

    @dg.op
    def look(athena: AthenaUnloadResource) -> None:
        seen.append(athena.publisher())
        seen.append(athena.publisher())

    @dg.job(
        resource_defs={
            "athena": AthenaUnloadResource(
                region_name="eu-central-1",
                aws_access_key_id=dg.EnvVar("LAKE_KEY"),
                aws_secret_access_key=dg.EnvVar("LAKE_SECRET"),
                output_location="s3://results/athena/",
                expected_bucket_owner="123456789012",
                guard_workgroups=["adhoc"],
            )
        }
    )
    def job() -> None:
        look()

    monkeypatch.setenv("LAKE_KEY", "key of the run")
    monkeypatch.setenv("LAKE_SECRET", "secret of the run")
    assert job.execute_in_process().success
    first, second = seen
    assert first is second
    settings = first.settings
    assert (settings.access_key_id, settings.secret_access_key) == ("key of the run", "secret of the run")
    assert (settings.region, settings.workgroup) == ("eu-central-1", "primary")
    assert settings.guard_workgroups == ("adhoc",)
    assert (settings.output_location, settings.expected_bucket_owner) == ("s3://results/athena/", "123456789012")


def test_a_lease_of_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="lease_seconds"):
        AthenaUnloadResource(lease_seconds=0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"runner": "lambda"}, "runner is 'lambda'"),
        ({"runner": "step_functions"}, "state_machine_arn is None"),
        ({"state_machine_arn": MACHINE}, "runner is 'process'"),
        ({"runner": "step_functions", "state_machine_arn": "unload"}, "not the ARN of a state machine"),
    ],
)
def test_a_runner_and_a_state_machine_go_together(settings: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidTarget, match=told):
        AthenaUnloadResource.model_validate(settings).publisher()


def test_the_resource_lets_a_state_machine_publish() -> None:
    resource = AthenaUnloadResource(runner="step_functions", state_machine_arn=MACHINE, region_name="eu-central-1")
    assert isinstance(resource.publisher(), StepFunctionsPublisher)
    assert type(AthenaUnloadResource().publisher()) is Publisher
