"""`orphans`: queries of ours that run for nobody."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from athena_assets.aws.replies import Refusal, question
from athena_assets.aws.running import running_queries
from athena_assets.aws.session import AwsClients
from athena_assets.cli.exits import Exit
from athena_assets.cli.report import age_text, table
from athena_assets.cli.session import EPILOG, Session, also_here
from athena_assets.cli.targets import targets_of
from athena_assets.core.effects import RunningQuery, Unanswered
from athena_assets.core.location import InvalidLocation, Location, parse_location
from athena_assets.core.orphans import names
from athena_assets.core.statement import Label, parse_label
from athena_assets.errors import AthenaAssetsError
from athena_assets.unload import Publisher


@dataclass(frozen=True, slots=True)
class _Ours:
    """A running query that carries our label. `named`: its slot's register waits for it; None: that is not known."""

    query: RunningQuery
    label: Label
    named: bool | None


@click.command(epilog=EPILOG)
@click.option(
    "--in",
    "workgroups",
    metavar="WORKGROUP",
    multiple=True,
    help="Where to look; repeatable. Without it: --workgroup, and those that the targets name.",
)
@click.option("--stop", is_flag=True, help="Stop them. Without this, they are only listed.")
@also_here
@click.pass_obj
def orphans(session: Session, workgroups: Sequence[str], stop: bool) -> int:
    """List running queries of ours that no register names, and stop them where asked.

    Such a query was superseded: its result will never be published, and costs what it scans. A query that a register
    names is somebody's, or waits for the next caller to adopt it. Every query is known by the label in its text.
    Exit status 1 while there are any, or where not all of the history could be looked through.
    """
    clients = AwsClients(session.settings)
    chosen = list(dict.fromkeys(workgroups or _workgroups(session)))
    running = running_queries(clients, chosen)
    ours = _ours(session, session.publisher(), running.queries)
    # What ended since, in the ordinary way, was no orphan.
    suspects = {each.query.query_id for each in ours if each.named is False}
    still = {each.query_id for each in running_queries(clients, chosen).queries} if suspects else set()
    found = [each for each in ours if each.query.query_id in suspects & still]
    session.document |= {
        "workgroups": chosen,
        "orphans": [asdict(each.query) | {"slot": each.label.slot, "fence": each.label.fence} for each in found],
        "running": len(ours),
        "cut_short": dict(running.cut_short),
        "stopped": [],
    }
    for workgroup, why in running.cut_short.items():
        session.tell(f"{workgroup} was not looked through to the end: {why}.")
    session.say(f"{', '.join(chosen)}: our queries that run: {len(ours)}; orphans: {len(found)}.")
    if found:
        for line in table(("QUERY", "STATE", "AGE", "WORKGROUP", "FENCE", "SLOT"), [_row(each) for each in found]):
            session.say(line)
    left = [each for each in found if not (stop and _stopped(session, clients, each))]
    if left and stop:
        session.tell(f"Not stopped: {len(left)}. Try again.")
    return Exit.NEGATIVE if left or running.cut_short else Exit.DONE


def _stopped(session: Session, clients: AwsClients, each: _Ours) -> bool:
    """Whether Athena took the request to stop it. One that ends by itself meanwhile is none any longer."""
    query_id = each.query.query_id
    answer = question(each.label.slot, clients.athena.stop_query_execution, {"QueryExecutionId": query_id})
    if isinstance(answer, Refusal | Unanswered):
        session.tell(f"{query_id} was not stopped: {answer}.")
        return False
    session.document["stopped"].append(query_id)
    session.say(f"stopped {query_id}")
    return True


def _workgroups(session: Session) -> list[str]:
    named = (target.workgroup for target in targets_of(session.source))
    return [session.workgroup, *(each for each in named if each is not None)]


def _ours(session: Session, publisher: Publisher, queries: Sequence[RunningQuery]) -> list[_Ours]:
    """The registers are read after the queries were listed: what runs was recorded before it was started."""
    found = []
    for query in queries:
        label = parse_label(query.text)
        location = None if label is None else _location(label)
        if label is None or location is None:
            continue
        try:
            named: bool | None = names(publisher.status(location), query.query_id, query.text)
        except AthenaAssetsError as error:
            session.tell(f"{query.query_id} is left out: {error}")
            named = None
        found.append(_Ours(query, label, named))
    return found


def _location(label: Label) -> Location | None:
    try:
        return parse_location(label.slot)
    except InvalidLocation:
        return None  # somebody else's comment that looks like our label


def _row(each: _Ours) -> tuple[str, ...]:
    query, label = each.query, each.label
    age = age_text(max(time.time() - query.submitted, 0.0))
    return (query.query_id, query.state, age, query.workgroup, str(label.fence), label.slot)
