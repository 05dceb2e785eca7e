"""A template as CloudFormation would see it, for given parameters: enough of its functions for those in deploy/."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

BUCKET_YAML = Path(__file__).parents[2] / "deploy" / "bucket.yaml"
STEP_FUNCTIONS_YAML = BUCKET_YAML.with_name("step_functions.yaml")
ACCOUNT, REGION = "123456789012", "us-east-1"
PSEUDO = {"AWS::AccountId": ACCOUNT, "AWS::Partition": "aws", "AWS::Region": REGION, "AWS::StackName": "stack"}
ROLE_ARN = f"arn:aws:iam::{ACCOUNT}:role/publisher"
FUNCTION_ARN = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:stack-Function"
LOG_ARN = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{{}}:*"
ATTRIBUTES = {
    "PublisherRole.Arn": ROLE_ARN,
    "Function.Arn": FUNCTION_ARN,
    "FunctionLog.Arn": LOG_ARN.format("/aws/lambda/stack"),
    "StatesLog.Arn": LOG_ARN.format("/aws/vendedlogs/states/stack"),
    "StatesRole.Arn": f"arn:aws:iam::{ACCOUNT}:role/states",
}
_NOTHING = object()


class _Loader(yaml.SafeLoader):
    pass


def _construct(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".")
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _construct)


@cache
def load_template(path: Path = BUCKET_YAML) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    return document


def resources(path: Path = BUCKET_YAML, **given: Any) -> dict[str, Any]:
    """The resources with every function resolved. A resource's own condition is not looked at."""
    template = load_template(path)
    values: dict[str, Any] = {**PSEUDO, "AWS::NoValue": _NOTHING, "Bucket": given.get("BucketName")}
    for name, description in template["Parameters"].items():
        value = given.get(name, description.get("Default"))
        assert value is not None, f"{name} has no default"
        values[name] = value.split(",") if description["Type"] == "CommaDelimitedList" else value
    values["conditions"] = {name: _resolve(each, values) for name, each in template["Conditions"].items()}
    resolved: dict[str, Any] = _resolve(template["Resources"], values)
    return resolved


def _resolve(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [item for each in value if (item := _resolve(each, values)) is not _NOTHING]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, argument),) = value.items()
        match name:
            case "Ref":
                return values.get(argument, argument)
            case "Fn::GetAtt":
                return _attribute(argument, values)
            case "Fn::Sub":
                return _substituted(argument, values)
            case "Fn::If":
                condition, then, otherwise = argument
                return _resolve(then if values["conditions"][condition] else otherwise, values)
            case "Fn::Not":
                return not _resolve(argument[0], values)
            case "Fn::Equals":
                first, second = (_resolve(each, values) for each in argument)
                return first == second
            case "Fn::Join":
                return argument[0].join(_resolve(argument[1], values))
            case "Fn::Split":
                return _resolve(argument[1], values).split(argument[0])
    found: dict[str, Any] = {}
    for key, each in value.items():
        if key.startswith("Fn::ForEach::"):
            variable, collection, body = each
            for item in _resolve(collection, values):
                for name, resource in body.items():
                    logical = name.replace(f"&{{{variable}}}", re.sub(r"\W|_", "", item))
                    found[logical] = _resolve(resource, values | {variable: item})
        elif (resolved := _resolve(each, values)) is not _NOTHING:
            found[key] = resolved
    return found


def _attribute(path: list[str], values: dict[str, Any]) -> str:
    if path == ["Bucket", "Arn"]:
        return f"arn:aws:s3:::{values['BucketName']}"
    return ATTRIBUTES[".".join(path)]


def _substituted(argument: Any, values: dict[str, Any]) -> str:
    text, more = (argument, {}) if isinstance(argument, str) else argument
    known = values | {name: _resolve(each, values) for name, each in more.items()}

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return _attribute(name.split("."), known) if "." in name else str(known[name])

    return re.sub(r"\$\{([^}]+)\}", value, text)


# --- policies --------------------------------------------------------------------------------------------------------


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def covers(statement: dict[str, Any], action: str, resource: str) -> bool:
    """Whether the statement names the action and the resource; `*` in an ARN stands for any text, `/` included."""
    return action in listed(statement["Action"]) and any(
        fnmatchcase(resource, pattern) for pattern in listed(statement["Resource"])
    )


def denied(statements: list[dict[str, Any]], action: str, resource: str, context: dict[str, str]) -> set[str]:
    """The Sids of the deny statements that strike. `context`: the condition keys that the request has."""

    def holds(operator: str, key: str, wanted: str) -> bool:
        if operator == "Null":
            return (key not in context) == (wanted == "true")
        assert operator == "ArnNotEquals", operator
        return context.get(key) != wanted

    return {
        statement["Sid"]
        for statement in statements
        if statement["Effect"] == "Deny"
        and covers(statement, action, resource)
        and all(
            holds(operator, key, wanted)
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    }
