"""Slot: one concrete S3 prefix, the unit of exclusion, as one caller sees it."""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets.core import policy
from athena_assets.core.location import Location


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the slot is, who asks (for errors), and for how many seconds an unanswered call is tried again."""

    location: Location
    caller: str
    patience: float = policy.PATIENCE_SECONDS

    def __str__(self) -> str:
        return str(self.location)

    @property
    def bucket(self) -> str:
        return self.location.bucket
