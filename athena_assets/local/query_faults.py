"""The server's side of query faults: where queries stop, fail, wait or lose their manifest."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field

from athena_assets.local.athena_errors import QueryFailed, QueryStopped

POINTS = ("queued", "checked", "written")
DEFAULT_DELAY = 0.05
DEFAULT_ROWS_PER_FILE = 100_000


@dataclass(slots=True)
class Hold:
    """Queries whose text contains `sql_contains` stand still at one point until released."""

    sql_contains: str | None
    at: str
    released: bool = False
    standing: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Failure:
    """The next `times` matching queries fail after `after_files` files."""

    sql_contains: str | None
    after_files: int
    reason: str
    error_category: int
    error_type: int
    retryable: bool
    times: int | None

    def as_exception(self) -> QueryFailed:
        """What the query fails with."""
        return QueryFailed(self.reason, self.error_category, self.error_type, self.retryable)


@dataclass(slots=True)
class Requeue:
    """The next matching query goes back to QUEUED after `after_files` files."""

    sql_contains: str | None
    after_files: int


class QueryFaults:
    """Shared by the control endpoints and the running queries."""

    def __init__(self, rows_per_file: int = DEFAULT_ROWS_PER_FILE) -> None:
        self._usual_rows_per_file = rows_per_file
        self._changed = threading.Condition()
        self._holds: dict[str, Hold] = {}
        self._failures: list[Failure] = []
        self._ids = itertools.count(1)
        self._requeues: list[Requeue] = []
        self._manifests_to_lose = 0
        self.delay = DEFAULT_DELAY
        self.rows_per_file = self._usual_rows_per_file

    def hold(self, sql_contains: str | None, at: str) -> str:
        """Takes effect for every query that has not yet passed the point."""
        if at not in POINTS:
            raise ValueError(f"at must be one of {POINTS}, not {at!r}")
        with self._changed:
            hold_id = f"hold-{next(self._ids)}"
            self._holds[hold_id] = Hold(sql_contains, at)
            return hold_id

    def is_hold(self, hold_id: str) -> bool:
        """Whether this id names a hold on queries."""
        with self._changed:
            return hold_id in self._holds

    def held(self, hold_id: str) -> list[str]:
        """Ids of the queries that stand there now, in order of arrival."""
        with self._changed:
            return list(self._holds[hold_id].standing)

    def release(self, hold_id: str) -> None:
        """Lets all go, now and later."""
        with self._changed:
            self._holds[hold_id].released = True
            self._changed.notify_all()

    def add_failure(self, failure: Failure) -> None:
        """Takes effect for queries that reach their first file after this."""
        with self._changed:
            self._failures.append(failure)

    def add_requeue(self, requeue: Requeue) -> None:
        """Takes effect for the next matching query that reaches its first file after this."""
        if requeue.after_files < 0:
            raise ValueError("after_files is a number of files")
        with self._changed:
            self._requeues.append(requeue)

    def take_requeue(self, sql: str) -> Requeue | None:
        """The return to the queue that this query is to suffer, if any; it is spent."""
        with self._changed:
            for requeue in self._requeues:
                if requeue.sql_contains is None or requeue.sql_contains in sql:
                    self._requeues.remove(requeue)
                    return requeue
            return None

    def lose_manifests(self, times: int) -> None:
        """The next `times` successful UNLOADs report a manifest that does not exist."""
        with self._changed:
            self._manifests_to_lose += times

    def clear(self) -> None:
        """Back to the defaults; whoever is held goes on."""
        with self._changed:
            for hold in self._holds.values():
                hold.released = True
            self._holds.clear()
            self._failures.clear()
            self._requeues.clear()
            self._manifests_to_lose = 0
            self.delay = DEFAULT_DELAY
            self.rows_per_file = self._usual_rows_per_file
            self._changed.notify_all()

    def stand(self, query_id: str, sql: str, at: str, stopped: threading.Event) -> None:
        """Called by a query at a point: returns when no hold keeps it there.

        `QueryStopped` if it is stopped meanwhile.
        """
        with self._changed:
            for hold in list(self._holds.values()):
                if hold.at != at or hold.released or (hold.sql_contains is not None and hold.sql_contains not in sql):
                    continue
                hold.standing.append(query_id)
                try:
                    self._changed.wait_for(lambda hold=hold: hold.released or stopped.is_set())  # type: ignore[misc]
                finally:
                    hold.standing.remove(query_id)
                if stopped.is_set():
                    break
        if stopped.is_set():
            raise QueryStopped

    def wake(self) -> None:
        """A query was stopped: let held ones look."""
        with self._changed:
            self._changed.notify_all()

    def take_failure(self, sql: str) -> Failure | None:
        """The failure that this query is to suffer, if any; counts it."""
        with self._changed:
            for failure in self._failures:
                if failure.times == 0 or (failure.sql_contains is not None and failure.sql_contains not in sql):
                    continue
                if failure.times is not None:
                    failure.times -= 1
                return failure
            return None

    def take_manifest_loss(self) -> bool:
        """Whether this query's manifest is to be lost; counts it."""
        with self._changed:
            if self._manifests_to_lose == 0:
                return False
            self._manifests_to_lose -= 1
            return True
