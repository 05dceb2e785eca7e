"""Settings of the whole test run: no account, no telemetry and no Dagster home of the person who runs it."""

import os
import signal

import hypothesis
import pytest

# Before they are imported: so that a failed assertion in them tells what stood on both sides.
pytest.register_assert_rewrite("athena_assets_tests.e2e.faults.ending", "athena_assets_tests.e2e.lake")

WITH_ACCOUNT = os.environ.get("AWS_E2E") == "1"

# At import, which is before a test module imports boto3 or Dagster, also in an xdist worker. Processes that tests start
# inherit it.
if not WITH_ACCOUNT:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(
        {
            # A client that a test forgot to point at the embedded AWS is refused by the real one. No region: a test
            # that needs one names it.
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    )
os.environ["DAGSTER_DISABLE_TELEMETRY"] = "yes"
os.environ.pop("DAGSTER_HOME", None)

# A run in the background may ignore it, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines: a test may share its core with a server. CI tries the same examples each time, so that a red build is
# the change's doing; a person's run looks for new ones.
hypothesis.settings.register_profile("dev", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep tests that need an account apart from all others: the settings above are for the whole process."""
    chosen = [item for item in items if (item.get_closest_marker("aws_e2e") is not None) == WITH_ACCOUNT]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests have to tell beside whether they passed: how much was explored, and what was found."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    told = sorted({str(text) for report in reports for name, text in report.user_properties if name == "told"})
    if told:
        terminalreporter.section("explored")
        for text in told:
            terminalreporter.line(text)
