"""`unload` and `takeover`: publishing."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import click

from athena_assets.cli.exits import Exit, exit_of
from athena_assets.cli.report import error_document, outcome_document, outcome_line
from athena_assets.cli.session import EPILOG, Session, also_here
from athena_assets.cli.targets import find_targets, label
from athena_assets.core.policy import LEASE_SECONDS
from athena_assets.core.request import Published, Reused, Skipped
from athena_assets.core.target import Target
from athena_assets.errors import AthenaAssetsError
from athena_assets.step_functions.publisher import StepFunctionsPublisher
from athena_assets.unload import Publisher

REQUEST_ID = click.option(
    "--request-id", metavar="ID", help="Identifies this wish: a retry with the same id finds its own publication."
)
STATE_MACHINE = click.option(
    "--state-machine",
    metavar="ARN",
    envvar="ATHENA_ASSETS_STATE_MACHINE",
    show_envvar=True,
    help="Let an execution of this Step Functions state machine do it (docs/step-functions.md).",
)
LEASE = click.option(
    "--lease-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=LEASE_SECONDS,
    show_default=True,
    help="After how much silence another caller may replace this one.",
)


class Outcomes:
    """Says what became of each request as soon as it is known, and remembers the first that is not done."""

    def __init__(self, session: Session) -> None:
        self.code = Exit.DONE
        self._session = session
        self._documents: list[dict[str, object]] = []
        session.document["results"] = self._documents

    def add(
        self, target: Target, partition: str | None, result: Published | Reused | Skipped | AthenaAssetsError
    ) -> None:
        name = label(target, partition)
        document: dict[str, object] = {"target": target.name, "partition": partition, "location": target.location}
        if isinstance(result, AthenaAssetsError):
            document |= {"outcome": "failed", "error": error_document(result)}
            self._session.tell(f"failed     {name}: {type(result).__name__}: {result}")
            self._fail(exit_of(type(result)))
        else:
            document["location"] = str(target.location_for(partition))
            document |= outcome_document(result)
            self._session.say(outcome_line(name, result))
            if isinstance(result, Skipped):
                self._fail(Exit.BUSY)
        self._documents.append(document)

    def _fail(self, code: Exit) -> None:
        if self.code is Exit.DONE:
            self.code = code


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of every target that the command line names."""

    session: Session
    publisher: Publisher
    outcomes: Outcomes
    force: bool
    request_id: str | None

    def publish(self, target: Target, partition: str | None, *, take_over: bool = False) -> None:
        try:
            outcome = self.publisher.unload(
                target,
                partition=partition,
                request_id=self.request_id,
                force=self.force,
                observe=lambda line: self._tell(target, partition, line),
                take_over=take_over,
            )
        except AthenaAssetsError as error:
            self.outcomes.add(target, partition, error)
        else:
            self.outcomes.add(target, partition, outcome)

    def publish_partitions(self, target: Target, partitions: Sequence[str]) -> None:
        """All at once. What is wrong with the target or the workgroup ends every one of them before its start."""
        results = self.publisher.unload_partitions(
            target,
            partitions,
            request_id=None if self.request_id is None else self._id_of,
            force=self.force,
            observe=lambda partition, line: self._tell(target, partition, line),
        )
        try:
            for partition, result in results:
                self.outcomes.add(target, partition, result)
        except AthenaAssetsError as error:
            self.outcomes.add(target, None, error)
        finally:
            if isinstance(results, Generator):
                results.close()  # an interruption may strike between two steps: then this stops the queries

    def _id_of(self, partition: str) -> str:
        return f"{self.request_id}/partition={partition}"

    def _tell(self, target: Target, partition: str | None, line: str) -> None:
        self.session.tell(f"{label(target, partition)}: {line}")


@click.command(epilog=EPILOG)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option(
    "--partition", "partitions", metavar="KEY", multiple=True, help="Publish this partition; several run at once."
)
@click.option("--force", is_flag=True, help="Run the query anew, whatever is published; join nobody.")
@REQUEST_ID
@LEASE
@STATE_MACHINE
@also_here
@click.pass_obj
def unload(
    session: Session,
    targets: Sequence[str],
    partitions: Sequence[str],
    force: bool,
    request_id: str | None,
    lease_seconds: float,
    state_machine: str | None,
) -> int:
    """Publish targets once each, and wait until readers can read them.

    A TARGET is MODULE:NAME of a Target or of a list of them, or a target's name (see --from). Several targets are
    published one after the other; one that fails ends none of the others. The register is shared with Dagster: what
    either has published, or is publishing, the other reuses or joins.
    """
    found = [target for name in targets for target in find_targets(name, session.source)]
    for target in found:
        for partition in partitions or (None,):
            target.location_for(partition)  # wrong keys are told before anything is started
    publisher = session.publisher(lease_seconds)
    if state_machine is not None:
        publisher = StepFunctionsPublisher(session.settings, state_machine=state_machine, lease_seconds=lease_seconds)
    wish = Wish(session, publisher, Outcomes(session), force, request_id)
    for target in found:
        if partitions:
            wish.publish_partitions(target, partitions)
        else:
            wish.publish(target, None)
    return wish.outcomes.code


@click.command(epilog=EPILOG)
@click.argument("target", metavar="TARGET")
@click.option("--partition", metavar="KEY", help="The partition whose slot is taken over.")
@REQUEST_ID
@LEASE
@also_here
@click.pass_obj
def takeover(session: Session, target: str, partition: str | None, request_id: str | None, lease_seconds: float) -> int:
    """Publish a target, finishing the present owner's work at once.

    For a person who knows that the owner is dead: nobody waits for its lease to run out. If it lives after all, that
    costs work, never a duplicate. See `status` for who holds the slot.
    """
    found = find_targets(target, session.source)
    if len(found) != 1:
        raise click.UsageError(f"{target!r} means {len(found)} targets; name one.")
    wish = Wish(session, session.publisher(lease_seconds), Outcomes(session), False, request_id)
    wish.publish(found[0], partition, take_over=True)
    return wish.outcomes.code
