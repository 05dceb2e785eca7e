"""Runs many publications at once on one thread, over one batched poller.

The generators are advanced here, one at a time; calls to AWS run in a small pool of threads; queries that are due are
looked at together with BatchGetQueryExecution (50 a call, where GetQueryExecution would be one call each).
"""

from __future__ import annotations

import heapq
import itertools
import queue
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from athena_assets.aws.athena import Athena
from athena_assets.aws.driver import CLEAN_UP_SECONDS, Driver, new_caller, warn_not_freed
from athena_assets.aws.session import AwsClients
from athena_assets.core import effects
from athena_assets.core.abandon import abandon
from athena_assets.core.effects import Effect, Effects, LookForQueries, PollQuery
from athena_assets.core.protocol import Caller
from athena_assets.core.request import Outcome, Request
from athena_assets.errors import AthenaAssetsError

WORKERS = 16  # calls to AWS at one time
BATCH = 50  # query ids in one BatchGetQueryExecution; its quota
GATHER_SECONDS = 0.05  # how long a due query waits for others

_AT_ONCE = (effects.ReadClock, effects.DrawId, effects.DrawFraction, effects.Report)


@dataclass(slots=True)
class _Task:
    index: int
    driver: Driver
    caller: Caller
    steps: Effects[Any]


class Fleet:
    """Publishes requests, at most `limit` at a time.

    Args:
        clients: shared by all.
        limit: publications under way at one time.
        observe: gets the request's index and a line of its story.
    """

    def __init__(
        self,
        clients: AwsClients,
        *,
        limit: int,
        observe: Callable[[int, str], None],
    ) -> None:
        self._clients = clients
        self._limit = limit
        self._observe = observe
        self._ended: deque[tuple[int, Outcome | AthenaAssetsError]] = deque()
        self._athena = Athena(clients, "BatchGetQueryExecution")
        self._answers: queue.SimpleQueue[tuple[_Task, Any, BaseException | None]] = queue.SimpleQueue()
        self._ready: deque[tuple[_Task, Any, AthenaAssetsError | None]] = deque()
        self._asleep: list[tuple[float, int, _Task]] = []
        self._due: deque[tuple[_Task, str]] = deque()
        self._due_since = 0.0
        self._order = itertools.count()
        self._active: dict[int, _Task] = {}
        self._calling: set[int] = set()  # ids of tasks with a call under way
        self._after: dict[int, _Task] = {}  # what follows such a call

    def publish(self, requests: Sequence[Request]) -> Generator[tuple[int, Outcome | AthenaAssetsError]]:
        """Yields each request's index with its outcome or error as soon as it has ended. One's error ends no other.

        Nothing goes on between two steps of the iteration, so take them quickly: leases are renewed in them. An
        interruption, or closing the iterator, stops every query that is under way and frees its slot, in about
        CLEAN_UP_SECONDS for all.
        """
        waiting = deque(enumerate(requests))
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="athena_assets") as pool:
            self._lookers = ThreadPoolExecutor(self._limit, thread_name_prefix="athena_assets_looks")
            try:
                while waiting or self._active:
                    while waiting and len(self._active) < self._limit:
                        self._begin(*waiting.popleft())
                    self._turn(pool)
                    while self._ended:
                        yield self._ended.popleft()
            except Exception:
                raise
            except BaseException:
                self._clean_up(pool)
                raise
            finally:
                self._lookers.shutdown(wait=False, cancel_futures=True)

    def _begin(self, index: int, request: Request) -> None:
        caller = new_caller(request)
        driver = Driver(self._clients, request.slot, lambda line: self._observe(index, line))
        task = _Task(index, driver, caller, caller.publish())
        self._active[index] = task
        self._ready.append((task, None, None))

    def _turn(self, pool: ThreadPoolExecutor, until: float | None = None) -> None:
        """Advances whatever can go on, then waits for the next answer, waking or batch."""
        while self._ready:
            self._advance(pool, *self._ready.popleft())
        now = time.monotonic()
        if self._due and (now - self._due_since >= GATHER_SECONDS or len(self._due) >= BATCH):
            self._look_at_due(pool)
        while self._asleep and self._asleep[0][0] <= now:
            self._ready.append((heapq.heappop(self._asleep)[2], None, None))
        if self._ready or (self._ended and until is None):
            return  # who has ended is told at once
        wakings = [1.0 + now, *(each[0] for each in self._asleep[:1]), *([until] if until is not None else [])]
        if self._due:
            wakings.append(self._due_since + GATHER_SECONDS)
        try:
            task, answer, error = self._answers.get(timeout=max(min(wakings) - now, 0.001))
        except queue.Empty:
            return
        self._calling.discard(id(task))
        if (follower := self._after.pop(id(task), None)) is not None:
            self._ready.append((follower, None, None))
            return
        if error is not None and not isinstance(error, AthenaAssetsError):
            raise error
        self._ready.append((task, answer, error))

    def _advance(self, pool: ThreadPoolExecutor, task: _Task, answer: Any, error: AthenaAssetsError | None) -> None:
        if self._active.get(task.index) is not task:
            return  # the answer to a call of a task that was given up
        try:
            effect = task.steps.throw(error) if error is not None else task.steps.send(answer)
            while isinstance(effect, _AT_ONCE):
                effect = task.steps.send(task.driver.perform(effect))
        except StopIteration as stop:
            self._end(task, stop.value)
        except AthenaAssetsError as failure:
            self._end(task, failure)
        else:
            self._dispatch(pool, task, effect)

    def _end(self, task: _Task, result: Any) -> None:
        del self._active[task.index]
        self._ended.append((task.index, result))

    def _dispatch(self, pool: ThreadPoolExecutor, task: _Task, effect: Effect[Any]) -> None:
        if isinstance(effect, effects.Sleep):
            heapq.heappush(self._asleep, (time.monotonic() + effect.seconds, next(self._order), task))
        elif isinstance(effect, PollQuery):
            if not self._due:
                self._due_since = time.monotonic()
            self._due.append((task, effect.query_id))
        elif isinstance(effect, LookForQueries):
            # It takes long, and callers wait for each other's: nobody's lease waits behind it. Nor does an
            # interruption: a look changes nothing, and its caller holds nothing.
            self._lookers.submit(self._call, task, effect)
        else:
            self._calling.add(id(task))
            pool.submit(self._call, task, effect)

    def _call(self, task: _Task, effect: Effect[Any]) -> None:
        try:
            self._answers.put((task, task.driver.perform(effect), None))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that runs the task
            self._answers.put((task, None, error))

    def _look_at_due(self, pool: ThreadPoolExecutor) -> None:
        batch = [self._due.popleft() for _ in range(min(BATCH, len(self._due)))]
        self._due_since = time.monotonic()
        pool.submit(self._poll, batch)

    def _poll(self, batch: list[tuple[_Task, str]]) -> None:
        try:
            found = self._athena.poll_many(tuple({query_id for _, query_id in batch}))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that runs the tasks
            for task, _ in batch:
                self._answers.put((task, None, error))
            return
        for task, query_id in batch:
            self._answers.put((task, found[query_id], None))

    def _clean_up(self, pool: ThreadPoolExecutor) -> None:
        until = time.monotonic() + CLEAN_UP_SECONDS
        abandoned = list(self._active.values())
        self._active, self._asleep, self._due = {}, [], deque()
        self._ready.clear()
        self._ended.clear()
        for index, task in enumerate(abandoned):
            again = _Task(index, task.driver, task.caller, abandon(task.caller.slot, task.caller.session))
            self._active[index] = again
            if id(task) in self._calling:
                self._after[id(task)] = again  # what is under way may change the register
            else:
                self._ready.append((again, None, None))
        while self._active and time.monotonic() < until:
            self._turn(pool, until)
        for index, result in self._ended:
            if isinstance(result, AthenaAssetsError):
                warn_not_freed(abandoned[index].caller.slot, result)
        for task in self._active.values():
            warn_not_freed(task.caller.slot, TimeoutError())
        self._active = {}
