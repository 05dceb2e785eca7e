"""Long random histories of the real protocol keep every promise; and they are what they are said to be."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from athena_assets.core.target import Guard
from athena_assets_tests.simulation.load import LONG, SHORT, Way
from athena_assets_tests.simulation.schedule import EXCLUDED
from athena_assets_tests.simulation.simulator import Report, run, simulate
from athena_assets_tests.simulation.weather import Trouble

CHUNK = 500  # schedules; long enough for everything to happen in each
CHUNKS = {Way.STAGED: 6, Way.DIRECT: 3, Way.POINTER: 3, Way.TABLE: 4, Way.PARTITION: 4}  # 10,000 schedules

HAPPENED = (
    *("publications", "single", "sensor", "backfill", "takeover", "force", "retry after a crash"),
    *("retry after an error", "on_conflict join", "on_conflict queue", "on_conflict skip", "on_conflict fail"),
    *("reuse auto", "reuse always", "reuse never", "read", "collect", "scrub", "scrub found it clean"),
    *("published", "published, adopted", "reused", "reused, joined", "skipped", "SlotBusy", "AccessDenied"),
)
_REPLACING = ("restore", "restored", "objects collected", "published, superseded")
_POINTER = (*_REPLACING, "ResultInvalid", "read, whole", "objects in directories collected")
_GLUE = (
    "PublicationLost",  # also where files are copied; nothing loses those of a directory that no table names
    *(
        f"MovePointer: {trouble}"
        for trouble in (Trouble.LOST, Trouble.LATE, Trouble.UNSENT, Trouble.CONFLICT, Trouble.REFUSED, Trouble.PAUSED)
    ),
)
IN_WAY = {
    Way.STAGED: (*_REPLACING, "PublicationLost"),
    Way.DIRECT: ("repair", "DirtyLocation", "MixedLocation"),
    Way.POINTER: _POINTER,
    Way.TABLE: (*_POINTER, *_GLUE),
    Way.PARTITION: (*_POINTER, *_GLUE),
}


def check_everything_happened(report: Report) -> None:
    """A simulation that exercises nothing must fail."""
    missing = [kind for kind in (*HAPPENED, *IN_WAY[report.way]) if not report.counts[kind]]
    missing += [trouble for trouble in set(Trouble) - EXCLUDED[report.way] if not report.troubles[trouble]]
    assert not missing, str(report)


@pytest.mark.parametrize(
    ("way", "schedules"), [(Way.STAGED, 60), (Way.DIRECT, 40), (Way.POINTER, 30), (Way.TABLE, 30), (Way.PARTITION, 30)]
)
def test_short_random_histories_keep_every_promise(way: Way, schedules: int) -> None:
    report = run(way, range(schedules), SHORT)
    assert report.counts["publications"] > schedules // 2
    assert len(report.troubles) > len(set(Trouble) - EXCLUDED[way]) // 2  # each of them: in the ten thousand


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("way", "chunk"), [pytest.param(way, chunk) for way, chunks in CHUNKS.items() for chunk in range(chunks)]
)
def test_ten_thousand_random_histories_keep_every_promise(way: Way, chunk: int) -> None:
    first = 1000 + chunk * CHUNK
    check_everything_happened(run(way, range(first, first + CHUNK)))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("guard", [Guard.TAKEOVER, Guard.ALWAYS])
@pytest.mark.parametrize("way", list(Way))
def test_random_histories_with_the_guard_keep_every_promise(way: Way, guard: Guard) -> None:
    report = run(way, range(20_000, 20_100), guard=guard)
    assert report.counts["publications"] > 100
    assert report.counts["looks at what runs"]


@pytest.mark.parametrize("way", list(Way))
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_no_history_that_hypothesis_finds_breaks_a_promise(way: Way, chance: random.Random) -> None:
    simulate(chance, way, SHORT)


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
