"""What goes wrong in a simulation, and how often.

Not everything goes wrong every time: each schedule draws which kinds of trouble it has, and how bad each is. Where all
kinds strike at once they hide one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from athena_assets.core import effects
from athena_assets.core.effects import Effect


class Chance(Protocol):
    """Where every decision of a simulation comes from: a `random.Random`, or hypothesis's."""

    def random(self) -> float: ...


class Trouble(StrEnum):
    """Everything that goes wrong."""

    # at one call
    KILLED = "process killed"
    INTERRUPTED = "process interrupted"
    PAUSED = "process paused past its lease"
    SUSPENDED = "host suspended, its clock too"
    DENIED = "credentials expired"
    REFUSED = "HTTP 403"
    LOST = "reply lost, applied"
    LATE = "reply lost, applied later"
    UNSENT = "reply lost, never applied"
    SLOW = "reply late"
    THROTTLED = "throttled"
    CONFLICT = "HTTP 409"
    REJECTED = "statement rejected"
    UNKNOWN_VERSION = "upstream version not told"
    # at one query
    INTERNAL = "query failed internally"
    INTERNAL_PARTIAL = "query failed with partial files"
    USER_ERROR = "query failed with a user error"
    ORPHAN = "query restarted inside Athena"
    FOREIGN_KEY = "data manifest names a foreign key"
    NO_MANIFEST = "data manifest missing"
    TOO_SLOW = "query very slow"
    # at any time
    CLOCK_STEP = "a process's clock steps by a day"
    S3_CLOCK_STEP = "S3's clock steps by a day"
    S3_OUTAGE = "S3 outage"
    ATHENA_OUTAGE = "Athena outage"
    GLUE_OUTAGE = "Glue outage"
    TABLE_CHANGED = "somebody changes a Glue table"
    TOKENS_FORGOTTEN = "Athena forgets its tokens"
    QUERIES_FORGOTTEN = "Athena forgets its queries"
    CANCELLED = "somebody cancels a query"
    UPSTREAM = "upstream changes in mid-query"
    STRANGER = "a stranger writes into a location"
    STAGING_LOST = "files of an unfinished publication deleted by a lifecycle rule"
    BACKUP_LOST = "kept files deleted by a lifecycle rule"


_EVERYWHERE = (Trouble.KILLED, Trouble.INTERRUPTED, Trouble.PAUSED, Trouble.SUSPENDED, Trouble.DENIED)
_QUESTION = (Trouble.UNSENT, Trouble.SLOW, Trouble.THROTTLED)
_WRITE = (
    Trouble.LOST,
    Trouble.LATE,
    Trouble.UNSENT,
    Trouble.SLOW,
    Trouble.THROTTLED,
    Trouble.CONFLICT,
    Trouble.REFUSED,
)

AT_CALL: Mapping[type[Effect[Any]], tuple[Trouble, ...]] = {
    effects.ReadObject: _QUESTION,
    effects.ReadUri: _QUESTION,
    effects.ListObjects: _QUESTION,
    effects.ListFolders: _QUESTION,
    effects.ReadPointer: _QUESTION,
    effects.HeadObject: _QUESTION,
    effects.PollQuery: _QUESTION,
    effects.LookForQueries: _QUESTION,
    effects.WriteObject: _WRITE,
    effects.CopyObject: _WRITE,
    effects.DeleteObject: _WRITE,
    effects.MovePointer: _WRITE,
    effects.AbortUploads: (Trouble.LOST, Trouble.UNSENT, Trouble.SLOW, Trouble.THROTTLED, Trouble.REFUSED),
    effects.StartQuery: (
        Trouble.LOST,
        Trouble.LATE,
        Trouble.UNSENT,
        Trouble.SLOW,
        Trouble.THROTTLED,
        Trouble.REJECTED,
    ),
    effects.StopQuery: (Trouble.LOST, Trouble.UNSENT, Trouble.SLOW),
    effects.CountRows: (),
    effects.ResolveUpstreams: (Trouble.UNKNOWN_VERSION,),
    effects.Sleep: (),
}
AT_QUERY = (
    Trouble.INTERNAL,
    Trouble.INTERNAL_PARTIAL,
    Trouble.USER_ERROR,
    Trouble.ORPHAN,
    Trouble.FOREIGN_KEY,
    Trouble.NO_MANIFEST,
    Trouble.TOO_SLOW,
)
ANY_TIME = (
    Trouble.CLOCK_STEP,
    Trouble.S3_CLOCK_STEP,
    Trouble.S3_OUTAGE,
    Trouble.ATHENA_OUTAGE,
    Trouble.GLUE_OUTAGE,
    Trouble.TABLE_CHANGED,
    Trouble.TOKENS_FORGOTTEN,
    Trouble.QUERIES_FORGOTTEN,
    Trouble.CANCELLED,
    Trouble.UPSTREAM,
    Trouble.STRANGER,
    Trouble.STAGING_LOST,
    Trouble.BACKUP_LOST,
)

# Whoever comes next finds the query that was started, by its id or by its token: it is not run for nothing.
HARMLESS = frozenset(
    {
        Trouble.KILLED,
        Trouble.PAUSED,
        Trouble.SUSPENDED,
        Trouble.DENIED,
        Trouble.REFUSED,
        Trouble.LOST,
        Trouble.LATE,
        Trouble.UNSENT,
        Trouble.SLOW,
        Trouble.THROTTLED,
        Trouble.CONFLICT,
        Trouble.UNKNOWN_VERSION,
        Trouble.TOO_SLOW,
        Trouble.S3_CLOCK_STEP,
        Trouble.S3_OUTAGE,
        Trouble.ATHENA_OUTAGE,
        Trouble.GLUE_OUTAGE,
        Trouble.TABLE_CHANGED,
        Trouble.UPSTREAM,
        Trouble.BACKUP_LOST,
    }
)

CALM = 0.1  # of all schedules: nothing goes wrong
MILD = 0.3  # of them: only what is harmless
AT_EACH_CALL = (0.003, 0.01, 0.03)
AT_EACH_QUERY = (0.05, 0.2)
AT_THE_POINTER = 3.0  # times as often: a publication moves it once


@dataclass(slots=True)
class Weather:
    """The troubles of one schedule.

    Args:
        rates: how likely each is at one call, or at one query.
        times: how often those that come at any time come.
    """

    rates: dict[Trouble, float]
    times: dict[Trouble, int]

    def at(self, kinds: Iterable[Trouble], chance: Chance, more: float = 1.0) -> Trouble | None:
        """What strikes now, if anything does: `more` often than the rates say.

        A chance of 0 is calm, which is where hypothesis shrinks to.
        """
        if not self.rates:
            return None
        left = 1.0 - chance.random()
        for kind in kinds:
            left -= more * self.rates.get(kind, 0.0)
            if left <= 0:
                return kind
        return None

    def at_call(self, effect: Effect[Any], chance: Chance) -> Trouble | None:
        more = AT_THE_POINTER if isinstance(effect, effects.MovePointer) else 1.0
        return self.at((*AT_CALL[type(effect)], *_EVERYWHERE), chance, more)


def draw_weather(chance: Chance, excluded: frozenset[Trouble]) -> Weather:
    weather = Weather({}, {})
    drawn = chance.random()
    if drawn < CALM:
        return weather
    mild = drawn < CALM + MILD
    for kind in Trouble:
        if kind in excluded or (mild and kind not in HARMLESS) or chance.random() < 0.65:
            continue
        bad = chance.random()
        if kind in ANY_TIME:
            weather.times[kind] = 1 if bad < 0.5 else 2
        else:
            rates = AT_EACH_QUERY if kind in AT_QUERY else AT_EACH_CALL
            weather.rates[kind] = rates[int(bad * len(rates))]
    return weather
