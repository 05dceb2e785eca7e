"""Runs the protocol against AWS: performs each effect that it yields and sends the answer back."""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from athena_assets.aws.at_once import at_once
from athena_assets.aws.athena import Athena
from athena_assets.aws.glue import UpstreamVersions
from athena_assets.aws.glue_pointer import GluePointers
from athena_assets.aws.glue_table import GlueTables
from athena_assets.aws.running import look_for_queries
from athena_assets.aws.s3 import S3
from athena_assets.aws.session import AwsClients
from athena_assets.core import effects
from athena_assets.core.abandon import abandon
from athena_assets.core.effects import Effect, Effects
from athena_assets.core.memory import Memory
from athena_assets.core.protocol import Caller
from athena_assets.core.register import Owner
from athena_assets.core.request import Outcome, Request
from athena_assets.core.slot import Slot
from athena_assets.errors import AthenaAssetsError

T = TypeVar("T")

logger = logging.getLogger(__name__)

CLEAN_UP_SECONDS = 3.0  # for an interrupted caller; what Dagster grants comfortably before it kills

Observe = Callable[[str], None]


class Driver:
    """Performs effects for one slot. `observe` gets the story, a line at a time; `clock` gives seconds."""

    def __init__(
        self,
        clients: AwsClients,
        slot: Slot,
        observe: Observe | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        s3 = S3(clients, slot.bucket)
        athena = Athena(clients, str(slot))
        upstreams = UpstreamVersions(clients)
        pointers = GluePointers(clients, slot.bucket)
        self._slot = slot
        self._observe = observe
        self._perform: dict[type[Effect[Any]], Callable[[Any], Any]] = {
            effects.ReadObject: s3.read,
            effects.ReadUri: s3.read_uri,
            effects.WriteObject: s3.write,
            effects.ListObjects: s3.list,
            effects.ListFolders: s3.list_folders,
            effects.HeadObject: s3.head,
            effects.CopyObject: s3.copy,
            effects.AbortUploads: s3.abort_uploads,
            effects.DeleteObject: s3.delete,
            effects.AtOnce: lambda effect: tuple(
                at_once([partial(self.perform, each) for each in effect.effects], len(effect.effects))
            ),
            effects.StartQuery: athena.start,
            effects.PollQuery: athena.poll,
            effects.StopQuery: athena.stop,
            effects.LookForQueries: partial(look_for_queries, clients),
            effects.CountRows: athena.count_rows,
            effects.ResolveUpstreams: lambda effect: upstreams.resolve(effect.tables),
            effects.KeepGlueTable: GlueTables(clients, slot.bucket).keep,
            effects.ReadPointer: pointers.read,
            effects.MovePointer: pointers.move,
            effects.Sleep: lambda effect: time.sleep(effect.seconds),
            effects.ReadClock: lambda _: clock(),
            effects.DrawId: lambda _: secrets.token_hex(8),
            effects.DrawFraction: lambda _: random.random(),
            effects.Report: self._report,
        }

    def perform(self, effect: Effect[Any]) -> Any:
        """The answer to one effect. Raises AthenaAssetsError for what no wait can cure."""
        return self._perform[type(effect)](effect)

    def run(self, steps: Effects[T], until: float | None = None) -> T:
        """Runs steps to their end, or raises TimeoutError once the monotonic clock has passed `until`."""
        try:
            effect = next(steps)
            while until is None or time.monotonic() < until:
                try:
                    answer = self.perform(effect)
                except AthenaAssetsError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        raise TimeoutError

    def _report(self, effect: effects.Report) -> None:
        line = f"{effect.event}: {effect.detail}" if effect.detail else effect.event
        logger.info("%s: %s", self._slot, line)
        if self._observe is not None:
            self._observe(line)


def new_caller(
    request: Request,
    *,
    take_over: bool = False,
    host: str | None = None,
    session: str = "",
    memory: Memory | None = None,
) -> Caller:
    """This process's caller; with a session, it goes on in the place of an earlier one."""
    host = host or socket.gethostname()
    return Caller(request, host, os.getpid(), take_over=take_over, session=session, memory=memory)


def new_owner(request_id: str, run: str | None = None) -> Owner:
    """The owner of a slot for something else than a publishing request."""
    return Owner(secrets.token_hex(8), socket.gethostname(), os.getpid(), request_id, run)


def publish(
    clients: AwsClients, request: Request, observe: Observe | None = None, *, take_over: bool = False
) -> Outcome:
    """Runs one request to its outcome, on this thread.

    An interruption (KeyboardInterrupt, Dagster's termination: anything that is not an Exception) stops the query and
    frees the slot within about CLEAN_UP_SECONDS, and goes on. SIGKILL can't be caught: the lease runs out.
    """
    caller = new_caller(request, take_over=take_over)
    driver = Driver(clients, request.slot, observe)
    try:
        return driver.run(caller.publish())
    except Exception:
        raise  # typed or not: the register tells the next caller how far we came
    except BaseException:
        _clean_up(driver, caller)
        raise


def _clean_up(driver: Driver, caller: Caller) -> None:
    try:
        give_up(driver, caller.slot, caller.session)
    except (AthenaAssetsError, TimeoutError) as error:
        warn_not_freed(caller.slot, error)


def give_up(driver: Driver, slot: Slot, session: str) -> None:
    """Stops the query of a session and frees its slot. Raises TimeoutError after CLEAN_UP_SECONDS."""
    driver.run(abandon(slot, session), until=time.monotonic() + CLEAN_UP_SECONDS)


def warn_not_freed(slot: Slot, error: BaseException) -> None:
    """Says what an interruption left behind, and who deals with it."""
    logger.warning(
        "%s: interrupted, and the slot could not be freed in time (%r). The next caller finishes or replaces what was "
        "begun once the lease has run out.",
        slot,
        error,
    )
