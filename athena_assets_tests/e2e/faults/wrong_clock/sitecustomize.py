"""Python imports this at its start where this folder is on the path: the wall clock is off by some seconds.

It fails whoever asks for it from within athena_assets: a lease never depends on it.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from typing import Self

OFFSET = float(os.environ["WRONG_CLOCK_OFFSET"])
_time = time.time


def wrong_time() -> float:
    asker = sys._getframe(1).f_globals.get("__name__", "")
    if asker.startswith("athena_assets."):
        raise AssertionError(f"{asker} has read the wall clock")
    return _time() + OFFSET


class WrongDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(wrong_time(), tz)


time.time = wrong_time
datetime.datetime = WrongDatetime  # type: ignore[misc]
