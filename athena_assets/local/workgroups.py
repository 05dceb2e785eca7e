"""Workgroups: where results go, and whether a query may say otherwise.

Faithful: `primary` exists and enforces nothing; a new workgroup enforces its settings unless told otherwise; an
enforced location overrides the query's. Kept and shown, but without effect: encryption, cut-offs, metrics, managed
results.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from athena_assets.local.athena_errors import RequestRefused
from athena_assets.local.state_folder import StateFolder

PRIMARY = "primary"
_DEFAULTS: dict[str, Any] = {
    "EnforceWorkGroupConfiguration": True,
    "PublishCloudWatchMetricsEnabled": False,
    "RequesterPaysEnabled": False,
    "EngineVersion": {"SelectedEngineVersion": "AUTO", "EffectiveEngineVersion": "Athena engine version 3"},
}


@dataclass(frozen=True, slots=True)
class WorkGroup:
    """One workgroup; replaced as a whole when it changes."""

    name: str
    state: str
    description: str
    created_at: float
    configuration: dict[str, Any]

    @property
    def location(self) -> str | None:
        """The result location that the workgroup sets."""
        return (self.configuration.get("ResultConfiguration") or {}).get("OutputLocation") or None

    @property
    def enforces(self) -> bool:
        """Whether its settings override the query's."""
        return bool(self.configuration.get("EnforceWorkGroupConfiguration"))

    def result_location(self, requested: str | None) -> str:
        """The folder for a query's result, with a slash at its end. `RequestRefused` if nobody names one."""
        chosen = self.location if self.enforces and self.location else requested or self.location
        if not chosen:
            raise RequestRefused("No output location provided. An output location is required either through the"
                                 " Workgroup result configuration setting or as an API input.")  # fmt: skip
        if not chosen.startswith("s3://") or not chosen.removeprefix("s3://").partition("/")[0]:
            raise RequestRefused(f"outputLocation is not a valid S3 path: {chosen}")
        return chosen if chosen.endswith("/") else f"{chosen}/"

    def describe(self) -> dict[str, Any]:
        """`WorkGroup` of the API."""
        return {
            "Name": self.name,
            "State": self.state,
            "Description": self.description,
            "CreationTime": self.created_at,
            "Configuration": self.configuration,
        }


class WorkGroups:
    """All workgroups."""

    def __init__(self, state: StateFolder | None = None) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, WorkGroup] = {}
        self._state = state
        self.clear()
        if state is not None:
            self._groups |= {name: WorkGroup(**fields) for name, fields in state.read("workgroup").items()}

    def clear(self) -> None:
        """Only `primary` is left."""
        with self._lock:
            configuration = {**_DEFAULTS, "EnforceWorkGroupConfiguration": False}
            self._groups = {PRIMARY: WorkGroup(PRIMARY, "ENABLED", "", time.time(), configuration)}

    def create(self, name: str, description: str, configuration: dict[str, Any]) -> None:
        """`RequestRefused` if it exists."""
        with self._lock:
            if name in self._groups:
                raise RequestRefused("WorkGroup is already created")
            self._set(WorkGroup(name, "ENABLED", description, time.time(), {**_DEFAULTS, **configuration}))

    def _set(self, group: WorkGroup) -> None:
        if self._state is not None:
            self._state.put("workgroup", group.name, asdict(group))
        self._groups[group.name] = group

    def get(self, name: str) -> WorkGroup:
        """`RequestRefused` if it does not exist."""
        with self._lock:
            if name not in self._groups:
                raise RequestRefused(f"WorkGroup {name} is not found.")
            return self._groups[name]

    def update(self, name: str, state: str | None, description: str | None, updates: dict[str, Any]) -> None:
        """The parts of UpdateWorkGroup that matter for where results go."""
        group = self.get(name)
        configuration = dict(group.configuration)
        result_updates = updates.get("ResultConfigurationUpdates") or {}
        known = {"ResultConfigurationUpdates", "EnforceWorkGroupConfiguration", "PublishCloudWatchMetricsEnabled"}
        if set(updates) - known or set(result_updates) - {"OutputLocation", "RemoveOutputLocation"}:
            raise RequestRefused("embedded AWS: UpdateWorkGroup changes only the output location and its enforcement")
        result = dict(configuration.get("ResultConfiguration") or {})
        if result_updates.get("RemoveOutputLocation"):
            result.pop("OutputLocation", None)
        if "OutputLocation" in result_updates:
            result["OutputLocation"] = result_updates["OutputLocation"]
        configuration["ResultConfiguration"] = result
        for flag in ("EnforceWorkGroupConfiguration", "PublishCloudWatchMetricsEnabled"):
            if flag in updates:
                configuration[flag] = updates[flag]
        changed = WorkGroup(
            name,
            state or group.state,
            group.description if description is None else description,
            group.created_at,
            configuration,
        )
        with self._lock:
            self._set(changed)

    def delete(self, name: str) -> None:
        """`RequestRefused` for `primary` and for unknown names."""
        self.get(name)
        if name == PRIMARY:
            raise RequestRefused("The primary workgroup cannot be deleted")
        with self._lock:
            if self._state is not None:
                self._state.remove("workgroup", name)
            self._groups.pop(name, None)

    def all(self) -> list[WorkGroup]:
        """By name."""
        with self._lock:
            return [self._groups[name] for name in sorted(self._groups)]
