"""Exit statuses: what a script can tell without reading a message. docs/cli.md has the same table."""

from __future__ import annotations

from enum import IntEnum

from athena_assets import errors


class Exit(IntEnum):
    """`BUSY` and `AWS` may pass without anybody's doing, `NEGATIVE` if the query or its tables change."""

    DONE = 0
    NEGATIVE = 1
    USAGE = 2
    BUSY = 3
    AWS = 4
    ATTENTION = 5
    BUG = 70
    INTERRUPTED = 130  # by Ctrl-C; by another signal: 128 and its number


MEANINGS = {
    Exit.DONE: "done: published, reused, or the answer is yes",
    Exit.NEGATIVE: "the query failed, or the answer is no: not clean, kept, blocked or published; no register",
    Exit.USAGE: "wrong usage, a target that is wrong or not found, settings that contradict each other",
    Exit.BUSY: "another caller holds the slot, or a foreign query writes there; also where on_conflict is skip",
    Exit.AWS: "AWS refused a call or did not answer, or it is not known whether a write was applied",
    Exit.ATTENTION: "a person has to look: foreign objects, a blocked slot, a register or manifest gone or unreadable",
    Exit.BUG: "a bug of this program, or of the module that holds the target; its trace is shown",
    Exit.INTERRUPTED: "interrupted (Ctrl-C; SIGTERM: 143, SIGHUP: 129); the query was stopped and the slot freed",
}


class BadUsage(errors.AthenaAssetsError):
    """The command line asks for what can't be done. Nothing was sent to AWS."""


# The first that matches holds; every other error of ours is NEGATIVE.
_EXITS: tuple[tuple[tuple[type[errors.AthenaAssetsError], ...], Exit], ...] = (
    (
        (errors.InvalidTarget, errors.LocationOverlaps, errors.RequestConflict, errors.WorkgroupConflict, BadUsage),
        Exit.USAGE,
    ),
    ((errors.SlotBusy, errors.ForeignQueryRunning), Exit.BUSY),
    (
        (errors.AccessDenied, errors.ServiceUnavailable, errors.OutcomeUnknown, errors.ExecutionFailed),
        Exit.AWS,
    ),
    (
        (
            errors.DirtyLocation,
            errors.MixedLocation,
            errors.LocationNotEmpty,
            errors.ModeChanged,
            errors.TableNotOurs,
            errors.RegisterUnreadable,
            errors.RegisterVanished,
            errors.ChainBroken,
            errors.NotRebuilt,
        ),
        Exit.ATTENTION,
    ),
)


def exit_of(kind: type[errors.AthenaAssetsError]) -> Exit:
    """The exit status of an error of this class."""
    return next((code for kinds, code in _EXITS if issubclass(kind, kinds)), Exit.NEGATIVE)
