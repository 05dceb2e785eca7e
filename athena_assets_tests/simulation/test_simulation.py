"""Long random histories of the real protocol keep every promise; and they are what they are said to be."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from athena_assets.core.register import Mode
from athena_assets_tests.simulation.load import LONG, SHORT
from athena_assets_tests.simulation.schedule import UNPROMISED
from athena_assets_tests.simulation.simulator import Report, run, simulate
from athena_assets_tests.simulation.weather import Trouble

CHUNK = 500  # schedules; long enough for everything to happen in each
CHUNKS = {Mode.STAGED: 12, Mode.POINTER: 4, Mode.DIRECT: 4}  # 10,000 schedules

HAPPENED = (
    *("publications", "single", "sensor", "backfill", "takeover", "force", "retry after a crash"),
    *("retry after an error", "on_conflict join", "on_conflict queue", "on_conflict skip", "on_conflict fail"),
    *("reuse auto", "reuse always", "reuse never", "read", "collect", "scrub", "scrub found it clean"),
    *("published", "published, adopted", "reused", "reused, joined", "skipped", "SlotBusy", "AccessDenied"),
)
IN_MODE = {
    Mode.STAGED: ("restore", "restored", "objects collected", "published, superseded", "PublicationLost"),
    Mode.POINTER: ("restore", "restored", "objects collected", "published, superseded"),
    Mode.DIRECT: ("repair", "DirtyLocation", "MixedLocation"),
}


def check_everything_happened(report: Report) -> None:
    """A simulation that exercises nothing must fail."""
    missing = [kind for kind in (*HAPPENED, *IN_MODE[report.mode]) if not report.counts[kind]]
    missing += [trouble for trouble in set(Trouble) - UNPROMISED[report.mode] if not report.troubles[trouble]]
    assert not missing, str(report)


@pytest.mark.parametrize(("mode", "schedules"), [(Mode.STAGED, 200), (Mode.POINTER, 150), (Mode.DIRECT, 150)])
def test_short_random_histories_keep_every_promise(mode: Mode, schedules: int) -> None:
    report = run(mode, range(schedules), SHORT)
    assert report.counts["publications"] > schedules
    assert set(Trouble) - UNPROMISED[mode] == set(report.troubles)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mode", "chunk"), [pytest.param(mode, chunk) for mode, chunks in CHUNKS.items() for chunk in range(chunks)]
)
def test_ten_thousand_random_histories_keep_every_promise(mode: Mode, chunk: int) -> None:
    first = 1000 + chunk * CHUNK
    check_everything_happened(run(mode, range(first, first + CHUNK)))


@pytest.mark.parametrize("mode", CHUNKS)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_no_history_that_hypothesis_finds_breaks_a_promise(mode: Mode, chance: random.Random) -> None:
    simulate(chance, mode, SHORT)


def test_a_seed_replays_exactly_in_another_process() -> None:
    script = (
        "import random; from athena_assets_tests.simulation.load import LONG; "
        "from athena_assets_tests.simulation.simulator import simulate; "
        "print(simulate(random.Random(7), size=LONG).digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {simulate(random.Random(7), size=LONG).digest()}
    assert simulate(random.Random(8), size=LONG).digest() not in digests
