"""The workgroup's settings, read before money is spent, and the result location that follows from them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from athena_assets import errors
from athena_assets.aws.replies import Refusal, question
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import Unanswered
from athena_assets.core.location import InvalidLocation, Location, parse_location
from athena_assets.core.target import Target

PATIENCE = 60.0  # seconds for an unanswered or throttled GetWorkGroup
KEPT = 15 * 60.0  # seconds for which an answer holds: an administrator may change the workgroup
_SHORTEST, _LONGEST = 0.5, 5.0  # seconds between two tries


@dataclass(frozen=True, slots=True)
class Workgroup:
    """What matters of an Athena workgroup.

    Args:
        name: its name.
        output_location: where it puts query results; None if it names no place.
        enforced: its settings override those of a query.
        managed: Athena keeps query results itself ("managed query results") and needs no location.
    """

    name: str
    output_location: str | None
    enforced: bool
    managed: bool


def read_workgroup(
    clients: AwsClients,
    name: str,
    *,
    seconds: float = PATIENCE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Workgroup:
    """GetWorkGroup. Its quota is small and many may ask at once, so throttling is waited out.

    Raises:
        AccessDenied: also if there is no such workgroup.
        ServiceUnavailable: no answer within `seconds`.
    """
    subject, until, wait = f"workgroup {name!r}", clock() + seconds, _SHORTEST
    while True:
        answer = question(subject, clients.athena.get_work_group, {"WorkGroup": name}, expect="WorkGroup")
        if not isinstance(answer, Refusal | Unanswered):
            break
        pause = wait * random.uniform(0.5, 1.0)  # callers that were throttled together don't come back together
        if clock() + pause > until:
            raise errors.ServiceUnavailable(
                subject,
                f"GetWorkGroup did not answer ({answer}).",
                not_done="No query was started.",
                next_step="Publish again when Athena answers.",
            )
        sleep(pause)
        wait = min(2 * wait, _LONGEST)
    configuration = answer["WorkGroup"].get("Configuration", {})
    return Workgroup(
        name=name,
        output_location=configuration.get("ResultConfiguration", {}).get("OutputLocation") or None,
        enforced=bool(configuration.get("EnforceWorkGroupConfiguration")),
        managed=bool(configuration.get("ManagedQueryResultsConfiguration", {}).get("Enabled")),
    )


def result_location(target: Target, slot: Location, workgroup: Workgroup, wanted: str | None) -> str | None:
    """The result location to send with the query; None where the workgroup's own holds.

    Raises:
        WorkgroupConflict: the workgroup enforces another location, nobody names one, or it overlaps the target's: the
            files that Athena puts there would be published as rows.
    """
    own = workgroup.output_location
    decided = workgroup.enforced and own is not None
    if decided and wanted is not None and wanted.rstrip("/") != str(own).rstrip("/"):
        raise _conflict(
            target,
            f"workgroup {workgroup.name!r} enforces the result location {own}, the settings ask for {wanted}.",
            "Leave output_location out, or use another workgroup.",
        )
    effective = own if decided else wanted or own
    if effective is None:
        if workgroup.managed:
            return None
        raise _conflict(
            target,
            f"neither the settings nor workgroup {workgroup.name!r} name a query result location.",
            "Set output_location to s3://bucket/path/ outside the target's location.",
        )
    if _overlaps(target, slot, effective):
        raise _conflict(
            target,
            f"the query result location {effective} overlaps the target's location {slot}.",
            "Use a result location of its own, neither above nor below the target.",
        )
    return None if decided else wanted


def _overlaps(target: Target, slot: Location, output_location: str) -> bool:
    bucket = output_location.removeprefix("s3://").rstrip("/")
    if "/" not in bucket:
        return bucket == slot.bucket  # a bucket's root, which is fine for results of targets elsewhere
    try:
        return parse_location(output_location).overlaps(slot)
    except InvalidLocation as error:
        raise _conflict(target, f"the query result location: {error.problem}", error.next_step) from error


def _conflict(target: Target, what: str, next_step: str) -> errors.WorkgroupConflict:
    return errors.WorkgroupConflict(
        f"target {target.name!r}, output_location", what, not_done="No query was started.", next_step=next_step
    )
