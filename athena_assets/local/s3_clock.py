"""The clock of the server's answers and of S3's objects: real time, plus what a test has added."""

from __future__ import annotations

import threading
import time


class S3Clock:
    """The `Date` of every answer, and the `Last-Modified` of every object that is written from now on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = 0.0

    @property
    def offset(self) -> float:
        """Seconds ahead of real time."""
        return self._offset

    def now(self) -> float:
        """Unix seconds."""
        return time.time() + self._offset

    def advance(self, seconds: float) -> None:
        """Objects keep the time at which they were written, so that they grow older at once."""
        with self._lock:
            self._offset += seconds

    def reset(self) -> None:
        """Real time again."""
        with self._lock:
            self._offset = 0.0


CLOCK = S3Clock()  # one, as moto's stores are
