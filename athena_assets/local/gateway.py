"""The front of the server: log, faults, then Athena, S3, Glue, Lambda, Step Functions or the rest of moto.

A fault holds its request in the request's own thread, with no lock held.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from athena_assets.local import moto_seams, s3_gate
from athena_assets.local.error_replies import json_error, service_error
from athena_assets.local.fault_rules import FaultRules, Rule
from athena_assets.local.faults import (
    ApplyLate,
    CutReply,
    Delay,
    DropReply,
    DropRequest,
    HoldReply,
    HoldRequest,
    Respond,
    RespondAfterApply,
)
from athena_assets.local.http_server import ConnectionDropped, Reply
from athena_assets.local.identify import Identity, identify
from athena_assets.local.lambda_api import LambdaApi
from athena_assets.local.request_log import DROPPED, Entry, RequestLog
from athena_assets.local.sandboxes import Sandboxes
from athena_assets.local.state_folder import StateFolder
from athena_assets.local.states_gate import LOST, StatesGate, is_task

CONTROL_PREFIX = "/_embedded/"

AthenaHandler = Callable[[str, bytes, str], Reply]
ControlHandler = Callable[[str, bytes], Reply]


class Gateway:
    """The application behind every connection."""

    def __init__(
        self,
        athena: AthenaHandler,
        control: ControlHandler,
        log: RequestLog,
        rules: FaultRules,
        sandboxes: Sandboxes,
        state: StateFolder | None = None,
    ) -> None:
        self._moto = moto_seams.MotoApps()
        self._lambda = LambdaApi(self._moto, sandboxes)
        self._states = StatesGate(self._moto.call)
        self._athena = athena
        self._control = control
        self._log = log
        self._rules = rules
        self._state = state

    def __call__(self, environ: dict[str, Any], body: bytes) -> Reply:
        path = str(environ.get("PATH_INFO", ""))
        if path.startswith(CONTROL_PREFIX):
            return self._control(path.removeprefix(CONTROL_PREFIX), body)
        identity = identify(environ, body)
        entry = self._log.open(identity, str(environ.get("HTTP_USER_AGENT", "")))
        try:
            reply = self._serve(entry, environ, body)
        except ConnectionDropped:
            entry.status = DROPPED
            if is_task(environ):
                return self._error(identity, 500, *LOST)
            raise
        except Exception:
            entry.status = 500
            raise
        entry.status = reply.status
        if reply.cut is not None and is_task(environ):
            return self._error(identity, 500, *LOST)
        return reply

    def _serve(self, entry: Entry, environ: dict[str, Any], body: bytes) -> Reply:
        rule = self._rules.catch(entry.identity)
        if rule is None:
            return self._apply(entry.identity, environ, body)
        return self._disturb(rule, entry, environ, body)

    def _disturb(self, rule: Rule, entry: Entry, environ: dict[str, Any], body: bytes) -> Reply:
        identity, action = entry.identity, rule.fault.action
        match action:
            case DropRequest():
                raise ConnectionDropped
            case Respond(status, code, message):
                return self._error(identity, status, code, message)
            case Delay(seconds):
                time.sleep(seconds)
            case HoldRequest():
                rule.released.wait()
            case ApplyLate():
                threading.Thread(target=self._apply_late, args=(rule, entry, environ, body), daemon=True).start()
                raise ConnectionDropped
            case DropReply() | HoldReply() | RespondAfterApply() | CutReply():
                pass
        reply = self._apply(identity, environ, body)
        match action:
            case DropReply():
                raise ConnectionDropped
            case HoldReply():
                self._rules.applied(rule)
                rule.released.wait()
            case RespondAfterApply(status, code, message):
                return self._error(identity, status, code, message)
            case CutReply(after):
                return replace(reply, cut=after)
            case _:
                pass
        return reply

    def _apply_late(self, rule: Rule, entry: Entry, environ: dict[str, Any], body: bytes) -> None:
        rule.released.wait()
        entry.status = self._apply(entry.identity, environ, body).status

    def _error(self, identity: Identity, status: int, code: str, message: str) -> Reply:
        if identity.service == "s3":
            return s3_gate.s3_error(status, code, message, identity.key or identity.bucket or "")
        return service_error(identity.service, status, code, message)

    def _apply(self, identity: Identity, environ: dict[str, Any], body: bytes) -> Reply:
        if identity.service == "athena":
            return self._athena(identity.operation, body, identity.region)
        if identity.service == "s3":
            return self._s3(identity, environ, body)
        if identity.service == "glue":
            return self._glue(identity, environ, body)
        # Other services may call back into this server (Step Functions' tasks do), so the lock is not held for them.
        if identity.service == "lambda":
            return self._lambda.serve(identity, environ, body)
        if identity.service == "states":
            return self._states.serve(identity, environ, body)
        return self._moto.call(identity.service, environ)

    def _s3(self, identity: Identity, environ: dict[str, Any], body: bytes) -> Reply:
        with moto_seams.LOCK:
            reply = s3_gate.serve(self._moto, identity, environ, body)
            if self._state is not None and reply.status < 300 and environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
                self._state.keep_s3(identity, body)
            return reply

    def _glue(self, identity: Identity, environ: dict[str, Any], body: bytes) -> Reply:
        with moto_seams.LOCK:
            if identity.operation == "UpdateTable":
                refusal = self._stale_version(identity.region, json.loads(body))
                if refusal is not None:
                    return refusal
            reply = self._moto.call(identity.service, environ)
            if self._state is not None and reply.status < 300:
                self._state.keep_glue(identity)
            return reply

    @staticmethod
    def _stale_version(region: str, request: dict[str, Any]) -> Reply | None:
        """`VersionId` is Glue's optimistic lock; moto ignores it."""
        expected = request.get("VersionId")
        if expected is None:
            return None
        name = str(request.get("TableInput", {}).get("Name"))
        table = moto_seams.glue_table(region, str(request.get("DatabaseName")), name)
        if table is None or str(table["VersionId"]) == str(expected):
            return None
        return json_error(
            400, "ConcurrentModificationException", "Update table failed due to concurrent modifications."
        )
