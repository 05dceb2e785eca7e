"""deploy/step_functions.yaml: valid, its state machine is the one that is exported, its roles grant what is sent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from athena_assets.step_functions.machine import (
    FUNCTION_TIMEOUT,
    Bus,
    Notify,
    Topic,
    definition_text,
    state_machine,
)
from athena_assets_tests.deploy.template import (
    ACCOUNT,
    ATTRIBUTES,
    FUNCTION_ARN,
    REGION,
    ROLE_ARN,
    STEP_FUNCTIONS_YAML,
    listed,
    load_template,
    resources,
)

TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:results"
BUS = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/results"
GIVEN = {"CodeBucket": "code", "CodeKey": "step_functions-1.zip", "PublisherRoleName": "publisher"}
VARIANTS: list[tuple[dict[str, str], Notify | None]] = [
    ({}, None),
    ({"NotifyTopicArn": TOPIC}, Topic("${Topic}")),
    ({"NotifyBusArn": BUS}, Bus("${Bus}")),
]
LOG_DELIVERY = {
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
}
"""Step Functions developer guide, "Logging in CloudWatch Logs". None of them can be limited to a resource."""


@pytest.fixture(params=VARIANTS, ids=["quiet", "topic", "bus"])
def variant(request: pytest.FixtureRequest) -> tuple[dict[str, str], Notify | None]:
    found: tuple[dict[str, str], Notify | None] = request.param
    return found


def stack(**more: str) -> dict[str, Any]:
    return resources(STEP_FUNCTIONS_YAML, **GIVEN, **more)


def deployed(machine: dict[str, Any]) -> dict[str, Any]:
    """The definition as Step Functions gets it."""
    text = machine["Properties"]["DefinitionString"]
    for name, value in machine["Properties"]["DefinitionSubstitutions"].items():
        text = text.replace(f"${{{name}}}", value)
    assert "${" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def sent(definition: dict[str, Any]) -> set[tuple[str, str]]:
    """(action, resource) of every request that a task makes."""

    def request(resource: str, parameters: dict[str, Any]) -> tuple[str, str]:
        match resource.removeprefix("arn:aws:states:::"):
            case "lambda:invoke":
                return "lambda:InvokeFunction", parameters["FunctionName"]
            case "sns:publish":
                return "sns:Publish", parameters["TopicArn"]
            case other:
                assert other == "events:putEvents"
                [entry] = parameters["Entries"]
                return "events:PutEvents", entry["EventBusName"]

    tasks = [state for state in definition["States"].values() if state["Type"] == "Task"]
    return {request(task["Resource"], task["Parameters"]) for task in tasks}


def granted(statements: list[dict[str, Any]]) -> set[tuple[str, str]]:
    assert all(each["Effect"] == "Allow" for each in statements)
    return {
        (action, resource)
        for each in statements
        for action in listed(each["Action"])
        for resource in listed(each["Resource"])
    }


def states_policy(found: dict[str, Any]) -> list[dict[str, Any]]:
    [policy] = found["StatesRole"]["Properties"]["Policies"]
    statements: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    return statements


def test_cfn_lint_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("cfn-lint")
    run = subprocess.run([program, str(STEP_FUNCTIONS_YAML)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_the_state_machine_is_the_one_that_is_exported(variant: tuple[dict[str, str], Notify | None]) -> None:
    """To the letter, so that what the command prints can be pasted here."""
    parameters, notify = variant
    text = stack(**parameters)["StateMachine"]["Properties"]["DefinitionString"]
    assert text == definition_text(state_machine("${Function}", notify))


def test_the_role_of_the_state_machine_grants_what_its_tasks_send(
    variant: tuple[dict[str, str], Notify | None],
) -> None:
    found = stack(**variant[0])
    requests = sent(deployed(found["StateMachine"]))
    assert ("lambda:InvokeFunction", FUNCTION_ARN) in requests
    assert granted(states_policy(found)) == requests | {(action, "*") for action in LOG_DELIVERY}


def test_only_the_delivery_of_the_log_has_no_resource() -> None:
    wild = [each["Sid"] for each in states_policy(stack(NotifyTopicArn=TOPIC)) if "*" in listed(each["Resource"])]
    assert wild == ["StatesDeliverTheirLog"]


def test_nobody_else_can_have_step_functions_use_the_role() -> None:
    [trust] = stack()["StatesRole"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "states.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT}
    assert trust["Condition"]["ArnLike"]["aws:SourceArn"].startswith(f"arn:aws:states:{REGION}:{ACCOUNT}:")


def test_the_function_runs_as_the_publisher_and_may_write_its_log_besides() -> None:
    found = stack()
    assert found["Function"]["Properties"]["Role"] == ROLE_ARN
    policy = found["FunctionLogPolicy"]["Properties"]
    assert policy["RoleName"] == "publisher"
    log = ATTRIBUTES["FunctionLog.Arn"]
    assert granted(policy["PolicyDocument"]["Statement"]) == {
        ("logs:CreateLogStream", log),
        ("logs:PutLogEvents", log),
    }
    roles = [name for name, each in found.items() if each["Type"].startswith("AWS::IAM::")]
    assert roles == ["FunctionLogPolicy", "StatesRole"]


@pytest.mark.parametrize("allowed", [True, False])
def test_functions_may_be_the_publisher_only_where_the_bucket_says_so(allowed: bool) -> None:
    found = resources(
        BucketName="lake",
        PublisherPrincipals=f"arn:aws:iam::{ACCOUNT}:role/dagster",
        UpstreamDatabases="sales",
        UpstreamBucketArns="arn:aws:s3:::raw",
        FunctionsMayPublish="true" if allowed else "false",
    )
    trust = found["PublisherRole"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    people = {"AWS": [f"arn:aws:iam::{ACCOUNT}:role/dagster"]}
    assert [each["Principal"] for each in trust] == [people, *([{"Service": "lambda.amazonaws.com"}] * allowed)]


def test_the_state_machine_waits_longer_than_the_function_may_take() -> None:
    found = stack()
    assert found["Function"]["Properties"]["Timeout"] == FUNCTION_TIMEOUT
    step = deployed(found["StateMachine"])["States"]["Step"]
    assert step["TimeoutSeconds"] > found["Function"]["Properties"]["Timeout"]


def test_the_shortest_lease_leaves_an_execution_hours() -> None:
    """25,000 events are its history, nine a loop (test_machine.py), and a pause is half a lease at most."""
    shortest = load_template(STEP_FUNCTIONS_YAML)["Parameters"]["LeaseSeconds"]["MinValue"]
    assert 25_000 / 9 * shortest / 2 > 7 * 3600


def test_what_is_not_given_is_no_setting_of_the_function() -> None:
    def settings(**more: str) -> dict[str, Any]:
        found: dict[str, Any] = stack(**more)["Function"]["Properties"]["Environment"]["Variables"]
        return found

    assert settings() == {"ATHENA_ASSETS_WORKGROUP": "primary", "ATHENA_ASSETS_LEASE_SECONDS": 60}
    given = {"OutputLocation": "s3://lake/athena-results/", "ExpectedBucketOwner": ACCOUNT}
    assert settings(**given) == settings() | {
        "ATHENA_ASSETS_OUTPUT_LOCATION": "s3://lake/athena-results/",
        "ATHENA_ASSETS_EXPECTED_BUCKET_OWNER": ACCOUNT,
    }


def test_no_log_holds_the_query_and_both_end() -> None:
    found = stack(LogDays="7")
    logging = found["StateMachine"]["Properties"]["LoggingConfiguration"]
    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ERROR", False)
    logs = [each["Properties"] for each in found.values() if each["Type"] == "AWS::Logs::LogGroup"]
    assert [each["RetentionInDays"] for each in logs] == ["7", "7"]
    assert len({each["LogGroupName"] for each in logs}) == 2


@pytest.mark.parametrize(
    ("parameter", "taken", "refused"),
    [
        ("NotifyTopicArn", ["", TOPIC], [BUS, "results"]),
        ("NotifyBusArn", ["", BUS], [TOPIC, "results"]),
        ("OutputLocation", ["", "s3://lake/athena-results/"], ["lake"]),
        ("ExpectedBucketOwner", ["", ACCOUNT], ["1"]),
        ("PublisherRoleName", ["stack-PublisherRole-1A2B"], ["", ROLE_ARN]),
    ],
)
def test_a_parameter_of_another_kind_is_refused(parameter: str, taken: list[str], refused: list[str]) -> None:
    pattern = load_template(STEP_FUNCTIONS_YAML)["Parameters"][parameter]["AllowedPattern"]
    assert all(re.fullmatch(pattern, each) for each in taken)
    assert not [each for each in refused if re.fullmatch(pattern, each)]
