"""How the test of a fault ends: what callers were told, Athena's history, the register and every S3 key, in one row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence

from athena_assets import Published, Publisher, Reused, Skipped, Target, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault
from athena_assets.local.faults import Action
from athena_assets_tests.e2e.lake import ROWS, Lake, wait_until

DAY = 86_400.0
# Seconds: a lease that neither ends nor is renewed in a test, however slow the machine. Who takes over does it because
# S3's clock has gone on by a day.
PATIENT = 600.0


def files(fence: int, count: int = 4, attempt: int = 1) -> list[str]:
    """The names, below the location, of the files of one publication."""
    return [f"{fence:08d}-{attempt:02d}-{index:05d}" for index in range(count)]


def staging(fence: int, count: int, attempt: int = 1) -> list[str]:
    """`count` files in the staging of one attempt."""
    return [f"{fence:08d}-{attempt:02d}"] * count


def end(publisher: Publisher, target: Target, **arguments: object) -> Published | Reused | Skipped | Exception:
    """How a call ended: its outcome or its error."""
    try:
        return publisher.unload(target, **arguments)  # type: ignore[arg-type]
    except errors.AthenaAssetsError as error:
        return error


def on_register(action: Action, *, skip: int = 0, times: int | None = 1) -> Fault:
    """A fault for writes of a register: the acquisition, the query's id, the commit and the release, if none renews."""
    return Fault(action, "s3", "PutObject", "register.json", times=times, skip=skip)


def wait_for(lake: Lake, rule: str, times: int = 1) -> None:
    """Until the rule has caught so many requests, or more."""
    wait_until(lambda: lake.aws.faults.hits(rule) >= times, f"{times} request(s) are caught")


def wait_until_all_arrived(lake: Lake) -> None:
    """Until whatever was held has been applied, or refused, whether or not anybody is there to hear it."""
    wait_until(lambda: all(each.status != 0 for each in lake.aws.requests()), "every request is answered")


def assert_ends(
    lake: Lake,
    target: Target,
    ended: Sequence[object],
    told: Sequence[str],
    *,
    queries: Sequence[str],
    register: str | None,
    location: Collection[str] | int,
    staged: Sequence[str] = (),
    rows: range | None = range(ROWS),
) -> None:
    """All that counts, exactly.

    Args:
        ended: what the callers ended with: outcomes, errors, or what a worker process said.
        told: the class names of these.
        queries: the states of all queries of the slot in Athena's history, oldest first.
        register: "<state> <fence>"; None: there is none.
        location: every key under the location, below it, see `files`; how many, where Athena chose their names.
        staged: the owner of every object under the slot's staging; see `staging`.
        rows: what a reader of the location finds, each once; None: not files of the table only.
    """
    assert [_name(each) for each in ended] == list(told), ended
    assert [each.state for each in lake.queries(target.location)] == list(queries)
    found = lake.register(target.location)
    assert (None if found is None else f"{found.state} {found.fence}") == register
    prefix = parse_location(target.location).prefix
    present = lake.listing(target.location)
    names = sorted(key.removeprefix(prefix) for key in present)
    assert (len(names) if isinstance(location, int) else names) == (
        location if isinstance(location, int) else sorted(location)
    )
    root = keys.staging_root(parse_location(target.location))
    owners = [key.removeprefix(root)[: len("00000001-01")] for key in lake.staged(target.location)]
    assert sorted(owners) == sorted(staged)
    if rows is not None:
        assert lake.rows(target.location) == Counter(rows)
    publication = None if found is None or found.state != "free" else found.publication
    if publication is not None and not publication.lost:
        manifest = json.loads(lake.s3.get_object(Bucket=lake.bucket, Key=publication.manifest)["Body"].read())
        assert {file["key"] for file in manifest["files"]} <= set(present)


def _name(ended: object) -> str:
    if isinstance(ended, dict):
        return str(ended.get("outcome") or ended["error"])
    return type(ended).__name__
