"""One request from its first look at the register to its outcome. The protocol's document calls the steps

    acquire -> submit -> watch -> verify -> commit -> project -> release

and every one of them may be finished by another caller than the one that began it.
"""

from __future__ import annotations

from dataclasses import replace

from athena_assets import errors
from athena_assets.core import attempt as attempts
from athena_assets.core import guard, keys, policy, register
from athena_assets.core.answers import Expectation, answered_by, describe, in_flight
from athena_assets.core.attempt import Failed
from athena_assets.core.chain import find
from athena_assets.core.commit import check_before_acquiring, commit
from athena_assets.core.directories import sweep_own
from athena_assets.core.effects import (
    DrawFraction,
    DrawId,
    Effects,
    PollQuery,
    QueryMissing,
    QueryState,
    QueryStatus,
    ReadClock,
    Report,
    ResolveUpstreams,
    RunningQuery,
    Sleep,
    perform,
)
from athena_assets.core.first_use import check_first_use, check_not_lost, check_whose
from athena_assets.core.generation import UpstreamVersion, generation_fingerprint, request_token
from athena_assets.core.location import Location
from athena_assets.core.memory import Memory, Since
from athena_assets.core.register import Attempt, Failure, Mode, Owner, Publication, Register, State
from athena_assets.core.request import Outcome, Request, Skipped
from athena_assets.core.statement import Label, readdress
from athena_assets.core.swap import project
from athena_assets.core.target import OnConflict
from athena_assets.core.tenure import LeaseLost, Seen, Tenure, look, vanished, write


class Caller:
    """One request in progress, and what it knows of the world."""

    def __init__(
        self,
        request: Request,
        host: str,
        pid: int,
        *,
        take_over: bool = False,
        session: str = "",
        memory: Memory | None = None,
    ) -> None:
        """`session` and `memory` are those of a predecessor in whose place this caller goes on."""
        self.request = request
        self.slot = request.slot
        self._host = host
        self._take_over_at_once = take_over
        self._presumed_dead: str | None = (
            None  # a session: a human knows of the owner at the first look, of no later one
        )
        self._pid = pid
        self.session = session
        self._in_steps = session != ""
        before = memory or Memory(searched=0 if request.may_be_retry else None)
        self._upstreams = before.upstreams
        self._generation = "" if before.upstreams is None else self._fingerprint(before.upstreams)
        self._fresh = False  # nothing has made us wait since the upstream versions were read
        self._since = before.since
        self._searched = before.searched
        self._known = before.known
        self._adopted = before.adopted
        self._waited = before.waited
        self._asleep = before.asleep
        self._standing = before.standing
        self._watched = before.watched

    @property
    def memory(self) -> Memory:
        """For whoever goes on in this caller's place."""
        return Memory(
            upstreams=self._upstreams,
            known=self._known,
            since=self._since,
            searched=self._searched,
            adopted=self._adopted,
            waited=self._waited,
            asleep=self._asleep,
            standing=self._standing,
            watched=self._watched,
        )

    def publish(self) -> Effects[Outcome]:
        """Publishes, or returns the publication that already answers this request.

        Raises:
            AthenaAssetsError: see errors.py; whatever is raised, the next caller can go on from the register.
        """
        self.session = self.session or (yield from perform(DrawId()))
        yield from self._wake()
        if self._upstreams is None:
            yield from self._resolve_upstreams()
        while True:
            seen = yield from look(self.slot)
            found = seen.register
            if found is None and self._known:
                raise vanished(self.slot)
            if found is not None and found.state is State.BLOCKED and found.failure is not None:
                raise policy.failure_error(self.slot, found.failure)
            if found is None or (found.state is State.FREE and found.publication is None):
                yield from check_not_lost(self.slot, found, 1 if found is None else found.fence + 1)
            self._known = found is not None
            if self._since is None:
                self._since = in_flight(found)
                if self._take_over_at_once and found is not None and found.owner is not None:
                    self._presumed_dead = found.owner.session
            if self._searched is None:
                self._searched = _newest(found)  # a new request has published nothing before its first look
            if found is not None:
                answer = answered_by(found, self._expectation(), (yield from self._own_publication(found)))
                if answer is not None:
                    return answer
            if (found is None or found.state is State.FREE) and not self._fresh:
                yield from self._resolve_upstreams()
                continue
            try:
                outcome = yield from self._go_on(seen)
                if outcome is not None:
                    return outcome
            except LeaseLost:
                yield from perform(Report("superseded", "another owner holds the slot; waiting for its result"))
            self._fresh = False

    def _go_on(self, seen: Seen) -> Effects[Outcome | None]:
        """Takes the slot and publishes, or waits for whoever, or whatever, is in the way."""
        found = seen.register
        held = None if found is None or found.state is State.FREE else found
        if held is not None and not self._expired(seen, held):
            return (yield from self._wait(held))
        running = yield from guard.running_already(self.request, found)
        if isinstance(running, RunningQuery):
            if held is None or not self._is_predecessor(held):
                return (yield from self._wait_for(running, seen))
            running = None  # the slot is ours already, and so may be a query that has ended
        if held is None:
            return (yield from self._acquire_and_run(seen))
        yield from self._take_over(seen, held, running)
        return None

    def _own_publication(self, found: Register) -> Effects[Publication | None]:
        """What our request has published, though it may be long ago: a commit's reply may have been lost.

        Between two looks the register forgets only what has 32 others after it, so that the chain is hardly ever read.
        """
        own = yield from find(self.slot, found.remembered, self.request.id, above=self._searched or 0)
        if own is None:
            self._searched = _newest(found)
        return own

    def _expectation(self) -> Expectation:
        return Expectation(
            request=self.request,
            generation=self._generation,
            reusable=self._reusable,
            since=self._since or 0,
            adopted=self._adopted,
            waited=self._waited,
        )

    @property
    def _reusable(self) -> bool:
        return self.request.deterministic and all(each.version is not None for each in self._upstreams or ())

    # --- a free slot -------------------------------------------------------------------------------------------------

    def _resolve_upstreams(self) -> Effects[None]:
        given = {each.table: each for each in self.request.given}
        asked = tuple(table for table in self.request.upstreams if str(table) not in given)
        versions = (yield from perform(ResolveUpstreams(asked))) if asked else ()
        known = {each.table: each for each in versions} | given
        self._upstreams = tuple(known[table] for table in sorted(known))
        self._generation = self._fingerprint(self._upstreams)
        self._fresh = True

    def _fingerprint(self, upstreams: tuple[UpstreamVersion, ...]) -> str:
        return generation_fingerprint(self.request.definition, upstreams)

    def _acquire_and_run(self, seen: Seen) -> Effects[Outcome | None]:
        before = seen.register
        fence = 1 if before is None else before.fence + 1
        attempt = yield from self._new_attempt(fence, number=1)
        try:
            yield from check_before_acquiring(self.slot, before, attempt.settings)
        except (errors.LocationNotEmpty, errors.ModeChanged, errors.TableNotOurs, errors.RegisterVanished):
            if (yield from look(self.slot)).etag != seen.etag:
                return None  # another owner came meanwhile: what lies there may be its result
            if before is None or before.publication is None:
                yield from check_whose(self.slot)
            raise
        write_id = yield from perform(DrawId())
        taken = yield from write(
            self.slot,
            seen,
            register.acquired(
                before,
                write_id,
                owner=self._owner(),
                lease=self.request.lease,
                attempt=attempt,
                freed_at=seen.modified,
            ),
        )
        if taken is None:
            return None
        tenure = Tenure(self.slot, taken)
        yield from perform(Report("acquired", f"fence {fence}"))
        if taken.register is not None and taken.register.publication is None:
            yield from check_first_use(tenure)
        failure = yield from self._run(tenure)
        if failure is not None:
            raise policy.failure_error(self.slot, failure)
        return answered_by(tenure.register, self._expectation())

    def _new_attempt(self, fence: int, number: int) -> Effects[Attempt]:
        nonce = yield from perform(DrawId())
        settings = self.request.target.publish_settings(self.request.partition)
        staging = self._destination(settings.mode, fence, number, nonce)
        return Attempt(
            number=number,
            generation=self._generation,
            definition=self.request.definition,
            request=self.request.id,
            run=self.request.run,
            token=request_token(
                location=self.request.location,
                generation=self._generation,
                fence=fence,
                attempt=number,
                workgroup=self.request.workgroup,
                nonce=nonce,
            ),
            starts=(self.request.start_parameters(staging, fence, number),),
            upstreams=self._upstreams or (),
            reusable=self._reusable,
            settings=settings,
        )

    def _destination(self, mode: Mode, fence: int, number: int, nonce: str) -> str:
        """Where the query writes: the location itself in direct mode, else a prefix of its own."""
        location = self.slot.location
        if mode is Mode.DIRECT:
            return location.prefix
        prefix = keys.directory_prefix if mode is Mode.POINTER else keys.staging_prefix
        return prefix(location, fence, number, nonce)

    def _owner(self) -> Owner:
        return Owner(self.session, self._host, self._pid, self.request.id, self.request.run)

    # --- running an attempt to its end -------------------------------------------------------------------------------

    def _run(self, tenure: Tenure) -> Effects[Failure | None]:
        """Carries the recorded attempt, ours or adopted, to a released slot; retries only what is our own."""
        while True:
            result = yield from self._one_attempt(tenure)
            if result is None:
                return None
            result = yield from attempts.settle(tenure, result)
            ours = tenure.register.current
            may_retry = ours.request == self.request.id and ours.number <= self.request.target.retries
            if result.kind in policy.RETRIED and may_retry:
                yield from perform(Report("trying again", result.reason))
                yield from self._attempt_again(tenure, ours.number + 1)
                continue
            failure = Failure(
                ours.generation, ours.request, tenure.register.fence, result.query_id, result.kind, result.reason
            )
            if result.kind in policy.BLOCKING:
                yield from tenure.change(register.blocked, failure=failure)
            elif result.kind in policy.RETRIED and ours.request != self.request.id:
                # Whoever asked for it may try again: for those who wait it has not failed.
                yield from tenure.change(register.released)
            else:
                yield from tenure.change(register.released, failure=failure)
            yield from perform(Report("failed", result.reason))
            return failure

    def _attempt_again(self, tenure: Tenure, number: int) -> Effects[None]:
        attempt = yield from self._new_attempt(tenure.register.fence, number)
        yield from tenure.change(register.attempted_again, attempt=attempt)

    def _one_attempt(self, tenure: Tenure) -> Effects[Failed | None]:
        """None once the attempt's result is published, or was lost (the register says which) and the slot released."""
        if tenure.register.cleanup:
            yield from attempts.clean(tenure)  # a dead owner had begun it; its query has ended
        if tenure.register.state is State.SUBMITTING:
            failed = yield from attempts.submit(tenure)
            if failed is not None:
                return failed
        query_id = tenure.register.current.accepted_query
        if self._watched is None or self._watched.what != query_id:
            self._watched = Since(query_id, (yield from perform(ReadClock())))
        status = yield from attempts.watch(tenure, self.request.target.timeout, self._watched.when)
        self._watched = None
        if isinstance(status, Failed):
            return status
        staged = yield from attempts.verify(tenure, status)
        if isinstance(staged, Failed):
            return staged
        try:
            yield from commit(tenure, status, staged)
        except (errors.LocationNotEmpty, errors.RegisterVanished):
            # What lies there may be the result of a later owner, which our register can't know: then this is LeaseLost.
            yield from tenure.change(register.released)
            raise
        if tenure.register.state is State.PUBLISHING:
            yield from project(tenure)
        else:
            yield from sweep_own(tenure)
        return None

    # --- a slot that another holds -----------------------------------------------------------------------------------

    def _expired(self, seen: Seen, found: Register) -> bool:
        """By S3's clock on a first look, else by our own: never by comparing two machines' clocks."""
        if self._is_predecessor(found) or (found.owner is not None and found.owner.session == self._presumed_dead):
            return True
        if self._standing is None or self._standing.what != found.write_id:
            self._standing = Since(found.write_id, seen.answered)
        if policy.expired_at_first_sight(found.lease, seen.age):
            return True
        return seen.asked - self._standing.when >= policy.expires_after(found.lease)

    def _is_predecessor(self, found: Register) -> bool:
        """Whether the owner is one in whose place we go on. If it still acts after all, our fence is the higher one."""
        return self._in_steps and found.owner is not None and found.owner.session == self.session

    def _take_over(self, seen: Seen, found: Register, own: guard.Own | None) -> Effects[None]:
        """Finishes what a dead owner began, under its generation and request; the loop then looks for our answer.

        `own` is its query, if the guard has found it running: then no start is sent.
        """
        fence = found.fence + 1
        predecessor = self._is_predecessor(found)
        start = None
        if found.state is State.SUBMITTING and own is None:
            nonce = yield from perform(DrawId())
            staging = self._destination(found.current.settings.mode, fence, found.current.number, nonce)
            start = replace(
                found.current.starts[0],
                staging=staging,
                query=readdress(
                    found.current.starts[0].query,
                    Location(self.request.location.bucket, staging),
                    Label(str(self.slot), fence, found.current.number),
                ),
            )
        write_id = yield from perform(DrawId())
        taken = yield from write(
            self.slot,
            seen,
            register.taken_over(found, write_id, owner=self._owner(), lease=self.request.lease, start=start),
        )
        if taken is None:
            if predecessor:
                raise LeaseLost  # another step of ours went on, or we were given up
            return
        tenure = Tenure(self.slot, taken)
        if predecessor:
            yield from perform(Report("goes on", f"fence {fence}, state {found.state}"))
        else:
            yield from perform(Report("taken over", f"from {describe(found)}, state {found.state}"))
        if found.state is State.SUBMITTING and found.publication is None:
            yield from check_first_use(tenure)  # the dead owner may not have come to it
        if found.state is State.PUBLISHING:
            yield from project(tenure)
            served = found.publication
            if served is not None and not (predecessor and served.request == self.request.id):
                self._adopted = served.fence
            return
        if own is not None:
            for twin in own.twins:  # before the adoption is noted: if we die here the next owner looks again
                yield from attempts.end(tenure, twin)
            yield from tenure.change(register.running, query_id=own.query.query_id, accepted=own.start)
            yield from perform(Report("adopted", f"query {own.query.query_id}, which was found running"))
        failure = yield from self._run(tenure)
        if predecessor and found.current.request == self.request.id:
            if failure is not None:
                raise policy.failure_error(self.slot, failure)
            return
        self._adopted = fence
        if failure is not None:
            self._since = fence + 1  # it is recorded for those who waited; we go on with our own

    def _wait(self, found: Register) -> Effects[Skipped | None]:
        request = self.request
        on_conflict = request.target.on_conflict
        if request.id == _under_way(found):
            on_conflict = OnConflict.JOIN  # whoever finishes what we began is in nobody's way
        if on_conflict is OnConflict.FAIL:
            advice = "Wait for it, or use on_conflict='join' to share its result."
            raise self._busy(found, "on_conflict is 'fail' and the slot is held by", advice)
        if on_conflict is OnConflict.SKIP:
            return Skipped(describe(found), None if found.attempt is None else found.attempt.query_id)
        if self._waited >= request.target.wait_timeout:
            advice = "Look at what it does (`athena-assets status`), or give the target a longer wait_timeout."
            raise self._busy(found, f"after {self._waited:.0f} s of waiting the slot is still held by", advice)
        if self._waited == 0:
            yield from perform(Report("waiting", f"the slot is held by {describe(found)}"))
        yield from self._sleep()
        return None

    def _wait_for(self, foreign: RunningQuery, seen: Seen) -> Effects[Skipped | None]:
        """Waits for a query that is not ours as for another owner: until it has ended, or may have.

        Or until the register has changed since it was `seen`: our answer may stand there.
        """
        on_conflict = self.request.target.on_conflict
        if on_conflict is OnConflict.SKIP:
            return Skipped(f"query {foreign.query_id} in workgroup {foreign.workgroup}", foreign.query_id)
        yield from perform(Report("foreign query", guard.told(foreign)))
        while True:
            if on_conflict is OnConflict.FAIL or self._waited >= self.request.target.wait_timeout:
                raise guard.refusal(self.request, foreign, self._waited)
            yield from self._sleep()
            if (yield from look(self.slot)).etag != seen.etag:
                return None
            try:
                status = yield from perform(PollQuery(foreign.query_id))
            except errors.AccessDenied:
                return None  # the next look tells
            ended = isinstance(status, QueryStatus) and status.state is not QueryState.ACTIVE
            if ended or isinstance(status, QueryMissing):
                return None

    def _sleep(self) -> Effects[None]:
        delay = policy.wait_delay(self._waited, (yield from perform(DrawFraction())))
        self._asleep = yield from perform(ReadClock())
        yield from perform(Sleep(delay, handover=True))
        yield from self._wake()

    def _wake(self) -> Effects[None]:
        if self._asleep is not None:
            self._waited += (yield from perform(ReadClock())) - self._asleep
            self._asleep = None

    def _busy(self, found: Register, what: str, next_step: str) -> errors.SlotBusy:
        query_id = found.attempt.query_id if found.attempt is not None else None
        begun = self.request.id == _under_way(found)
        going_on = "What this request has begun was not stopped: that owner goes on with it."
        return errors.SlotBusy(
            self.slot,
            f"{what} {describe(found)}.",
            owner=describe(found),
            query_id=query_id,
            not_done=going_on if begun else errors.NOT_BEGUN,
            next_step=next_step,
        )


def _under_way(found: Register) -> str | None:
    """The request whose work it is."""
    work = found.publication if found.state is State.PUBLISHING else found.attempt
    return None if work is None else work.request


def _newest(found: Register | None) -> int:
    """The fence of the current publication."""
    return 0 if found is None or found.publication is None else found.publication.fence
