"""Long random histories of the real protocol keep every promise; and they are what they are said to be."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from athena_assets.core.register import Mode
from athena_assets_tests.simulation import load
from athena_assets_tests.simulation.simulator import Report, run, simulate
from athena_assets_tests.simulation.weather import ANY_TIME, AT_CALL, AT_QUERY, Trouble

CHUNK = 500
CHUNKS = 20  # 10,000 schedules
DIRECT = 5  # of them

KINDS = (
    *("single", "sensor", "backfill", "takeover", "force"),
    *("on_conflict join", "on_conflict queue", "on_conflict skip", "on_conflict fail"),
    *("reuse auto", "reuse always", "reuse never"),
    *("read", "collect", "restore", "scrub", "retry after a crash", "retry after an error"),
)
OUTCOMES = ("published", "published, adopted", "reused", "reused, joined", "skipped", "SlotBusy", "AccessDenied")
STAGED_ONLY = ("restored", "objects collected", "published, superseded", "PublicationLost", "OutcomeUnknown")


def _check_nothing_is_missing(report: Report, *excluded: Trouble) -> None:
    """A simulation that exercises nothing must fail."""
    expected: list[str] = [*KINDS, *OUTCOMES, *(STAGED_ONLY if report.mode is Mode.STAGED else ("repair",))]
    missing = [kind for kind in expected if not report.counts[kind]]
    missing += [trouble for trouble in Trouble if trouble not in excluded and not report.troubles[trouble]]
    assert not missing


def test_three_hundred_schedules_keep_every_promise() -> None:
    report = run(Mode.STAGED, range(300))
    _check_nothing_is_missing(report)
