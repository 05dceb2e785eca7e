"""When does the register already answer a request?"""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets import errors
from athena_assets.core import policy
from athena_assets.core.register import Mode, Publication, Register, State
from athena_assets.core.request import Outcome, Published, Request, Reused
from athena_assets.core.target import OnConflict, Reuse


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one caller accepts as its answer.

    Args:
        request: the wish.
        generation: what it wants published, by the upstream versions that it last read.
        reusable: the query is deterministic and every one of those versions is known.
        since: a publication or failure with this fence or a higher one was not finished when the caller came.
        adopted: the fence under which the caller itself finished somebody else's attempt.
        waited: seconds that it has spent on others' work.
    """

    request: Request
    generation: str
    reusable: bool
    since: int
    adopted: int | None
    waited: float


def answered_by(found: Register, expected: Expectation, forgotten: Publication | None = None) -> Outcome | None:
    """The outcome that the register holds for this caller, or None if it has to go on.

    `forgotten` is the request's own publication, if the chain had to tell.

    Raises:
        PublicationLost: our own publication was committed and its files vanished.
        QueryFailed: the attempt that this caller waited for, or that was its own, has finally failed.
        RequestConflict: the request id has published something else before.
    """
    remembered = found.remembered + (() if forgotten is None else (forgotten,))
    publishing = found.publication if found.state is State.PUBLISHING else None
    own = _own_publication(remembered, expected)
    if own is not None and own is not publishing:
        return Published(
            own,
            attempts=own.attempt,
            waited=expected.waited,
            adopted=own.fence == expected.adopted,
            superseded=own is not found.publication,
        )
    if publishing is not None:
        return None  # it is not in place yet, and no other will stay there
    request, failure = expected.request, found.failure
    if failure is not None and failure.request == request.id and failure.fence >= expected.since:
        raise policy.failure_error(request.location, failure)  # whoever finished our attempt told nobody
    if request.force:
        return None
    for publication in remembered:
        if publication.lost or publication.generation != expected.generation or publication.fence < expected.since:
            continue
        if not _where_readers_look(publication, expected):
            continue
        superseded = publication is not found.publication
        if publication.fence == expected.adopted:
            return Published(
                publication,
                attempts=publication.attempt,
                waited=expected.waited,
                adopted=True,
                superseded=superseded,
            )
        if request.joins:
            return Reused(publication, waited=expected.waited, joined=True, superseded=superseded)
    if found.publication is not None and _may_reuse(found.publication, expected):
        return Reused(found.publication, waited=expected.waited)
    if (
        failure is not None
        and failure.generation == expected.generation
        and failure.fence >= expected.since
        and request.joins
    ):
        raise policy.failure_error(request.location, failure)
    return None


def _own_publication(remembered: tuple[Publication, ...], expected: Expectation) -> Publication | None:
    """The publication of this very request: a retry always finds it and never publishes again over a later one."""
    request = expected.request
    for publication in remembered:
        if publication.request != request.id:
            continue
        if publication.definition != request.definition:
            raise errors.RequestConflict(
                request.location,
                f"request {request.id} has already published another query, format or location "
                f"(query {publication.query_id}).",
                not_done="No query was started and nothing was published.",
                next_step="Use a new request id for a changed target.",
            )
        if not publication.lost:
            return publication
        if publication.fence >= expected.since:
            raise errors.PublicationLost(
                request.location,
                f"files of query {publication.query_id} vanished from staging and from the location before the swap "
                "was complete.",
                not_done="Readers see none, or part, of the result.",
                next_step="Publish again: the query runs anew. Check lifecycle rules and who deletes under "
                "_athena_assets/.",
            )
    return None


def _may_reuse(publication: Publication, expected: Expectation) -> bool:
    """Whether a finished publication answers, whoever made it."""
    if publication.lost or publication.generation != expected.generation:
        return False
    if not _where_readers_look(publication, expected):
        return False
    if publication.fence >= expected.since and expected.request.target.on_conflict is OnConflict.QUEUE:
        return False  # it was in flight: who queues wants a query of its own
    if expected.request.reuse is Reuse.AUTO:
        return publication.reusable and expected.reusable
    return expected.request.reuse is Reuse.ALWAYS


def _where_readers_look(publication: Publication, expected: Expectation) -> bool:
    """Whether it was published for readers of the same kind: at the location, or by a pointer."""
    return (publication.directory is not None) == (expected.request.target.mode is Mode.POINTER)


def in_flight(found: Register | None) -> int:
    """The lowest fence of a publication that is not finished at this moment."""
    if found is None:
        return 1
    if found.state is State.FREE:
        return found.fence + 1
    if found.state is State.PUBLISHING and found.publication is not None:
        return found.publication.fence
    return found.fence


def describe(found: Register) -> str:
    """Who holds the slot, for people."""
    owner = found.owner
    if owner is None:
        return "nobody"
    run = f", run {owner.run}" if owner.run else ""
    query = f", query {found.attempt.query_id}" if found.attempt is not None and found.attempt.query_id else ""
    return f"process {owner.pid} on {owner.host}{run}{query}, fence {found.fence}"
