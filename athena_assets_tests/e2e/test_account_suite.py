"""The opt-in suite for a real account, run on the embedded AWS: it can pass, and the two agree on what it checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from athena_assets_tests.e2e.lake import Lake


def test_the_suite_for_an_account_passes_on_the_embedded_aws(lake: Lake) -> None:
    settings = {"AWS_E2E": "1", "AWS_E2E_LOCATION": f"s3://{lake.bucket}/scratch/"}
    suite = Path(__file__).parents[1] / "aws_e2e"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", str(suite)],
        env=os.environ | lake.aws.environment() | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert "6 passed" in run.stdout
