"""Reading and writing the register: lost replies resolved by looking, and the lease of one owner.

Every change is a conditional write. Whoever fails one because another has written learns it as `LeaseLost` and touches
nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from athena_assets import errors
from athena_assets.core import keys, policy
from athena_assets.core.codec import UnreadableRegister, encode
from athena_assets.core.effects import (
    Absent,
    DrawFraction,
    DrawId,
    Effects,
    ObjectRead,
    Question,
    R,
    ReadClock,
    ReadObject,
    Refused,
    Report,
    Sleep,
    Unanswered,
    WriteObject,
    Written,
    perform,
)
from athena_assets.core.register import Register, decode_register, renewed
from athena_assets.core.slot import Slot

P = ParamSpec("P")


class LeaseLost(Exception):
    """Another owner has written the register. Control flow inside the protocol: the caller becomes a joiner."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the register. `asked` and `answered` are our monotonic clock around the read; `date` is S3's."""

    register: Register | None
    etag: str | None
    asked: float
    answered: float
    date: float = 0.0
    age: float = 0.0

    @property
    def modified(self) -> float:
        """When the register was written, by S3's clock."""
        return self.date - self.age


def answered(effect: Question[R], slot: Slot) -> Effects[R]:
    """Performs a question until it is answered.

    Raises:
        ServiceUnavailable: after the request's patience.
    """
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        answer = yield from perform(effect)
        if not isinstance(answer, Unanswered):
            return answer
        if (yield from perform(ReadClock())) - started > slot.patience:
            raise errors.ServiceUnavailable(
                slot,
                f"{type(effect).__name__} was not answered for {slot.patience:.0f} s ({answer.reason}).",
                not_done="Nothing was deleted; a query that may be running goes on.",
                next_step="Publish again when AWS answers: the next caller goes on from what the register says.",
            )
        yield from perform(Report("no answer", f"{type(effect).__name__}: {answer.reason}; trying again"))
        yield from perform(Sleep(policy.backoff(tries, (yield from perform(DrawFraction())))))
        tries += 1


def look(slot: Slot, undecoded: str | None = None) -> Effects[Seen]:
    """Reads the register; with the ETag `undecoded` it is only found to stand there.

    Raises:
        RegisterUnreadable: for one that this version does not understand.
    """
    asked = yield from perform(ReadClock())
    answer = yield from answered(ReadObject(keys.register_key(slot.location)), slot)
    now = yield from perform(ReadClock())
    if isinstance(answer, Absent):
        return Seen(None, None, asked, now)
    register = None if answer.etag == undecoded else _decoded(answer, slot)
    return Seen(register, answer.etag, asked, now, answer.date, answer.age)


def _decoded(answer: ObjectRead, slot: Slot) -> Register:
    key = keys.register_key(slot.location)
    try:
        register = decode_register(answer.body)
    except UnreadableRegister as error:
        raise errors.RegisterUnreadable(
            slot,
            f"the register s3://{slot.bucket}/{key} can't be read: {error}.",
            not_done="It was left as it is and no query was started.",
            next_step="Upgrade athena_assets if a newer version wrote it; else `athena-assets rebuild`.",
        ) from error
    return register


def write(slot: Slot, before: Seen, register: Register) -> Effects[Seen | None]:
    """One change of the register, resolved: what we wrote, or None if another wrote first.

    A refused or unanswered write is resolved by reading the register back: our `write_id` stands there (applied), or
    the ETag is still the one we expected (not applied yet: the same bytes are sent again, so a late first copy is
    harmless), or it is another's.

    Raises:
        RegisterVanished: the register that we had read is gone.
        AccessDenied: a definite refusal, with no earlier send unresolved.
        OutcomeUnknown: no answer for the request's patience.
    """
    key = keys.register_key(slot.location)
    body = encode(register)
    decode_register(body)  # nothing is ever written that nobody could read
    effect = WriteObject(key, body, before.etag)
    started = yield from perform(ReadClock())
    doubtful = False
    tries = 0
    while True:
        asked = yield from perform(ReadClock())
        answer = yield from perform(effect)
        if isinstance(answer, Written):
            return Seen(register, answer.etag, asked, (yield from perform(ReadClock())), answer.date)
        doubtful = doubtful or isinstance(answer, Unanswered)
        try:
            found = yield from look(slot, undecoded=before.etag)
        except errors.ServiceUnavailable as error:
            raise _unknown(slot, str(error)) from error
        if found.register is not None and found.register.write_id == register.write_id:
            # `asked` of the send, not of the look: an owner counts its lease from before it sent.
            return Seen(register, found.etag, asked, found.answered, found.date)
        if found.etag is None and before.register is not None:
            raise vanished(slot)
        if found.etag != before.etag:
            return None
        if isinstance(answer, Refused) and answer.final and not doubtful:
            raise errors.AccessDenied(
                slot,
                f"S3 refused to write the register {key} (HTTP {answer.status} {answer.code}).",
                not_done="The register is unchanged.",
                next_step="Allow s3:GetObject and s3:PutObject on the control prefix _athena_assets/ of the bucket.",
            )
        if (yield from perform(ReadClock())) - started > slot.patience:
            raise _unknown(slot, f"the register was not written for {slot.patience:.0f} s ({answer}).")
        yield from perform(Sleep(policy.backoff(tries, (yield from perform(DrawFraction())))))
        tries += 1


def vanished(slot: Slot) -> errors.RegisterVanished:
    """The error for a register that we had read and that is not there any more."""
    return errors.RegisterVanished(
        slot,
        f"the register s3://{slot.bucket}/{keys.register_key(slot.location)} was deleted.",
        not_done="It was not created again: a fence that starts anew could let an old owner publish.",
        next_step="Run `athena-assets rebuild`: it makes the register anew from the manifests.",
    )


def create_once(slot: Slot, key: str, body: bytes) -> Effects[bytes]:
    """Creates an object and returns what stands there: these bytes, or another's. Lost reply: it is read back."""
    started = yield from perform(ReadClock())
    tries = 0
    while True:
        answer = yield from perform(WriteObject(key, body, None))
        if isinstance(answer, Written):
            return body
        stored = yield from answered(ReadObject(key), slot)
        if not isinstance(stored, Absent):
            return stored.body
        yield from send_again(slot, f"writing {key}", answer, started, tries)
        tries += 1


def _unknown(slot: Slot, what: str) -> errors.OutcomeUnknown:
    return errors.OutcomeUnknown(
        slot,
        f"{slot.caller}: {what}",
        not_done="Nothing was deleted and it is not known whether the last write was applied.",
        next_step="Publish again with the same request id: it finds out and goes on from there.",
    )


class Tenure:
    """One caller's ownership of a slot, from the write that took it to the write that releases it."""

    def __init__(self, slot: Slot, seen: Seen) -> None:
        self.slot = slot
        self._seen = seen

    @property
    def register(self) -> Register:
        assert self._seen.register is not None
        return self._seen.register

    @property
    def seen(self) -> Seen:
        """Our last look, or write."""
        return self._seen

    @property
    def date(self) -> float:
        """S3's clock at the last read, Unix seconds."""
        return self._seen.date

    def change(
        self, transition: Callable[Concatenate[Register, str, P], Register], *args: P.args, **fields: P.kwargs
    ) -> Effects[None]:
        """Writes what `transition` makes of our register and a fresh write_id. Raises LeaseLost if another wrote."""
        write_id = yield from perform(DrawId())
        seen = yield from write(self.slot, self._seen, transition(self.register, write_id, *args, **fields))
        if seen is None:
            raise LeaseLost
        self._seen = seen

    def keep(self) -> Effects[None]:
        """Stands before every side effect: renews the lease if a third of it has passed.

        A hint that saves work: a pause can sit between check and effect. Safety is in the conditional writes.
        """
        while True:
            passed = (yield from perform(ReadClock())) - self._seen.asked
            if passed <= self.register.lease * policy.RENEW_AFTER:
                return
            yield from self.renew()
            if (yield from perform(ReadClock())) - self._seen.asked <= self.register.lease * policy.ACT_WITHIN:
                return

    def renew(self) -> Effects[None]:
        yield from self.change(renewed)


def send_again(slot: Slot, what: str, answer: object, started: float, tries: int) -> Effects[None]:
    """Waits before the next send of a write that was not applied for sure; gives up when no wait can help.

    Raises:
        AccessDenied: a definite refusal.
        OutcomeUnknown: no answer for the slot's patience.
    """
    if isinstance(answer, Refused) and answer.final:
        raise errors.AccessDenied(
            slot,
            f"AWS refused {what} (HTTP {answer.status} {answer.code}).",
            not_done="The slot keeps its state.",
            next_step="Mend the permission and publish again: the next caller goes on from here.",
        )
    if (yield from perform(ReadClock())) - started > slot.patience:
        raise errors.OutcomeUnknown(
            slot,
            f"{slot.caller}: {what} was not answered for {slot.patience:.0f} s ({answer}).",
            not_done="The slot keeps its state.",
            next_step="Publish again when AWS answers: the next caller goes on from here.",
        )
    yield from perform(Sleep(policy.backoff(tries, (yield from perform(DrawFraction())))))
