"""Publishing by executions of a state machine: started, waited for, found again after a crash, stopped."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from athena_assets.aws.at_once import at_once
from athena_assets.aws.driver import warn_not_freed
from athena_assets.aws.executions import Execution, Executions, Status
from athena_assets.aws.session import AwsSettings
from athena_assets.core.effects import Unanswered
from athena_assets.core.location import Location
from athena_assets.core.policy import LEASE_SECONDS, PATIENCE_SECONDS
from athena_assets.core.request import Published, Request, Reused, Skipped
from athena_assets.core.target import Target
from athena_assets.errors import (
    AthenaAssetsError,
    ExecutionFailed,
    ExecutionStopped,
    InvalidTarget,
    OutcomeUnknown,
    RequestConflict,
    ServiceUnavailable,
)
from athena_assets.step_functions.documents import Wish, read_error, read_outcome, read_wish
from athena_assets.step_functions.names import execution_name, session_of
from athena_assets.unload import PARTITIONS_AT_ONCE, Publisher

T = TypeVar("T")

logger = logging.getLogger(__name__)

Result = Published | Reused | Skipped | AthenaAssetsError

LOOK_SECONDS = 0.5, 30.0
"""The shortest and the longest wait between two looks at an execution: a tenth of the time that it has run.
DescribeExecution has a quota of 10 to 15 calls a second, by region, for all of an account (developer guide, "Service
quotas")."""

DATE_STEP = 1.0  # seconds in which an execution's age is not known


@dataclass(slots=True)
class _Run:
    """One request, and the execution that does it."""

    index: int
    request: Request
    tell: Callable[[str], None]
    text: str
    name: str = ""
    arn: str | None = None
    earlier: bool = False  # it had ended before we asked for it
    unheard: float | None = None  # when the first start of this name was sent that was not answered
    began: float = field(default_factory=time.monotonic)
    next_look: float = 0.0

    def take(self, name: str, arn: str) -> None:
        self.name, self.arn, self.unheard = name, arn, None


class StepFunctionsPublisher(Publisher):
    """A Publisher whose requests are run by a state machine in AWS; it takes part in the same registers.

    What it promises is what `Publisher` promises. The process may crash meanwhile: the execution goes on, and the same
    request id finds it again.

    Args:
        settings: as of Publisher; the function's role, not these credentials, reads the register and runs the query.
        state_machine: ARN of the STANDARD state machine, as deploy/step_functions.yaml makes it.
        lease_seconds: of what runs here: takeovers. The function has its own.

    Raises:
        InvalidTarget: `state_machine` is no such ARN.
    """

    def __init__(
        self,
        settings: AwsSettings | None = None,
        *,
        state_machine: str,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        super().__init__(settings, lease_seconds=lease_seconds)
        if state_machine.count(":") != 6 or ":states:" not in state_machine or ":stateMachine:" not in state_machine:
            raise InvalidTarget(
                "(any)",
                "state_machine",
                f"{state_machine!r} is not the ARN of a state machine.",
                "Write arn:aws:states:REGION:ACCOUNT:stateMachine:NAME.",
            )
        self._executions = Executions(self._clients, state_machine)

    def unload(
        self,
        target: Target,
        *,
        partition: str | None = None,
        request_id: str | None = None,
        force: bool = False,
        upstream_versions: Mapping[str, str] | None = None,
        run: str | None = None,
        observe: Callable[[str], None] | None = None,
        take_over: bool = False,
        first_try: bool = False,
    ) -> Published | Reused | Skipped:
        """As `Publisher.unload`; the outcome names its execution. `take_over` is done by this process.

        Raises:
            ExecutionFailed: the execution ended without an outcome of ours.
            ExecutionStopped: somebody stopped it.
        """
        if take_over:
            return super().unload(
                target,
                partition=partition,
                request_id=request_id,
                force=force,
                upstream_versions=upstream_versions,
                run=run,
                observe=observe,
                take_over=True,
                first_try=first_try,
            )
        request = self.request(
            target,
            partition=partition,
            request_id=request_id,
            force=force,
            upstream_versions=upstream_versions,
            run=run,
            first_try=first_try,
        )
        asked = self._run(0, request, upstream_versions, observe or _nobody)
        with closing(self._publish([asked], 1)) as results:
            _, result = next(results)
        if isinstance(result, AthenaAssetsError):
            raise result
        return result

    def unload_partitions(
        self,
        target: Target,
        partitions: Sequence[str],
        *,
        request_id: Callable[[str], str] | None = None,
        force: bool = False,
        upstream_versions: Mapping[str, str] | None = None,
        run: str | None = None,
        observe: Callable[[str, str], None] | None = None,
        limit: int = PARTITIONS_AT_ONCE,
        first_try: bool = False,
    ) -> Generator[tuple[str, Published | Reused | Skipped | AthenaAssetsError]]:
        """As `Publisher.unload_partitions`, with one execution a partition."""
        keys = list(dict.fromkeys(partitions))
        asked = [
            self._run(
                index,
                self.request(
                    target,
                    partition=key,
                    request_id=request_id and request_id(key),
                    force=force,
                    upstream_versions=upstream_versions,
                    run=run,
                    first_try=first_try,
                ),
                upstream_versions,
                _nobody if observe is None else partial(observe, key),
            )
            for index, key in enumerate(keys)
        ]
        for index, result in self._publish(asked, limit):
            yield keys[index], result

    def _run(
        self, index: int, request: Request, versions: Mapping[str, str] | None, observe: Callable[[str], None]
    ) -> _Run:
        wish = Wish(
            target=replace(request.target, workgroup=request.workgroup),
            partition=request.partition,
            request_id=request.id,
            force=request.force,
            first_try=not request.may_be_retry,
            upstream_versions=versions or {},
            run=request.run,
            output_location=self.settings.output_location,
            guard_workgroups=self.settings.guard_workgroups,
        )
        return _Run(index, request, observe, wish.text())

    # --- executions --------------------------------------------------------------------------------------------------

    def _publish(self, asked: Sequence[_Run], limit: int) -> Generator[tuple[int, Result]]:
        waiting, active = deque(asked), list[_Run]()
        try:
            while waiting or active:
                while waiting and len(active) < limit:
                    active.append(run := waiting.popleft())
                    yield from self._guarded(active, run, self._start)
                time.sleep(max(0.0, min((run.next_look for run in active), default=0.0) - time.monotonic()))
                for run in [each for each in active if each.next_look <= time.monotonic()]:
                    yield from self._guarded(active, run, self._look)
        except Exception:
            raise  # the executions go on: whoever asks again with the same ids finds them
        except BaseException:
            self._stop(active)
            raise

    @staticmethod
    def _guarded(active: list[_Run], run: _Run, act: Callable[[_Run], Result | None]) -> Generator[tuple[int, Result]]:
        """One's error ends no other."""
        try:
            result = act(run)
        except AthenaAssetsError as error:
            result = error
        if result is not None:
            active.remove(run)
            yield run.index, result

    def _start(self, run: _Run) -> None:
        """Starts the request's execution, or finds one: under way, or with the outcome that the request already has."""
        run.began = time.monotonic()
        request = run.request
        for number in itertools.count(1):
            name = execution_name(request.target.name, request.location, request.id, number)
            arn = self._executions.arn(name)
            run.take(name, arn)
            if _answered(run, partial(self._send_start, run), started=True):
                run.tell(f"execution {run.arn}")
                return
            found = _answered(run, partial(self._executions.describe, arn))
            self._check_same(run, found)
            if not found.ended:
                run.tell(f"execution {run.arn} is under way already")
                return
            if run.unheard is not None and found.age <= time.monotonic() - run.unheard + DATE_STEP:
                run.tell(f"execution {run.arn}")  # our own: a start that was not answered had begun it
                return
            # What was reused then may be old by now; a retry of this request would look again.
            if found.status is Status.SUCCEEDED and isinstance(outcome_of(request.location, found), Published):
                run.tell(f"execution {run.arn} has this request's outcome already")
                run.earlier = True
                return

    def _send_start(self, run: _Run) -> bool | Unanswered:
        sent = time.monotonic()
        answer = self._executions.start(run.name, run.text)
        if run.unheard is None and isinstance(answer, Unanswered):
            run.unheard = sent
        return answer

    def _check_same(self, run: _Run, found: Execution) -> None:
        """Raises RequestConflict for an execution of this request's name that publishes something else."""
        theirs = read_wish(json.loads(found.input))
        if self.request(theirs.target, partition=theirs.partition).definition == run.request.definition:
            return
        raise RequestConflict(
            run.request.location,
            f"request {run.request.id} has already been given to execution {found.arn} with another query or format.",
            not_done="No execution was started and nothing was published.",
            next_step="Use a new request id for a changed target.",
        )

    def _look(self, run: _Run) -> Result | None:
        """What became of the execution; None while it runs."""
        assert run.arn is not None
        found = _answered(run, partial(self._executions.describe, run.arn))
        if found.ended:
            outcome = outcome_of(run.request.location, found)
            return self._as_of_now(run, outcome) if run.earlier else outcome
        now = time.monotonic()
        shortest, longest = LOOK_SECONDS
        run.next_look = now + min(max((now - run.began) / 10, shortest), longest)
        return None

    def _as_of_now(self, run: _Run, outcome: Result) -> Result:
        """Others may have published since the execution ended."""
        if not isinstance(outcome, Published | Reused):
            return outcome
        register = self.status(run.request.location)
        return replace(outcome, superseded=register is None or register.publication != outcome.publication)

    def _stop(self, runs: Sequence[_Run]) -> None:
        """Stops the executions, then their queries, and frees the slots: a step that is stopped does not do that."""
        begun = [run for run in runs if run.arn is not None]
        at_once([partial(self._stop_one, run, run.arn) for run in begun if run.arn is not None], max(len(begun), 1))

    def _stop_one(self, run: _Run, arn: str) -> None:
        location = run.request.location
        try:
            if (answer := self._executions.stop(arn, "The caller that waited for it was interrupted.")) is not None:
                logger.warning("%s: execution %s was not stopped (%s): it goes on.", location, arn, answer.reason)
                return
        except AthenaAssetsError as error:
            logger.warning("%s: execution %s was not stopped: it goes on. %s", location, arn, error)
            return
        try:
            self.give_up(location, session_of(arn))
        except (AthenaAssetsError, TimeoutError) as error:
            warn_not_freed(run.request.slot, error)


def _nobody(line: str) -> None:
    """Nobody listens."""


def _answered(run: _Run, ask: Callable[[], T | Unanswered], *, started: bool = False) -> T:
    """Asks until AWS answers.

    Raises:
        OutcomeUnknown, ServiceUnavailable: after the request's patience.
    """
    began, wait = time.monotonic(), 0.2
    while isinstance(answer := ask(), Unanswered):
        if time.monotonic() - began > PATIENCE_SECONDS:
            kind = OutcomeUnknown if started else ServiceUnavailable
            raise kind(
                run.request.location,
                f"Step Functions did not answer for {PATIENCE_SECONDS:.0f} s ({answer.reason}).",
                not_done="The execution, if it has begun, was not stopped.",
                next_step=f"Publish again with the request id {run.request.id}: it finds the execution {run.name}.",
            )
        time.sleep(wait)
        wait = min(2 * wait, 10.0)
    return answer


def outcome_of(slot: Location, found: Execution) -> Result:
    """What an execution that has ended says."""
    if found.status is Status.SUCCEEDED:
        try:
            return read_outcome(json.loads(found.output).get("outcome"), found.arn)
        except (ValueError, AttributeError) as error:
            return ExecutionFailed(
                slot,
                f"the output of execution {found.arn} can't be read: {error}.",
                not_done="It is not known from here what was published.",
                next_step="Is it the state machine of this version (`athena-assets step-functions export`)? "
                "`athena-assets status` tells what is published.",
            )
    if found.status is Status.ABORTED:
        return ExecutionStopped(
            slot,
            f"execution {found.arn} was stopped{f': {found.cause}' if found.cause else ''}.",
            not_done="Whatever it had under way, the next caller goes on from what the register says.",
            next_step="Publish again if the result is still wanted.",
        )
    return read_error(found.error, found.cause) or ExecutionFailed(
        slot,
        f"execution {found.arn} ended {found.status}: {found.error or 'no error'}: {found.cause[:1000] or 'no cause'}.",
        not_done="Whatever it had under way, the next caller goes on from what the register says.",
        next_step="Look at the execution and at the function's log; then publish again.",
    )
