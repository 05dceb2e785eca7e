"""Long random histories of the real protocol over one world, and whether it kept its promises.

    python -m athena_assets_tests.simulation.simulator --seed 1 --schedules 1000

A seed replays exactly.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from athena_assets.core.target import Guard
from athena_assets_tests.simulation.invariants import Violation
from athena_assets_tests.simulation.load import Size, Way
from athena_assets_tests.simulation.schedule import Simulation
from athena_assets_tests.simulation.weather import Chance, Trouble


def simulate(chance: Chance, way: Way = Way.STAGED, size: Size | None = None, guard: Guard = Guard.OFF) -> Simulation:
    """One schedule, all of whose decisions come from `chance`.

    Raises:
        Violation: a promise was broken.
    """
    simulation = Simulation(chance, way, size, guard)
    simulation.run()
    return simulation


@dataclass(slots=True)
class Report:
    """What has run."""

    way: Way
    schedules: int = 0
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    troubles: Counter[Trouble] = field(default_factory=Counter)

    def add(self, simulation: Simulation) -> None:
        self.schedules += 1
        self.steps += len(simulation.timeline.story)
        self.counts.update(simulation.ledger.counts)
        self.counts.update(simulation.timeline.calls)
        self.troubles.update(simulation.timeline.counts)

    def __str__(self) -> str:
        lines = [f"{self.way}: {self.schedules} schedules, {self.steps} steps"]
        for title, counted in (("what happened", self.counts), ("troubles", self.troubles)):
            lines.append(f"{title}:")
            lines += [f"  {times:8}  {name}" for name, times in sorted(counted.items())]
        return "\n".join(lines)


def run(way: Way, seeds: range, size: Size | None = None, guard: Guard = Guard.OFF) -> Report:
    """The schedules of these seeds.

    Raises:
        Violation: with its seed as a note.
    """
    report = Report(way)
    for seed in seeds:
        try:
            report.add(simulate(random.Random(seed), way, size, guard))
        except Exception as error:
            error.add_note(f"seed {seed}, {way}, guard {guard}")
            raise
    return report


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="simulator", description="Random histories of the protocol.")
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--way", type=Way, choices=list(Way), default=Way.STAGED, help="of publishing")
    parser.add_argument("--guard", type=Guard, choices=list(Guard), default=Guard.OFF, help="of all targets")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        report = run(chosen.way, range(chosen.seed, chosen.seed + chosen.schedules), guard=chosen.guard)
    except Violation as violation:
        sys.stdout.write("\n".join([f"VIOLATION {violation}", *violation.__notes__, ""]))
        return 1
    sys.stdout.write(f"{report}\nviolations: 0\n{time.monotonic() - began:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
