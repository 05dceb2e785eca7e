"""The handle on faults, in the test's process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from athena_assets.local.faults import Fault

Call = Callable[..., Any]


class Faults:
    """Disturbs the embedded AWS. Rules last until `remove`, `clear` or `EmbeddedAws.reset`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def add(self, fault: Fault) -> str:
        """Id of the new rule; it is in force when this returns."""
        return str(self._call("faults.add", fault=fault.to_json()))

    def remove(self, rule_id: str) -> None:
        """Ends a rule or a hold on queries; whoever it holds goes on."""
        self._call("faults.remove", rule_id=rule_id)

    def clear(self) -> None:
        """Ends all rules, holds, failures and losses; delays, file sizes and the clock go back to their defaults."""
        self._call("faults.clear")

    def hits(self, rule_id: str) -> int:
        """How many requests the rule has caught so far, held ones included; with a held reply, once it is applied."""
        return int(self._call("faults.hits", rule_id=rule_id))

    def release(self, rule_id: str) -> None:
        """Lets everything go that a rule or a hold on queries holds, now and later."""
        self._call("faults.release", rule_id=rule_id)

    def hold_queries(self, sql_contains: str | None = None, at: str = "checked") -> str:
        """Id of a hold on queries.

        `at`: "queued" (before the emptiness check), "checked" (after it, before any file), "written" (all files
        written, not yet SUCCEEDED).
        """
        return str(self._call("faults.hold_queries", sql_contains=sql_contains, at=at))

    def held(self, hold_id: str) -> list[str]:
        """Ids of the queries that stand there now."""
        return [str(query_id) for query_id in self._call("faults.held", hold_id=hold_id)]

    def fail_queries(
        self,
        sql_contains: str | None = None,
        after_files: int = 0,
        reason: str = "GENERIC_INTERNAL_ERROR: injected fault",
        error_category: int = 1,
        error_type: int = 1,
        retryable: bool = True,
        times: int | None = 1,
    ) -> None:
        """The next matching queries write so many files (or all, if they have fewer), then end as FAILED."""
        self._call(
            "faults.fail_queries",
            sql_contains=sql_contains,
            after_files=after_files,
            reason=reason,
            error_category=error_category,
            error_type=error_type,
            retryable=retryable,
            times=times,
        )

    def requeue(self, sql_contains: str | None = None, after_files: int = 0) -> None:
        """The next matching UNLOAD writes so many files (or all, if fewer), goes back to QUEUED and starts again.

        It then writes all its files under new names, without looking again whether the destination is empty. The first
        run's files stay; the data manifest names the second run's only. A hold at "queued" keeps it there.
        """
        self._call("faults.requeue", sql_contains=sql_contains, after_files=after_files)

    def query_delay(self, seconds: float) -> None:
        """Real time between the emptiness check and the first file, for every UNLOAD from now on."""
        self._call("faults.query_delay", seconds=seconds)

    def rows_per_file(self, rows: int) -> None:
        """How many rows an UNLOAD puts into one file (100,000 unless told otherwise)."""
        self._call("faults.rows_per_file", rows=rows)

    def forget_tokens(self) -> None:
        """Every token is new again, as if it had expired."""
        self._call("faults.forget_tokens")

    def forget_queries(self) -> None:
        """The API no longer knows any query submitted so far, as after 45 days; `EmbeddedAws.queries` still does."""
        self._call("faults.forget_queries")

    def advance_clock(self, seconds: float) -> None:
        """Moves the `Date` of every answer, and the `Last-Modified` of objects written from now on, forward."""
        self._call("faults.advance_clock", seconds=seconds)

    def lose_manifest(self, times: int = 1) -> None:
        """The next UNLOADs with files succeed, and name a data manifest that does not exist."""
        self._call("faults.lose_manifest", times=times)
