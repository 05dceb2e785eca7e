"""Every step that the world and the callers can take, from the beginning to the end of a scenario.

States are equal if they differ only in the names of what was drawn at random (ids, tokens, query ids, ETags). What may
go wrong is counted: a scenario has a budget for each kind of fault, and within it every fault strikes at every moment.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from athena_assets_tests.simulation.invariants import Violation
from athena_assets_tests.simulation.states import Fault, Move, Node, Scenario
from athena_assets_tests.simulation.steps import Steps

STUCK = Violation("I4", "from here the callers can never end")


@dataclass(slots=True)
class Report:
    """What an exploration found. `exhausted`: no state within the budget was left out."""

    scenario: str
    states: int = 0
    steps: int = 0
    depth: int = 0
    finished: int = 0
    exhausted: bool = False
    violation: Violation | None = None
    trace: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """As plain values."""
        violation = self.violation
        return {
            "scenario": self.scenario,
            "states": self.states,
            "depth": self.depth,
            "exhausted": self.exhausted,
            "invariant": violation and violation.invariant,
            "what": violation and violation.what,
            "trace": list(self.trace),
        }

    def __str__(self) -> str:
        found = "no violation" if self.violation is None else f"VIOLATION {self.violation}"
        whole = "exhausted" if self.exhausted else "not exhausted"
        line = (
            f"{self.scenario}: {self.states} states, {self.steps} steps, depth {self.depth}, {self.finished} ends, "
            f"{whole}, {found}"
        )
        return "\n".join([line, *(f"  {number:3} {step}" for number, step in enumerate(self.trace, 1))])


class Explorer:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._steps = Steps(scenario)
        self._digest = self._steps.names.digest

    def explore(self, limit: int = 10_000_000) -> Report:
        """Breadth first, so that the trace of a violation is a shortest one. Stops at the first, or at `limit`."""
        report = Report(self.scenario.name)
        start = self._steps.start()
        seen = {self._digest(start): 0}
        parents: list[tuple[int, str]] = [(-1, "")]
        easy: list[list[int]] = [[]]  # steps without a fault, backwards
        ends: list[int] = []
        queue = deque([(0, 0, start)])
        report.states = 1
        while queue:
            index, depth, node = queue.popleft()
            report.depth = max(report.depth, depth)
            if all(local.ended for local in node.locals):
                ends.append(index)
            for move in self._steps.moves(node):
                report.steps += 1
                digest = self._digest(move.node)
                target = seen.get(digest)
                if target is None:
                    target = seen[digest] = report.states
                    report.states += 1
                    parents.append((index, move.label))
                    easy.append([])
                    try:
                        self._check(node, move)
                    except Violation as violation:
                        return self._failed(report, violation, parents, target)
                    queue.append((target, depth + 1, move.node))
                if not move.faults:
                    easy[target].append(index)
            if report.states >= limit:
                break
        report.finished = len(ends)
        report.exhausted = not queue
        if report.exhausted:
            stuck = _unreachable(ends, easy)
            if stuck is not None:
                return self._failed(report, STUCK, parents, stuck)
        return report

    def replay(self, labels: tuple[str, ...]) -> Violation | None:
        """Takes the steps of a trace again; what they violate, if they do.

        Raises:
            ValueError: a step can't be taken, so that this is not a trace of this scenario.
        """
        node = self._steps.start()
        for number, label in enumerate(labels, 1):
            for move in self._steps.moves(node):
                if move.label == label:
                    break
            else:
                raise ValueError(f"step {number} is not possible: {label}")
            try:
                self._check(node, move)
            except Violation as violation:
                return violation
            node = move.node
        return None if self._can_end(node) else STUCK

    def _can_end(self, start: Node) -> bool:
        """Whether steps without a fault lead from here to the end of all callers."""
        seen = {self._digest(start)}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if all(local.ended for local in node.locals):
                return True
            for move in self._steps.moves(node):
                digest = self._digest(move.node)
                if not move.faults and digest not in seen:
                    seen.add(digest)
                    queue.append(move.node)
        return False

    def _failed(self, report: Report, violation: Violation, parents: list[tuple[int, str]], index: int) -> Report:
        report.violation = violation
        steps = []
        while index > 0:
            index, label = parents[index]
            steps.append(label)
        report.trace = tuple(reversed(steps))
        return report

    def _check(self, before: Node, move: Move) -> None:
        invariants, node = self.scenario.invariants, move.node
        invariants.always(node.world)
        for program, earlier, local in zip(self._steps.programs, before.locals, node.locals, strict=True):
            if local.ended and not earlier.ended:
                invariants.told(node.world, program.name, local.outcome)
        if all(local.ended for local in node.locals):
            spent = {
                fault: self.scenario.faults.get(fault, 0) - left for fault, left in zip(Fault, node.left, strict=True)
            }
            outcomes = {
                program.name: local.outcome for program, local in zip(self._steps.programs, node.locals, strict=True)
            }
            invariants.finally_(node.world, outcomes, spent)


def _unreachable(ends: list[int], easy: list[list[int]]) -> int | None:
    """A state from which no step without a fault leads to an end; None if there is none."""
    reached = bytearray(len(easy))
    queue = list(ends)
    for each in ends:
        reached[each] = 1
    while queue:
        for before in easy[queue.pop()]:
            if not reached[before]:
                reached[before] = 1
                queue.append(before)
    return next((index for index, found in enumerate(reached) if not found), None)
