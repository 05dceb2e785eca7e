"""Which troubles explain that a caller ends with an error."""

from __future__ import annotations

from collections.abc import Mapping

from athena_assets import errors
from athena_assets_tests.simulation.weather import Trouble

_SILENCE = frozenset(
    {
        Trouble.LOST,
        Trouble.LATE,
        Trouble.UNSENT,
        Trouble.THROTTLED,
        Trouble.CONFLICT,
        Trouble.S3_OUTAGE,
        Trouble.ATHENA_OUTAGE,
        Trouble.GLUE_OUTAGE,
    }
)

REASONS: Mapping[type[errors.AthenaAssetsError], frozenset[Trouble]] = {
    # Patience is measured by a clock that jumps, and by one that goes on while its process does not.
    errors.OutcomeUnknown: _SILENCE | {Trouble.CLOCK_STEP, Trouble.PAUSED, Trouble.SLOW},
    errors.ServiceUnavailable: _SILENCE,
    errors.AccessDenied: frozenset({Trouble.DENIED, Trouble.REFUSED}),
    errors.LocationNotEmpty: frozenset({Trouble.STRANGER}),
    errors.PublicationLost: frozenset({Trouble.STAGING_LOST, Trouble.BACKUP_LOST, Trouble.STRANGER}),
    # A stranger's object at a direct location: Athena refuses the query.
    errors.QueryUserError: frozenset({Trouble.USER_ERROR, Trouble.REJECTED, Trouble.STRANGER}),
    errors.QueryThrottled: frozenset({Trouble.THROTTLED}),
    errors.QueryInternalError: frozenset(
        {Trouble.INTERNAL, Trouble.INTERNAL_PARTIAL, Trouble.TOKENS_FORGOTTEN, Trouble.QUERIES_FORGOTTEN}
    ),
    # A leftover beside a result without rows can't be told from a result whose data manifest is lost.
    errors.ResultInvalid: frozenset({Trouble.FOREIGN_KEY, Trouble.NO_MANIFEST, Trouble.STAGING_LOST, Trouble.ORPHAN}),
    errors.MixedLocation: frozenset({Trouble.ORPHAN, Trouble.STRANGER}),
}
"""An error that is not here has no reason, whatever happens; the ledger knows what callers bring upon themselves."""
