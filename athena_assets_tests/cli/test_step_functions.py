"""`athena-assets step-functions`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from athena_assets import Target
from athena_assets.cli import run
from athena_assets.step_functions.documents import Wish, read_wish
from athena_assets.step_functions.machine import Bus, Topic, definition_text, state_machine

TOPIC = "arn:aws:sns:eu-central-1:123456789012:results"
BUS = "arn:aws:events:eu-central-1:123456789012:event-bus/results"
EXPORT = ("step-functions", "export")


@pytest.mark.parametrize(
    ("arguments", "definition"),
    [
        ([], state_machine("${Function}")),
        (["--function", "publish"], state_machine("publish")),
        (["--function", "publish", "--notify-topic", TOPIC], state_machine("publish", Topic(TOPIC))),
        (["--notify-topic", "${Topic}"], state_machine("${Function}", Topic("${Topic}"))),
        (["--notify-bus", "results"], state_machine("${Function}", Bus("results"))),
        (["--notify-bus", BUS], state_machine("${Function}", Bus(BUS))),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_exported_is_the_definition(
    arguments: list[str], definition: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*EXPORT, *arguments]) == 0
    said = capsys.readouterr()
    assert (json.loads(said.out), said.err) == (definition, "")


@pytest.mark.parametrize(
    "function",
    [
        "publish",
        "publish:live",
        "publish:$LATEST",
        "123456789012:function:publish",
        "arn:aws:lambda:us-gov-west-1:123456789012:function:publish:7",
    ],
)
def test_a_function_may_be_named_as_lambda_lets_it_be_named(function: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*EXPORT, "--function", function]) == 0
    assert json.loads(capsys.readouterr().out) == state_machine(function)


def test_the_definition_can_be_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "machine.asl.json"
    assert run([*EXPORT, "--output", str(path)]) == 0
    assert path.read_text() == definition_text(state_machine("${Function}")) + "\n"
    assert str(path) in capsys.readouterr().out


@pytest.mark.parametrize("where", [0, 1, 2])
def test_json_holds_the_definition_and_where_it_was_written(
    where: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.asl.json"
    for more in ([], ["--output", str(path)]):
        command = [*EXPORT, *more]
        run([*command[:where], "--json", *command[where:]])
        assert json.loads(capsys.readouterr().out) == {
            "command": "step-functions export",
            "exit_status": 0,
            "definition": state_machine("${Function}"),
            "written": str(path) if more else None,
        }


@pytest.mark.parametrize(
    "arguments",
    [
        ["step-functions", "no-such-command"],
        [*EXPORT, "--notify-topic", TOPIC, "--notify-bus", "results"],
        [*EXPORT, "--notify-topic", "results"],
        [*EXPORT, "--notify-topic", "arn:aws:sqs:eu-central-1:123456789012:results"],
        [*EXPORT, "--notify-bus", "no bus"],
        [*EXPORT, "--function", "a function"],
        [*EXPORT, "--function", ""],
        [*EXPORT, "--output", "no/such/folder/machine.asl.json"],
    ],
    ids=" ".join,
)
def test_wrong_usage_writes_nothing(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err
    assert "Traceback" not in said.err
    assert not list(tmp_path.iterdir())


def test_the_group_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["step-functions", "--help"]) == 0
    assert "export" in capsys.readouterr().out


def test_the_input_of_a_target_is_what_an_execution_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    target = Target(name="daily", query="SELECT n FROM t WHERE d = ${partition}", location="s3://lake/d/${partition}/")
    fields = {"name": target.name, "query": target.query, "location": target.location}
    (tmp_path / "given_targets.py").write_text(f"from athena_assets import Target\ndaily = Target(**{fields!r})\n")
    arguments = ["step-functions", "input", "given_targets:daily"]
    assert run([*arguments, "--partition", "2024-01-01", "--request-id", "r-1", "--force"]) == 0
    wish = read_wish(json.loads(capsys.readouterr().out))
    assert wish == Wish(target=target, partition="2024-01-01", request_id="r-1", force=True)
    assert run(arguments) == 2
    assert "no partition key was given" in capsys.readouterr().err
