"""Whose wish a run is, in runs that Dagster and people start after one another."""

from typing import Any

import dagster as dg
import pytest

from athena_assets import Target
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration.request import LONGEST, forced, is_first_try, request_id

KEY = dg.AssetKey(["mart", "orders"])
TARGET = Target(name="mart/orders", query="SELECT 1 AS one", location="s3://lake/orders/")
RETRY = {"dagster/retry_number": "1"}


def start(instance: dg.DagsterInstance, parent: dg.DagsterRun | None = None, **tags: str) -> dg.DagsterRun:
    """A run as Dagster stores it: its root is the first run of the line, whoever started it."""
    arguments: dict[str, Any] = {"tags": {name.replace("__", "/"): value for name, value in tags.items()}}
    if parent is not None:
        arguments |= {"parent_run_id": parent.run_id, "root_run_id": parent.root_run_id or parent.run_id}
    run = dg.DagsterRun(job_name="job", **arguments)
    return instance.add_run(run)


def wish(instance: dg.DagsterInstance, run: dg.DagsterRun, partition: str | None = None) -> str:
    return request_id(run, instance, KEY, partition)


def test_a_run_has_one_wish_for_each_asset_and_partition(instance: dg.DagsterInstance) -> None:
    run = start(instance)
    assert wish(instance, run) == f"{run.run_id}/mart/orders"
    assert wish(instance, run, "2026-01-01") == f"{run.run_id}/mart/orders/partition=2026-01-01"
    assert request_id(run, instance, dg.AssetKey("other"), None) != wish(instance, run)


def test_dagsters_own_retries_keep_the_wish(instance: dg.DagsterInstance) -> None:
    first = start(instance)
    second = start(instance, first, dagster__retry_number="1")
    third = start(instance, second, dagster__retry_number="2")
    assert wish(instance, first) == wish(instance, second) == wish(instance, third)


def test_a_persons_reexecution_is_a_new_wish(instance: dg.DagsterInstance) -> None:
    first = start(instance)
    again = start(instance, first)
    assert again.root_run_id == first.run_id
    assert wish(instance, again) != wish(instance, first)


def test_the_retry_of_a_persons_reexecution_keeps_that_wish(instance: dg.DagsterInstance) -> None:
    first = start(instance)
    again = start(instance, first)
    retry = start(instance, again, dagster__retry_number="2")
    assert retry.root_run_id == first.run_id
    assert wish(instance, retry) == wish(instance, again)


def test_only_dagsters_own_retries_may_find_an_earlier_publication_of_theirs(instance: dg.DagsterInstance) -> None:
    first = start(instance)
    assert is_first_try(first, step_retries=0)
    assert not is_first_try(first, step_retries=1)
    assert is_first_try(start(instance, first), step_retries=0)
    assert not is_first_try(start(instance, first, dagster__retry_number="1"), step_retries=0)


def test_a_retry_of_a_deleted_run_falls_back_to_the_root(instance: dg.DagsterInstance) -> None:
    first = start(instance)
    retry = start(instance, first, dagster__retry_number="1")
    expected = wish(instance, first)
    instance.delete_run(first.run_id)
    assert wish(instance, retry) == expected


def test_long_keys_make_short_ids_that_differ(instance: dg.DagsterInstance) -> None:
    run = start(instance)
    one, other = (wish(instance, run, "p" * 1_000 + end) for end in "ab")
    assert one != other
    assert max(len(one), len(other)) <= LONGEST
    assert one.startswith(run.run_id)


@pytest.mark.parametrize(
    ("tag", "configured", "expected"), [("true", False, True), ("false", True, True), ("false", False, False)]
)
def test_either_the_tag_or_the_launchpad_forces(
    instance: dg.DagsterInstance, tag: str, configured: bool, expected: bool
) -> None:
    assert forced(start(instance, athena_assets__force=tag), configured, TARGET) is expected
    assert forced(start(instance), configured, TARGET) is configured


@pytest.mark.parametrize("value", ["", "yes", "True", "1"])
def test_any_other_value_of_the_tag_is_refused_by_name(instance: dg.DagsterInstance, value: str) -> None:
    with pytest.raises(InvalidTarget, match="athena_assets/force") as refused:
        forced(start(instance, athena_assets__force=value), False, TARGET)
    assert repr(value) in str(refused.value)
