"""Keeps the demo on this machine, whatever its environment says.

As a module it runs another one under the same rules: `python -m athena_assets.demo.guard <module> <arguments>`.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping

from athena_assets.errors import AthenaAssetsError

LOOPBACK = "127.0.0.1"

_FOREIGN = ("AWS_", "MOTO_", "DAGSTER_", "ATHENA_ASSETS_")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class EndpointRefused(AthenaAssetsError):
    """Something wanted to connect to another host than 127.0.0.1. Nothing was sent."""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what the user has set for AWS, Dagster and proxies; profiles are not read."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_FOREIGN) and name.upper() not in _PROXIES
    }
    return kept | {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
    }


def refuse_other_hosts() -> None:
    """From now on, and for good, this process connects to 127.0.0.1 and to nothing else on any network.

    The interpreter itself asks before it connects (PEP 578), so a forgotten setting can't get around it.
    """
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event != "socket.connect":
        return
    address = arguments[1]
    if not isinstance(address, tuple) or address[0] == LOOPBACK:  # no tuple: a socket of this machine's file system
        return
    raise EndpointRefused(
        f"{address[0]}:{address[1]}",
        f"The demo connects to {LOOPBACK} only.",
        not_done="Nothing was sent.",
        next_step="To publish on AWS, use the assets themselves: see the README.",
    )


if __name__ == "__main__":
    refuse_other_hosts()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
