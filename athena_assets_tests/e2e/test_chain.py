"""Requests whose publications the register has forgotten: more than 32 real publications lie in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from athena_assets import Published, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.core.register import HISTORY
from athena_assets.local import EmbeddedAws, Fault, HoldReply
from athena_assets_tests.e2e.lake import Lake, ThreadCaller, done, wait_until

LINE = HISTORY + 6
CHEAP = "SELECT n FROM numbers WHERE n < 0"  # no files


@pytest.fixture(scope="module")
def line(server: EmbeddedAws) -> Iterator[Lake]:
    """A lake whose slot `line` has LINE publications, of the requests 1, 2, 3 ..."""
    server.reset()
    lake = Lake(server)
    publish_line(lake, "line", range(1, LINE + 1))
    yield lake
    server.reset()


def publish_line(lake: Lake, name: str, numbers: range) -> None:
    target, publisher = lake.target(name, query=CHEAP, keep_previous=0), lake.publisher()
    for number in numbers:
        outcome = publisher.unload(target, force=True, request_id=f"request {number}", first_try=True)
        assert isinstance(outcome, Published)


def manifests_read(lake: Lake) -> int:
    return len(lake.aws.requests("s3", "GetObject", "/manifests/"))


@pytest.mark.parametrize("number", [1, LINE - HISTORY - 1, LINE - HISTORY, LINE])
def test_a_retry_finds_its_publication_however_long_ago(line: Lake, number: int) -> None:
    target = line.target("line", query=CHEAP)
    queries = len(line.queries(target.location))
    outcome = line.publisher().unload(target, request_id=f"request {number}", force=True)
    assert isinstance(outcome, Published)
    assert outcome.publication.request == f"request {number}"
    assert outcome.publication.fence == number
    assert outcome.superseded == (number < LINE)
    assert len(line.queries(target.location)) == queries


def test_a_request_id_of_long_ago_does_not_come_back_with_another_query(line: Lake) -> None:
    with pytest.raises(errors.RequestConflict):
        line.publisher().unload(line.target("line", query="SELECT n FROM numbers"), request_id="request 1")


def test_the_search_reads_one_manifest_for_each_32_publications(line: Lake) -> None:
    target = line.target("old", query=CHEAP, keep_previous=0)
    publish_line(line, "old", range(1, 2))
    line.prolong(target.location, 10 * HISTORY)
    before = manifests_read(line)
    outcome = line.publisher().unload(target, request_id="request 1")
    assert done(outcome).publication.fence == 1
    assert manifests_read(line) - before == 9  # the last 33 are in the register


@pytest.mark.parametrize("arguments", [{}, {"request_id": "new", "first_try": True}])
def test_a_new_request_does_not_search(line: Lake, arguments: dict[str, object]) -> None:
    before = manifests_read(line)
    line.publisher().unload(line.target("line", query=CHEAP, reuse="always"), **arguments)  # type: ignore[arg-type]
    assert manifests_read(line) == before


@pytest.mark.parametrize("damage", [None, b"{", b'{"schema": 99}'], ids=["gone", "damaged", "of a newer version"])
def test_a_manifest_that_is_no_more_is_passed_over(line: Lake, damage: bytes | None) -> None:
    key = keys.manifest_key(parse_location(line.target("line").location), LINE - HISTORY, 1)
    body = line.s3.get_object(Bucket=line.bucket, Key=key)["Body"].read()
    line.s3.delete_object(Bucket=line.bucket, Key=key)
    if damage is not None:
        line.s3.put_object(Bucket=line.bucket, Key=key, Body=damage)
    outcome = line.publisher().unload(line.target("line", query=CHEAP), request_id="request 2")
    assert done(outcome).publication.fence == 2
    line.s3.put_object(Bucket=line.bucket, Key=key, Body=body)


def test_a_broken_chain_is_said_and_nothing_is_published_a_second_time(line: Lake) -> None:
    target, publisher = line.target("line", query=CHEAP), line.publisher()
    location = parse_location(target.location)
    doomed = [keys.manifest_key(location, fence, 1) for fence in range(LINE - HISTORY, LINE + 1)]
    bodies = {key: line.s3.get_object(Bucket=line.bucket, Key=key)["Body"].read() for key in doomed}
    queries, register = len(line.queries(target.location)), line.register(target.location)
    for key in doomed:
        line.s3.delete_object(Bucket=line.bucket, Key=key)
    with pytest.raises(errors.ChainBroken, match=r"request 2 has published before fence 6 can't be told"):
        publisher.unload(target, request_id="request 2", force=True)
    with pytest.raises(errors.ChainBroken):
        publisher.restore(location, 1, request_id="request 2")
    assert len(line.queries(target.location)) == queries
    assert line.register(target.location) == register
    # What the register itself remembers needs no chain.
    assert done(publisher.unload(target, request_id=f"request {LINE - 1}")).publication.fence == LINE - 1
    for key, body in bodies.items():
        line.s3.put_object(Bucket=line.bucket, Key=key, Body=body)


def test_a_commit_whose_reply_comes_after_33_others_is_found(lake: Lake) -> None:
    target = lake.target("slow", query=CHEAP, keep_previous=0)
    # acquire, note the query id, commit
    rule = lake.aws.faults.add(Fault(HoldReply(), "s3", "PutObject", "register.json", skip=2))
    paused = ThreadCaller(lake.publisher(), target, {"force": True}).start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the commit is applied and its reply is held")
    publish_line(lake, "slow", range(HISTORY + 2))
    lake.aws.faults.release(rule)
    outcome = paused.join().outcome
    assert isinstance(outcome, Published)
    assert outcome.publication.fence == 1
    assert outcome.superseded
    assert len(lake.queries(target.location)) == HISTORY + 3
