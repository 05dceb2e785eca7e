"""What the program is to a shell: names of targets, exit statuses, JSON, and what it loads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from athena_assets import errors
from athena_assets.cli import run
from athena_assets.cli.exits import MEANINGS, Exit, exit_of
from athena_assets.cli.report import age_text, size_text
from athena_assets.cli.targets import targets_of
from athena_assets_tests.cli.conftest import PROJECT, Cli
from athena_assets_tests.e2e.lake import Lake

DOCUMENT = (PROJECT / "docs" / "cli.md").read_text(encoding="utf-8")
OUR_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.AthenaAssetsError) and kind is not errors.AthenaAssetsError
]


def test_the_console_script_is_the_program() -> None:
    scripts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]
    main = EntryPoint("athena-assets", scripts["athena-assets"], "console_scripts").load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["athena-assets", "--version"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0


def test_neither_dagster_nor_the_embedded_aws_is_loaded_with_the_program() -> None:
    code = "import sys, athena_assets.cli; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    unwanted = ("dagster", "moto", "duckdb", "athena_assets.local", "athena_assets.orchestration", "athena_assets.dev")
    assert "athena_assets.cli.main" in loaded
    assert [name for name in loaded if f"{name}.".startswith(tuple(f"{each}." for each in unwanted))] == []


@pytest.mark.parametrize("kind", OUR_ERRORS, ids=lambda kind: kind.__name__)
def test_the_document_gives_every_error_the_exit_status_that_it_has(kind: type[errors.AthenaAssetsError]) -> None:
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", DOCUMENT, re.MULTILINE)
    documented = [int(status) for status, text in rows if f"`{kind.__name__}`" in text]
    assert documented == [exit_of(kind)]


def test_help_and_document_list_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for status in Exit:
        assert f"{int(status)} {MEANINGS[status]}" in told
        assert f"| {int(status)} |" in DOCUMENT


def test_the_document_describes_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    listed = re.findall(r"^  ([a-z-]+)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE)
    assert len(listed) == 12
    for command in listed:
        assert f"athena-assets {command}" in DOCUMENT


def test_this_deployments_targets_are_known_by_name() -> None:
    assert {target.name for target in targets_of("athena_assets.defs")} >= {
        "flights_with_carrier",
        "daily_delays",
        "airport_traffic",
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing_like_it", "no target of"),
        ("no_such_module:target", "no such module"),
        ("json:no_such_name", "has no 'no_such_name'"),
        ("json:dumps", "neither a Target nor a list"),
        (":target", "no module's name"),
        ("s3://bucket/path/", "no target"),
    ],
)
def test_a_name_that_means_nothing_is_wrong_usage(lake: Lake, cli: Cli, name: str, told: str) -> None:
    cli.define(lake.target())
    ended = cli("unload", name)
    assert (ended.status, ended.out) == (2, "")
    assert told in ended.err
    assert "Traceback" not in ended.err


def test_a_name_that_means_two_targets_is_refused(cli: Cli) -> None:
    cli.write(
        "from athena_assets import Target\n"
        "one = Target(name='t', query='SELECT 1 AS n', location='s3://bucket/one/')\n"
        "many = [Target(name='t', query='SELECT 2 AS n', location='s3://bucket/two/'), one]"
    )
    ended = cli("status", "t")
    assert ended.status == 2
    assert "2 different targets" in ended.err
    assert [target.location for target in targets_of(cli.module)] == ["s3://bucket/two/", "s3://bucket/one/"]


def test_a_target_that_is_wrong_is_told_without_a_trace(cli: Cli) -> None:
    cli.write("from athena_assets import Target\none = Target(name='t', query='SELECT 1', location='s3://bucket/')")
    ended = cli("status", "t")
    assert (ended.status, ended.out) == (2, "")
    assert "InvalidTarget" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("source", ["1 / 0", "import no_such_library"])
def test_a_bug_shows_its_trace_and_has_a_status_of_its_own(cli: Cli, source: str) -> None:
    cli.write(source)
    ended = cli("status", "t", "--json")
    assert ended.status == 70
    assert "Traceback" in ended.err
    assert f"{cli.module}.py" in ended.err
    assert ended.document["error"]["kind"] in ("ZeroDivisionError", "ModuleNotFoundError")


@pytest.mark.parametrize(
    "arguments",
    [
        ["unload"],
        ["no-such-command"],
        ["status", "--no-such-option"],
        ["unload", "t", "--lease-seconds", "0"],
        ["status", "--partition", "3"],
        ["show", "s3://bucket/path/", "--partition", "3"],
        ["show", "s3://bucket/"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_as_json_too(cli: Cli, arguments: list[str]) -> None:
    cli.write("")
    plain = cli(*arguments)
    assert (plain.status, plain.out) == (2, "")
    assert "Traceback" not in plain.err
    document = cli("--json", *arguments).document
    assert document["exit_status"] == 2
    assert document["error"]["message"]


def test_a_profile_that_does_not_exist_is_told_without_a_trace(cli: Cli) -> None:
    ended = cli("status", "s3://bucket/path/", "--profile", "no-such-profile")
    assert ended.status == 4
    assert "no-such-profile" in ended.err
    assert "Traceback" not in ended.err


def test_options_of_the_program_may_stand_before_or_after_the_command(lake: Lake, cli: Cli) -> None:
    target = lake.target("elsewhere")
    (cli.folder / "other_targets.py").write_text(
        f"from athena_assets import Target\nx = Target(name='elsewhere', query='SELECT 1 AS n', "
        f"location={target.location!r})\n"
    )
    for arguments in (
        ["--from", "other_targets", "--json", "status", "elsewhere"],
        ["status", "elsewhere", "--json", "--from", "other_targets"],
        ["--from", "nonsense", "status", "elsewhere", "--json", "--from", "other_targets"],
    ):
        [slot] = cli(*arguments).document["slots"]
        assert slot["location"] == target.location
    sys.modules.pop("other_targets")


def test_the_result_location_of_this_deployment_holds_for_the_command_line(
    lake: Lake, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATHENA_ASSETS_OUTPUT_LOCATION")
    monkeypatch.setenv("ATHENA_ASSETS_BUCKET", lake.bucket)
    target = lake.target()
    assert cli("unload", cli.define(target)).status == 0
    assert lake.listing(f"s3://{lake.bucket}/athena-results/")


def test_the_endpoint_of_an_option_wins_over_the_environment(
    lake: Lake, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens there
    target = lake.target()
    cli("unload", cli.define(target), "--endpoint-url", lake.aws.endpoint_url)
    lake.assert_published_once(target.location)


@pytest.mark.parametrize("url", ["not a url", "localhost:1"])
def test_an_endpoint_that_is_no_url_ends_without_a_trace(cli: Cli, url: str) -> None:
    ended = cli("status", "s3://lake/x/", "--endpoint-url", url)
    assert ended.status == Exit.USAGE
    assert "AWS settings" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("grace", ["nan", "-1"])
def test_a_grace_that_is_no_number_of_seconds_is_wrong_usage(cli: Cli, grace: str) -> None:
    ended = cli("gc", "s3://lake/x/", "--delete", "--grace", grace)
    assert ended.status == Exit.USAGE
    assert "grace" in ended.err


def test_a_reader_that_closes_the_pipe_causes_no_complaint(tmp_path: Path) -> None:
    script = f"{sys.executable} -m athena_assets.cli --json status --from json | true; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("bytes_", "text"), [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (2_345_678, "2.3 MB"), (10**18, "1,000.0 PB")]
)
def test_sizes_are_told_in_decimal_units(bytes_: int, text: str) -> None:
    assert size_text(bytes_) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7_300, "2 h"), (2e5, "2 d")]
)
def test_ages_are_told_roughly(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


def test_json_of_help_is_no_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--json", "--help"]) == 0
    with pytest.raises(json.JSONDecodeError):
        json.loads(capsys.readouterr().out)
