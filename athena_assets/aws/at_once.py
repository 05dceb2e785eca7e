"""Several calls to AWS at one time, for one caller that waits for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


def at_once(calls: Sequence[Callable[[], T]], workers: int) -> list[T]:
    """The results in the order of the calls, each made once. What one raises is raised when all have ended.

    An interruption does not wait for calls that are under way.
    """
    if len(calls) == 1:
        return [calls[0]()]
    pool = ThreadPoolExecutor(workers, thread_name_prefix="athena_assets_at_once")
    try:
        futures = [pool.submit(each) for each in calls]
        wait(futures)
        return [each.result() for each in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
