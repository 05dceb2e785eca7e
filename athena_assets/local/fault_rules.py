"""The server's side of request faults: which request a rule catches, and the waiting."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field

from athena_assets.local.faults import Fault, HoldReply
from athena_assets.local.identify import Identity


@dataclass(slots=True)
class Rule:
    """A fault with its counters; changed only under `FaultRules`' lock. `caught` spends `times`, `hits` is told."""

    rule_id: str
    fault: Fault
    seen: int = 0
    caught: int = 0
    hits: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def matches(self, identity: Identity) -> bool:
        """Whether the request is one that this rule counts."""
        fault = self.fault
        return (
            fault.service in (None, identity.service)
            and fault.operation in (None, identity.operation)
            and (fault.key_contains is None or fault.key_contains in (identity.key or ""))
        )


class FaultRules:
    """All rules in order of arrival.

    A request is caught by the first rule that matches and is neither skipping nor spent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: dict[str, Rule] = {}
        self._ids = itertools.count(1)

    def add(self, fault: Fault) -> str:
        """Takes effect for every request that is identified after this returns."""
        with self._lock:
            rule = Rule(f"fault-{next(self._ids)}", fault)
            self._rules[rule.rule_id] = rule
            return rule.rule_id

    def catch(self, identity: Identity) -> Rule | None:
        """Counts the request against the rules; the rule that caught it, if any."""
        with self._lock:
            for rule in self._rules.values():
                if not rule.matches(identity):
                    continue
                rule.seen += 1
                if rule.seen <= rule.fault.skip:
                    continue
                if rule.fault.times is not None and rule.caught >= rule.fault.times:
                    continue
                rule.caught += 1
                if not isinstance(rule.fault.action, HoldReply):
                    rule.hits += 1
                return rule
            return None

    def applied(self, rule: Rule) -> None:
        """Counts a request whose reply is held: only now does whoever asks for `hits` find it applied."""
        with self._lock:
            rule.hits += 1

    def hits(self, rule_id: str) -> int:
        """How many requests the rule has caught, those with a held reply once they are applied.

        `KeyError` if it was removed.
        """
        with self._lock:
            return self._rules[rule_id].hits

    def release(self, rule_id: str) -> None:
        """Lets all requests go that the rule holds, now and later."""
        with self._lock:
            self._rules[rule_id].released.set()

    def remove(self, rule_id: str) -> None:
        """Also releases what the rule holds."""
        with self._lock:
            self._rules.pop(rule_id).released.set()

    def clear(self) -> None:
        """Removes every rule."""
        with self._lock:
            for rule in self._rules.values():
                rule.released.set()
            self._rules.clear()
