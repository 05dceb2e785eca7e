"""What failed attempts leave is collected by the next owner; what a live attempt or a kept result needs is not."""

from __future__ import annotations

from athena_assets.core.location import parse_location
from athena_assets_tests.e2e.faults.ending import PATIENT, assert_ends, end, files, staging
from athena_assets_tests.e2e.lake import Lake, ThreadCaller, wait_until


def test_staging_of_a_failed_attempt_is_collected_by_the_next_owner(lake: Lake) -> None:
    target, publisher = lake.target(retries=0), lake.publisher(PATIENT)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=3)
    failed = end(publisher, target)
    assert_ends(
        lake,
        target,
        [failed],
        ["QueryInternalError"],
        queries=["FAILED"],
        register="free 1",
        location=[],
        staged=staging(1, 3),
        rows=range(0),
    )
    assert_ends(
        lake,
        target,
        [end(publisher, target)],
        ["Published"],
        queries=["FAILED", "SUCCEEDED"],
        register="free 2",
        location=files(2),
    )


def test_collection_beside_an_attempt_touches_nothing(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher(PATIENT)
    first = [end(publisher, target), end(publisher, target, force=True)]
    hold = lake.aws.faults.hold_queries(sql_contains=target.name, at="written")
    caller = ThreadCaller(publisher, target, {"force": True}).start()
    lake.wait_until_held(hold)
    wait_until(lambda: caller.told("running"), "the query id is noted")
    before = lake.listing(f"s3://{lake.bucket}/", stamped=True)
    assert publisher.collect(parse_location(target.location), delete=True).objects == ()
    assert lake.listing(f"s3://{lake.bucket}/", stamped=True) == before
    lake.aws.faults.release(hold)
    assert_ends(
        lake,
        target,
        [*first, caller.end()],
        ["Published"] * 3,
        queries=["SUCCEEDED"] * 3,
        register="free 3",
        location=files(3),
    )
    restored = publisher.restore(parse_location(target.location), 2)  # what is kept was not collected either
    assert restored.fence == 4
    lake.assert_published_once(target.location)


def test_collection_beside_a_lost_query_takes_only_what_nobody_can_publish(lake: Lake) -> None:
    target, publisher = lake.target(timeout=0.5, retries=0), lake.publisher(PATIENT)
    hold = lake.aws.faults.hold_queries(sql_contains="/staging/00000001-", at="written")
    timed_out = end(publisher, target)
    lake.aws.faults.release(hold)
    found = publisher.collect(parse_location(target.location), delete=True)
    assert len(found.staging) == 4
    assert_ends(
        lake,
        target,
        [timed_out],
        ["QueryTimedOut"],
        queries=["CANCELLED"],
        register="free 1",
        location=[],
        rows=range(0),
    )
