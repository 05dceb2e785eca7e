"""From a Dagster run to a request: whose wish it is, and whether it insists on a new query."""

import hashlib

import dagster as dg

from athena_assets.core.target import Target

FORCE_TAG = "athena_assets/force"
"""Run tag with the values `true` and `false`: publish anew, whatever there is."""

RETRY_NUMBER_TAG = "dagster/retry_number"
"""Dagster's own tag on a run that it started by itself because another one failed."""

LONGEST = 200  # characters of a request id


def request_id(run: dg.DagsterRun, instance: dg.DagsterInstance, asset_key: dg.AssetKey, partition: str | None) -> str:
    """The identity of a wish: run, asset (each is one step) and partition.

    Steps and runs that Dagster tries again by itself keep the id, so that they find what their predecessor published.
    A run that a person executes again is a new wish, and so are the retries of *that* run. Its `root_run_id` names the
    very first run all the same, which is why the line of parents is followed instead.
    """
    origin = run
    while RETRY_NUMBER_TAG in origin.tags and origin.parent_run_id is not None:
        parent = instance.get_run_by_id(origin.parent_run_id)
        if parent is None:  # deleted
            return _readable(origin.root_run_id or origin.parent_run_id, asset_key, partition)
        origin = parent
    return _readable(origin.run_id, asset_key, partition)


def is_first_try(run: dg.DagsterRun, step_retries: int) -> bool:
    """Whether nobody can have used the request id before: neither Dagster's own retry of the step nor of the run."""
    return step_retries == 0 and RETRY_NUMBER_TAG not in run.tags


def _readable(run_id: str, asset_key: dg.AssetKey, partition: str | None) -> str:
    text = "/".join((run_id, *asset_key.path, *(() if partition is None else (f"partition={partition}",))))
    if len(text) <= LONGEST and text.isascii() and text.isprintable():
        return text
    return f"{run_id}/{hashlib.sha256(text.encode()).hexdigest()}"


def forced(run: dg.DagsterRun, configured: bool, target: Target) -> bool:
    """True if the launchpad's `force` or the run tag says so.

    Raises:
        InvalidTarget: if the tag has another value than `true` or `false`.
    """
    value = run.tags.get(FORCE_TAG, "false")
    if value not in ("true", "false"):
        raise target.invalid("force", f"the run tag {FORCE_TAG} has the value {value!r}.", "Use true or false.")
    return configured or value == "true"
