"""`python -m athena_assets_tests.simulation` explores scenarios and prints what was found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from athena_assets_tests.simulation import guarded, scenarios
from athena_assets_tests.simulation.explorer import Explorer

ALL = {**scenarios.SMALL, **scenarios.LARGE, **guarded.SMALL, **guarded.LARGE}


@click.command()
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option("--json", "as_json", is_flag=True, help="One object a line, with the trace of a violation.")
@click.option("--replay", type=click.Path(path_type=Path), help="Take the steps of such an object's trace again.")
def main(names: tuple[str, ...], as_json: bool, replay: Path | None) -> None:
    """Explores the scenarios of that name; without a name, all. Exits with 1 if an invariant is violated."""
    if replay is not None:
        told = json.loads(replay.read_text())
        again = Explorer(ALL[told["scenario"]]()).replay(tuple(told["trace"]))
        click.echo("no violation" if again is None else f"{again}")
        sys.exit(again is not None)
    violated = False
    for name in names or ALL:
        if name not in ALL:
            raise click.UsageError(f"There is no scenario {name!r}. There are: {', '.join(ALL)}.")
        report = Explorer(ALL[name]()).explore()
        violated |= report.violation is not None
        click.echo(json.dumps(report.told()) if as_json else str(report))
    sys.exit(violated)


main()
