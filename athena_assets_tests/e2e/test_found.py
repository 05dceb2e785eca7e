"""Schedules and inputs that once went wrong, found by somebody who tried to break it; each with the right end."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from athena_assets import Published, Publisher, Reused, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, HoldRequest
from athena_assets_tests.e2e.lake import ROWS, Lake, wait_until


@pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf"), 1e-9, True, "5"])
def test_a_lease_that_is_none_is_refused(lake: Lake, lease: Any) -> None:
    with pytest.raises(errors.InvalidTarget, match="lease_seconds"):
        Publisher(lake.settings, lease_seconds=lease)


@pytest.mark.parametrize("arguments", [{"request_id": 5}, {"run": 3}, {"partition": 5}])
def test_identities_of_another_type_are_refused_and_wedge_nothing(lake: Lake, arguments: dict[str, Any]) -> None:
    target, publisher = lake.target(), lake.publisher()
    with pytest.raises(errors.InvalidTarget):
        publisher.unload(target, **arguments)
    assert lake.register(target.location) is None
    assert isinstance(publisher.unload(target), Published)


def test_a_restore_that_is_taken_over_says_so(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    publisher.unload(target, force=True)
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", "published/", skip=1))
    location = parse_location(target.location)
    ended: list[object] = []

    def restore() -> None:
        try:
            ended.append(publisher.restore(location, 1, request_id="r"))
        except errors.AthenaAssetsError as error:
            ended.append(error)

    thread = threading.Thread(target=restore, daemon=True)
    thread.start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the restore copies")
    with pytest.raises(errors.SlotBusy, match="held by"):
        publisher.restore(location, 1)
    assert isinstance(lake.publisher().unload(target), Published | Reused)
    lake.aws.faults.release(rule)
    thread.join(30)
    assert isinstance(ended[0], errors.SlotBusy)
    assert publisher.restore(location, 1, request_id="r").restored == 1
    lake.assert_published_once(target.location)


def test_another_targets_publication_is_never_adopted(lake: Lake) -> None:
    inner = lake.target("inner", location=f"s3://{lake.bucket}/published/out/inner/")
    outer = lake.target("outer", location=f"s3://{lake.bucket}/published/out/", adopt_existing=True)
    publisher = lake.publisher()
    publisher.unload(inner)
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys.register_key(parse_location(inner.location)))
    with pytest.raises(errors.LocationNotEmpty, match="out/inner"):
        publisher.unload(outer)
    assert lake.rows(inner.location) == Counter(range(ROWS))
