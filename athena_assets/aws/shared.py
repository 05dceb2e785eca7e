"""One answer for all callers of a process that ask the same at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

PACE = 0.25  # seconds from the beginning of one asking to that of the next


@dataclass(slots=True)
class _Last(Generic[T]):
    """`began`: our clock when the last answer was asked for."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    began: float = float("-inf")
    answer: T | None = None


class Shared(Generic[T]):
    """Answers by what is asked. Thread-safe."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._asked: dict[str, _Last[T]] = {}

    def ask(self, what: str, ask: Callable[[], T], seconds: float) -> T | None:
        """The answer to an asking that began after this call did: another caller's, or one's own.

        None: other callers' took all of the `seconds`. An error of one's own asking is raised, and not shared.
        """
        called = self._clock()
        with self._lock:
            last = self._asked.setdefault(what, _Last())
        if not last.lock.acquire(timeout=seconds):
            return None
        try:
            if last.answer is None or last.began < called:
                self._sleep(max(last.began + PACE - self._clock(), 0.0))
                last.answer, last.began = None, self._clock()
                last.answer = ask()
            return last.answer
        finally:
            last.lock.release()
