"""What the demo says: progress while it runs, a table at the end, and whether every number was right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Check:
    """One number that was measured, and what it must be."""

    what: str
    measured: int | str
    expected: int | str
    why: str = ""

    @property
    def ok(self) -> bool:
        return self.measured == self.expected


@dataclass(frozen=True, slots=True)
class Scene:
    """One part of the demo; `play` measures."""

    title: str
    play: Callable[[], list[Check]]


def new_console() -> Console:
    """For a terminal as wide as it is; else plain text that a log shows without breaking lines."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=130)


class Report:
    """Plays scenes and tells of them. A context manager: the progress line is there between enter and exit."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._played: list[tuple[Scene, list[Check], float]] = []
        self._failures: list[str] = []
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )

    def say(self, line: str) -> None:
        """One line of the story, with the seconds since the start."""
        seconds = f"{time.monotonic() - self._began:6.1f} s  "
        self._console.print(Text.assemble((seconds, "dim"), line))

    def play(self, scenes: Iterable[Scene]) -> None:
        """All scenes in turn, whether or not the numbers of one are right."""
        scenes = list(scenes)
        bar = self._progress.add_task("", total=len(scenes))
        for number, scene in enumerate(scenes, 1):
            self._console.print(Text(f"\n{number}/{len(scenes)}  {scene.title}", "bold"))
            self._progress.update(bar, description=scene.title)
            began = time.monotonic()
            checks = scene.play()
            seconds = time.monotonic() - began
            self._played.append((scene, checks, seconds))
            self._progress.advance(bar)
            wrong = [check.what for check in checks if not check.ok]
            self.say(f"{'WRONG: ' + ', '.join(wrong) if wrong else 'as expected'}; took {seconds:.1f} s")
        self._progress.remove_task(bar)

    def failed(self, why: str) -> None:
        """The demo could not go on; that is as wrong as a wrong number."""
        self._failures.append(f"FAILED  {why}")

    def conclude(self) -> int:
        """Prints the table, and what is wrong. Returns the exit status: 0 if all that was measured is right."""
        table = Table(show_edge=False, pad_edge=False)
        table.add_column("scene")
        table.add_column("what was measured")
        table.add_column("measured", justify="right")
        table.add_column("expected", justify="right")
        table.add_column("")
        for scene, checks, seconds in self._played:
            for index, check in enumerate(checks):
                name = f"{scene.title} ({seconds:.1f} s)" if index == 0 else ""
                expected = f"{_text(check.expected)}{f' = {check.why}' if check.why else ''}"
                mark = Text("ok", "green") if check.ok else Text("WRONG", "bold red")
                table.add_row(name, check.what, _text(check.measured), expected, mark)
            table.add_section()
        self._console.print()
        self._console.print(table)
        self._console.print(
            "Queries are counted in the embedded Athena's history, rows in the files in S3; never in our own metadata."
        )
        bad = [*self._failures, *self._wrong()]
        for sentence in bad:
            self._console.print(Text(sentence, "bold red"))
        if bad or not self._played:
            return 1
        seconds = time.monotonic() - self._began
        self._console.print(Text(f"Every number is as expected ({seconds:.0f} s).", "bold green"))
        return 0

    def _wrong(self) -> list[str]:
        return [
            f"WRONG  {scene.title}: {check.what}: measured {_text(check.measured)}, expected {_text(check.expected)}"
            for scene, checks, _ in self._played
            for check in checks
            if not check.ok
        ]

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def _text(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"
