"""The name under which Dagster counts the runs of one target.

A limit throttles; the register guarantees. Two processes that claim a pool's only place at one moment can both get it,
and runs that a limit keeps apart are still runs: whether one publishes, joins or reuses is decided by the register
alone. How many queries N runs of one target start when they are launched at once:

| upstream versions | no limit                       | one at a time by the pool                    |
|-------------------|--------------------------------|----------------------------------------------|
| known             | 1; the others join or reuse it | 1; the others reuse it                       |
| unknown           | 1 for all that overlap with it | N, one after another: there is none to join  |

So the pool does not always save queries: over unknown versions it keeps apart what would have been shared. It saves
what waiting runs would hold (a process each), and keeps forced runs in line.
"""

from athena_assets.core.target import Target

CONCURRENCY_KEY_TAG = "dagster/concurrency_key"
"""Op tag: the same limit as the pool, for those who search by tag."""


def pool_name(target: Target) -> str:
    """The canonical location of the target: one pool for a target, shared by its partitions.

    A pool's name holds no space (Dagster: `^\\S+$`), so ` ` is written `%20`, and `%` is written `%25` to keep two
    locations apart.
    """
    if target.partitioned:
        # No partition is known here: its placeholder stays, and the others have their values.
        location = target.location
        for name, value in target.parameters.items():
            location = location.replace(f"${{{name}}}", value)
        location = location.rstrip("/") + "/"
    else:
        location = str(target.location_for(None))
    return location.replace("%", "%25").replace(" ", "%20")
