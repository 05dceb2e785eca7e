"""Runs the protocol against AWS: performs each effect that it yields and sends the answer back."""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from athena_assets.aws.athena import Athena
from athena_assets.aws.glue import UpstreamVersions
from athena_assets.aws.s3 import S3
from athena_assets.aws.session import AwsClients
from athena_assets.core import effects
from athena_assets.core.abandon import abandon
from athena_assets.core.effects import Effect, Effects
from athena_assets.core.protocol import Caller
from athena_assets.core.request import Outcome, Request
from athena_assets.errors import AthenaAssetsError

T = TypeVar("T")

logger = logging.getLogger(__name__)

CLEAN_UP_SECONDS = 3.0  # for an interrupted caller; what Dagster grants comfortably before it kills


class Driver:
    """Performs effects for one request. `observe` gets the story of the publication, a line at a time."""

    def __init__(self, clients: AwsClients, request: Request, observe: Callable[[str], None] | None = None) -> None:
        s3 = S3(clients, request.location.bucket)
        athena = Athena(clients, request.slot)
        upstreams = UpstreamVersions(clients)
        self._request = request
        self._observe = observe
        self._perform: dict[type[Effect[Any]], Callable[[Any], Any]] = {
            effects.ReadObject: s3.read,
            effects.ReadUri: s3.read_uri,
            effects.WriteObject: s3.write,
            effects.ListObjects: s3.list,
            effects.HeadObject: s3.head,
            effects.CopyObject: s3.copy,
            effects.DeleteObject: s3.delete,
            effects.StartQuery: athena.start,
            effects.PollQuery: athena.poll,
            effects.StopQuery: athena.stop,
            effects.CountRows: athena.count_rows,
            effects.ResolveUpstreams: lambda effect: upstreams.resolve(effect.tables),
            effects.Sleep: lambda effect: time.sleep(effect.seconds),
            effects.ReadClock: lambda _: time.monotonic(),
            effects.DrawId: lambda _: secrets.token_hex(8),
            effects.DrawFraction: lambda _: random.random(),
            effects.Report: self._report,
        }

    def publish(self) -> Outcome:
        """Runs the request to its outcome.

        An interruption (KeyboardInterrupt, Dagster's termination: anything that is not an Exception) stops the query
        and frees the slot within about CLEAN_UP_SECONDS, and goes on. SIGKILL can't be caught: the lease runs out.
        """
        caller = Caller(self._request, socket.gethostname(), os.getpid())
        try:
            return self._run(caller.publish())
        except Exception:
            raise  # typed or not: the register tells the next caller how far we came
        except BaseException:
            self._clean_up(caller)
            raise

    def _run(self, steps: Effects[T], until: float | None = None) -> T:
        try:
            effect = next(steps)
            while until is None or time.monotonic() < until:
                effect = self._step(steps, effect)
        except StopIteration as stop:
            result: T = stop.value
            return result
        raise TimeoutError

    def _step(self, steps: Generator[Effect[Any], Any, Any], effect: Effect[Any]) -> Effect[Any]:
        try:
            answer = self._perform[type(effect)](effect)
        except AthenaAssetsError as error:
            return steps.throw(error)
        return steps.send(answer)

    def _clean_up(self, caller: Caller) -> None:
        try:
            self._run(abandon(self._request, caller.session), until=time.monotonic() + CLEAN_UP_SECONDS)
        except (AthenaAssetsError, TimeoutError) as error:
            logger.warning(
                "%s: interrupted, and the slot could not be freed in time (%r). The next caller finishes or replaces "
                "what was begun once the lease has run out.",
                self._request.slot,
                error,
            )

    def _report(self, effect: effects.Report) -> None:
        line = f"{effect.event}: {effect.detail}" if effect.detail else effect.event
        logger.info("%s: %s", self._request.slot, line)
        if self._observe is not None:
            self._observe(line)
