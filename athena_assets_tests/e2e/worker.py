"""The parent of processes that publish: it imports everything once and forks a worker for each socket that it is sent.

A worker publishes what it reads from its socket, one JSON message a line: first the settings, then one message for each
publication. It says {"story": line} as things happen, and at the end {"outcome": ...} or {"error": ...}. SIGTERM
interrupts it as it does the command line. When whoever started the parent ends, the parent and all workers do.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from athena_assets import AthenaAssetsError, AwsSettings, Publisher, Skipped, Target
from athena_assets.aws import driver

driver.CLEAN_UP_SECONDS = 60.0  # no test depends on how fast an interrupted worker is


def main() -> None:
    control = socket.socket(fileno=sys.stdin.fileno())
    children: set[int] = set()
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            break
        children -= set(reaped())
        child = os.fork()
        if child == 0:
            control.detach()
            become_worker(socket.socket(fileno=descriptors[0]))
        os.close(descriptors[0])
        children.add(child)
        control.sendall(f"{child}\n".encode())
    for child in children - set(reaped()):
        os.kill(child, signal.SIGKILL)


def reaped() -> list[int]:
    """Children that have ended. Until they are named here, no other process can have their id."""
    found = []
    try:
        while (child := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            found.append(child)
    except ChildProcessError:
        return found
    return found


def become_worker(channel: socket.socket) -> NoReturn:
    signal.signal(signal.SIGTERM, _leave)
    try:
        work(channel)
    finally:
        os._exit(0)  # whatever ended it, a trace on the terminal of the tests would tell nobody anything


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def work(channel: socket.socket) -> None:
    lines = channel.makefile("r")
    settings = json.loads(lines.readline())

    def say(**message: Any) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    publisher = Publisher(
        AwsSettings(
            endpoint_url=settings["endpoint_url"],
            region="us-east-1",
            access_key_id="testing",
            secret_access_key="testing",
            output_location=settings["output_location"],
        ),
        lease_seconds=settings["lease_seconds"],
    )
    for line in lines:
        publish(publisher, json.loads(line), say)


def publish(publisher: Publisher, message: dict[str, Any], say: Callable[..., None]) -> None:
    target = Target(**message["target"])
    say(clock=time.time())
    try:
        outcome = publisher.unload(target, observe=lambda line: say(story=line), **message["arguments"])
    except AthenaAssetsError as error:
        say(error=type(error).__name__, message=str(error))
    else:
        assert not isinstance(outcome, Skipped)
        say(
            outcome=type(outcome).__name__,
            query_id=outcome.publication.query_id,
            adopted=getattr(outcome, "adopted", False),
            request=outcome.publication.request,
        )


if __name__ == "__main__":
    main()
