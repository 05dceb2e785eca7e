"""The control endpoints, `POST /_embedded/<call>`: a JSON object of arguments in, a JSON value out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from athena_assets.local import moto_seams, moto_task_seams
from athena_assets.local.athena_history import History
from athena_assets.local.athena_runner import Runner
from athena_assets.local.fault_rules import FaultRules
from athena_assets.local.faults import Fault
from athena_assets.local.http_server import Reply
from athena_assets.local.query_faults import Failure, QueryFaults, Requeue
from athena_assets.local.request_log import RequestLog
from athena_assets.local.s3_clock import CLOCK
from athena_assets.local.sandboxes import Sandboxes
from athena_assets.local.state_folder import StateFolder
from athena_assets.local.workgroups import WorkGroups

PROTOCOL = 1


class Control:
    """Everything that a test may do to the embedded AWS."""

    def __init__(
        self,
        log: RequestLog,
        rules: FaultRules,
        query_faults: QueryFaults,
        history: History,
        runner: Runner,
        workgroups: WorkGroups,
        sandboxes: Sandboxes,
        state: StateFolder | None = None,
    ) -> None:
        self._log = log
        self._rules = rules
        self._query_faults = query_faults
        self._history = history
        self._runner = runner
        self._workgroups = workgroups
        self._sandboxes = sandboxes
        self._state = state
        self._calls: dict[str, Callable[..., Any]] = {
            "ping": lambda: {"embedded_aws": PROTOCOL},
            "queries": lambda: [execution.record() for execution in history.all()],
            "functions": sandboxes.records,
            "requests": log.select,
            "reset": self._reset,
            "faults.add": lambda fault: rules.add(Fault.from_json(fault)),
            "faults.remove": self._remove,
            "faults.clear": self._clear,
            "faults.hits": rules.hits,
            "faults.release": self._release,
            "faults.hold_queries": query_faults.hold,
            "faults.held": query_faults.held,
            "faults.fail_queries": lambda **rule: query_faults.add_failure(Failure(**rule)),
            "faults.requeue": lambda **rule: query_faults.add_requeue(Requeue(**rule)),
            "faults.query_delay": self._query_delay,
            "faults.rows_per_file": self._rows_per_file,
            "faults.forget_tokens": history.forget_tokens,
            "faults.forget_queries": history.forget_queries,
            "faults.advance_clock": lambda seconds: CLOCK.advance(float(seconds)),
            "faults.lose_manifest": query_faults.lose_manifests,
        }

    def __call__(self, call: str, body: bytes) -> Reply:
        """400 with the reason for an unknown call or unfit arguments."""
        try:
            status, document = 200, self._calls[call](**json.loads(body or b"{}"))
        except (KeyError, TypeError, ValueError) as error:
            status, document = 400, f"{call}: {type(error).__name__}: {error}"
        return Reply(status, [("Content-Type", "application/json")], json.dumps(document).encode())

    def _clear(self) -> None:
        self._rules.clear()
        self._query_faults.clear()
        CLOCK.reset()

    def _remove(self, rule_id: str) -> None:
        if self._query_faults.is_hold(rule_id):
            self._query_faults.release(rule_id)
        else:
            self._rules.remove(rule_id)

    def _release(self, rule_id: str) -> None:
        if self._query_faults.is_hold(rule_id):
            self._query_faults.release(rule_id)
        else:
            self._rules.release(rule_id)

    def _query_delay(self, seconds: float) -> None:
        self._query_faults.delay = float(seconds)

    def _rows_per_file(self, rows: int) -> None:
        if rows < 1:
            raise ValueError("at least one row a file")
        self._query_faults.rows_per_file = int(rows)

    def _reset(self) -> None:
        """Queries are stopped before the stores are emptied: a PUT asks under the lock whether its query was stopped.

        Executions are stopped before functions are: else they would see them fail, and call them again. Functions are
        stopped again at the end, for a held Invoke that is let go may still have found its function.
        """
        executions = self._history.clear()
        for execution in executions:
            self._runner.stop(execution)
        moto_task_seams.stop_executions()
        self._sandboxes.stop_all()
        self._clear()
        with moto_seams.LOCK:
            moto_seams.reset()
            self._workgroups.clear()
            if self._state is not None:
                self._state.clear()
        self._sandboxes.stop_all()
        self._log.clear()
