"""The fingerprints by which publications are recognised."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from athena_assets.core.location import Location
from athena_assets.core.output import OutputFormat


@dataclass(frozen=True, slots=True)
class UpstreamVersion:
    """The version of one upstream table; None if nothing tells it."""

    table: str
    version: str | None
    given: bool = False  # by the caller; it is taken to hold for the whole request


def definition_fingerprint(
    *, query: str, output: OutputFormat, location: Location, partition: str | None, catalog: str, database: str
) -> str:
    """What is asked for, whatever the data: a request id always comes back with the same one. 64 hex digits."""
    return _fingerprint("definition/1", [query, output.properties(), str(location), partition, catalog, database])


def generation_fingerprint(definition: str, upstreams: tuple[UpstreamVersion, ...]) -> str:
    """What should be published: the definition and the versions of what it reads. 64 hex digits."""
    return _fingerprint(
        "generation/1",
        [definition, [[each.table, each.version] for each in sorted(upstreams, key=lambda each: each.table)]],
    )


def request_token(
    *, location: Location, generation: str, fence: int, attempt: int, workgroup: str | None, nonce: str
) -> str:
    """The ClientRequestToken of one attempt: 64 characters (Athena takes 32-128).

    The workgroup is in it because Athena does not compare it; parameter values are, through the generation. The nonce
    keeps a token fresh after a register was lost.
    """
    return _fingerprint("token/1", [str(location), generation, fence, attempt, workgroup, nonce])


def _fingerprint(kind: str, content: object) -> str:
    return hashlib.sha256(json.dumps([kind, content], separators=(",", ":")).encode()).hexdigest()
