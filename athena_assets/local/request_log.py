"""The bounded, ordered log of requests."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from athena_assets.local.identify import Identity

LIMIT = 200_000
KEY_LIMIT = 2_048
DROPPED = -1


@dataclass(slots=True)
class Entry:
    """A request while it is being served; `status` is set once, and again where it is applied late."""

    sequence: int
    identity: Identity
    user_agent: str
    status: int = 0

    def as_record(self) -> dict[str, Any]:
        """JSON form of a `RequestRecord`."""
        key = self.identity.key
        return {
            "sequence": self.sequence,
            "service": self.identity.service,
            "operation": self.identity.operation,
            "bucket": self.identity.bucket,
            "key": None if key is None else key[:KEY_LIMIT],
            "status": self.status,
            "user_agent": self.user_agent,
        }


class RequestLog:
    """Keeps the last `LIMIT` requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: deque[Entry] = deque(maxlen=LIMIT)
        self._sequence = itertools.count(1)

    def open(self, identity: Identity, user_agent: str) -> Entry:
        """Gives the request its place in the order."""
        with self._lock:
            entry = Entry(next(self._sequence), identity, user_agent)
            self._entries.append(entry)
            return entry

    def select(self, service: str | None, operation: str | None, key_contains: str | None) -> list[dict[str, Any]]:
        """Matching requests, oldest first."""
        with self._lock:
            entries = list(self._entries)
        return [
            entry.as_record()
            for entry in entries
            if service in (None, entry.identity.service)
            and operation in (None, entry.identity.operation)
            and (key_contains is None or key_contains in (entry.identity.key or ""))
        ]

    def clear(self) -> None:
        """Forgets all; the numbering goes on."""
        with self._lock:
            self._entries.clear()
