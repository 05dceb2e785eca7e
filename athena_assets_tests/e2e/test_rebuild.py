"""A register that was deleted or damaged is made anew, and no old owner can publish afterwards."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from athena_assets import Published, Reused, Target, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.core.register import HISTORY
from athena_assets.local import Fault, HoldReply, HoldRequest, Respond, RespondAfterApply
from athena_assets.local.faults import Action
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.processes import processes


def register_key(target: Target) -> str:
    return keys.register_key(parse_location(target.location))


def delete_register(lake: Lake, target: Target) -> None:
    lake.s3.delete_object(Bucket=lake.bucket, Key=register_key(target))


def damage_register(lake: Lake, target: Target) -> None:
    lake.s3.put_object(Bucket=lake.bucket, Key=register_key(target), Body=b'{"schema": 1, "fence": 70, "sta')


def rebuild(lake: Lake, target: Target, publication: str | None = None) -> None:
    lake.publisher().rebuild(parse_location(target.location), write=True, publication=publication)


def names(lake: Lake, target: Target) -> list[str]:
    found = lake.publisher().rebuild(parse_location(target.location), write=False)
    return [each.name for each in found.candidates]


@pytest.mark.long
@pytest.mark.parametrize("lose", [delete_register, damage_register])
def test_the_rebuilt_register_names_what_readers_see_and_remembers_what_came_before(
    lake: Lake, lose: Callable[[Lake, Target], None]
) -> None:
    target, publisher = lake.target(keep_previous=2), lake.publisher()
    publisher.unload(target, request_id="first")
    publisher.unload(target, request_id="second", force=True)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    publisher.unload(target, request_id="third")
    before, files = lake.register(target.location), lake.listing(target.location)
    assert before is not None
    lose(lake, target)
    with pytest.raises((errors.RegisterVanished, errors.RegisterUnreadable), match="athena-assets rebuild"):
        publisher.unload(target)
    rebuild(lake, target)
    after = lake.register(target.location)
    assert after is not None
    assert (after.publication, after.history, after.kept) == (before.publication, before.history, before.kept)
    assert after.fence > before.fence
    assert lake.listing(target.location) == files
    assert len(lake.queries(target.location)) == 3
    assert isinstance(publisher.unload(target), Reused)
    assert done(publisher.unload(target, request_id="first")).publication.fence == 1
    publisher.restore(parse_location(target.location), 1)
    lake.assert_published_once(target.location)
    publisher.unload(target, force=True)
    lake.assert_published_once(target.location, range(ROWS + 10))


def test_looking_first_changes_nothing(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    delete_register(lake, target)
    before = lake.listing(f"s3://{lake.bucket}/")
    found = publisher.rebuild(parse_location(target.location), write=False)
    assert found.told
    assert [(each.name, each.present, each.proved) for each in found.candidates] == [("00000001-01", 4, True)]
    assert lake.listing(f"s3://{lake.bucket}/") == before


def test_a_damaged_register_is_kept_aside_and_its_fence_is_passed(lake: Lake) -> None:
    target = lake.target()
    lake.publisher().unload(target)
    damage_register(lake, target)
    body = lake.s3.get_object(Bucket=lake.bucket, Key=register_key(target))["Body"].read()
    rebuild(lake, target)
    aside = lake.listing(f"s3://{lake.bucket}/{keys.slot_prefix(parse_location(target.location))}damaged/")
    assert [lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() for key in aside] == [body]
    register = lake.register(target.location)
    assert register is not None
    assert register.fence > 70


@pytest.mark.parametrize(
    "action", [Respond(503, "SlowDown"), RespondAfterApply(500, "InternalError"), Respond(409, "Conflict")]
)
@pytest.mark.parametrize("write", ["register.json", "/damaged/"])
def test_a_doubtful_answer_while_rebuilding_is_resolved_by_looking(lake: Lake, write: str, action: Action) -> None:
    target = lake.target()
    lake.publisher().unload(target)
    damage_register(lake, target)
    rule = lake.aws.faults.add(Fault(action, "s3", "PutObject", write))
    rebuild(lake, target)
    assert lake.aws.faults.hits(rule) == 1
    lake.assert_published_once(target.location)


def test_a_register_that_can_be_read_is_left_alone(lake: Lake) -> None:
    target = lake.target()
    lake.publisher().unload(target)
    before = lake.register(target.location)
    with pytest.raises(errors.NotRebuilt, match="can be read"):
        rebuild(lake, target)
    assert lake.register(target.location) == before


def test_a_register_of_a_newer_version_is_not_taken_for_damaged(lake: Lake) -> None:
    target = lake.target()
    lake.publisher().unload(target)
    lake.s3.put_object(Bucket=lake.bucket, Key=register_key(target), Body=b'{"schema": 2}')
    with pytest.raises(errors.NotRebuilt, match="Upgrade"):
        rebuild(lake, target)


def test_an_old_version_that_was_brought_back_is_told_by_the_manifests(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    old = lake.s3.get_object(Bucket=lake.bucket, Key=register_key(target))["Body"].read()
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    publisher.unload(target)
    lake.s3.put_object(Bucket=lake.bucket, Key=register_key(target), Body=old)
    rebuild(lake, target)
    lake.assert_published_once(target.location, range(ROWS + 10))
    assert isinstance(publisher.unload(target), Reused)


def test_a_slot_that_never_published_gets_a_free_register(lake: Lake) -> None:
    target, publisher = lake.target(query="SELECT nothing FROM numbers"), lake.publisher()
    with pytest.raises(errors.QueryUserError):
        publisher.unload(target)
    damage_register(lake, target)
    rebuild(lake, target)
    register = lake.register(target.location)
    assert register is not None
    assert (register.state, register.publication) == ("free", None)


def test_a_location_that_was_never_used_is_not_given_a_register(lake: Lake) -> None:
    target = lake.target()
    with pytest.raises(errors.NotRebuilt, match="nothing was ever published here"):
        rebuild(lake, target)
    assert lake.register(target.location) is None
    with pytest.raises(errors.NothingPublished):
        lake.publisher().read_manifest(target)


def test_readers_of_a_lost_register_are_not_told_that_nothing_was_published(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    lake.s3.delete_object(Bucket=lake.bucket, Key=register_key(target))
    with pytest.raises(errors.RegisterVanished):
        publisher.read_manifest(target)
    with pytest.raises(errors.RegisterVanished):
        publisher.restore(parse_location(target.location), fence=1)


def test_files_that_no_manifest_names_are_not_forgotten(lake: Lake) -> None:
    target = lake.target()
    first = done(lake.publisher().unload(target)).publication
    lake.s3.delete_object(Bucket=lake.bucket, Key=first.manifest)
    delete_register(lake, target)
    with pytest.raises(errors.NotRebuilt, match="4 files of this system"):
        rebuild(lake, target)


# --- deleted in the middle of a publication --------------------------------------------------------------------------


def replace_until(lake: Lake, fault: Fault) -> Target:
    """A publication, and a second one whose owner dies where the fault holds it; the register is deleted."""
    target = lake.target()
    lake.publisher().unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    with processes(lake, 1, lease=600) as (owner,):
        rule = lake.aws.faults.add(fault)
        owner.publish(target)
        wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner stands at the stage")
        owner.kill()
    delete_register(lake, target)
    return target


COPY = Fault(HoldRequest(), "s3", "CopyObject", "published/", skip=2)


def test_a_half_made_swap_is_rolled_forward(lake: Lake) -> None:
    target = replace_until(lake, COPY)
    assert lake.rows(target.location) != Counter(range(ROWS + 10))
    rebuild(lake, target)
    lake.assert_published_once(target.location, range(ROWS + 10))
    assert isinstance(lake.publisher().unload(target), Reused)
    lake.publisher().restore(parse_location(target.location), 1)
    lake.assert_published_once(target.location)


def test_a_half_made_swap_without_its_sources_is_said_to_be_lost(lake: Lake) -> None:
    target = replace_until(lake, COPY)
    for key in lake.staged(target.location):
        lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    with pytest.raises(errors.PublicationLost, match="rebuilt"):
        rebuild(lake, target)
    assert isinstance(lake.publisher().unload(target), Published)
    lake.assert_published_once(target.location, range(ROWS + 10))


@pytest.mark.parametrize(
    "fault",
    [
        Fault(HoldReply(), "s3", "PutObject", "/manifests/"),
        Fault(HoldReply(), "s3", "PutObject", "register.json", skip=2),
        Fault(HoldReply(), "s3", "DeleteObject", "published/"),
    ],
    ids=["before the commit", "after it", "the first old file is deleted"],
)
@pytest.mark.parametrize(("choice", "expected"), [("00000001-01", ROWS), ("00000002-01", ROWS + 10)])
def test_what_nothing_proves_is_listed_and_a_person_chooses(
    lake: Lake, fault: Fault, choice: str, expected: int
) -> None:
    target = replace_until(lake, fault)
    with pytest.raises(errors.NotRebuilt, match=r"00000002-01 .* or 00000001-01 .*--publication"):
        rebuild(lake, target)
    assert lake.register(target.location) is None
    assert names(lake, target) == ["00000002-01", "00000001-01"]
    with pytest.raises(errors.NotRebuilt, match="'00000003-01' is not among"):
        rebuild(lake, target, "00000003-01")
    deleted = fault.operation == "DeleteObject"
    if choice == "00000001-01" and deleted:
        with pytest.raises(errors.PublicationLost):
            rebuild(lake, target, choice)
    else:
        rebuild(lake, target, choice)
        lake.assert_published_once(target.location, range(expected))
    lake.publisher().unload(target)
    lake.assert_published_once(target.location, range(ROWS + 10))


def test_half_of_a_direct_result_is_not_shown_as_published(lake: Lake) -> None:
    target = lake.target(mode="direct")
    lake.publisher().unload(target)
    lake.s3.delete_object(Bucket=lake.bucket, Key=max(lake.listing(target.location)))
    delete_register(lake, target)
    with pytest.raises(errors.NotRebuilt):
        rebuild(lake, target)
    with pytest.raises(errors.PublicationLost):
        rebuild(lake, target, "00000001-01")
    register = lake.register(target.location)
    assert register is not None
    assert register.publication is not None
    assert register.publication.lost


def test_a_whole_direct_result_is_found_again(lake: Lake) -> None:
    target, publisher = lake.target(mode="direct"), lake.publisher()
    first = done(publisher.unload(target)).publication
    delete_register(lake, target)
    rebuild(lake, target)
    assert done(publisher.unload(target)).publication == first


# --- an old owner wakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rebuilt", [True, False])
def test_an_owner_that_wakes_before_its_commit_publishes_nothing_under_its_old_fence(lake: Lake, rebuilt: bool) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "PutObject", "register.json", skip=2))
    owner = ThreadCaller(lake.publisher(60), target, {"request_id": "old"}).start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner's commit is on its way")
    delete_register(lake, target)
    if rebuilt:
        rebuild(lake, target, "00000001-01")
    before = lake.register(target.location)
    lake.aws.faults.release(rule)
    owner.join()
    if not rebuilt:
        assert isinstance(owner.error, errors.RegisterVanished)
        assert lake.register(target.location) is None
        return
    assert before is not None
    assert isinstance(owner.outcome, Published)
    assert owner.outcome.publication.fence > before.fence
    lake.assert_published_once(target.location, range(ROWS + 10))


def test_an_owner_that_wakes_in_its_swap_finds_its_publication_and_brings_nothing_back(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    publisher.unload(target)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    with processes(lake, 1) as (owner,):
        rule = lake.aws.faults.add(COPY)
        owner.publish(target, request_id="old")
        wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the owner copies")
        owner.signal(signal.SIGSTOP)
        delete_register(lake, target)
        rebuild(lake, target)
        lake.assert_published_once(target.location, range(ROWS + 10))
        lake.put_rows("numbers", "part-2.parquet", range(ROWS + 10, ROWS + 20))
        publisher.unload(target)
        lake.aws.faults.release(rule)
        owner.signal(signal.SIGCONT)
        assert owner.result()["outcome"] == "Published"
    lake.assert_published_once(target.location, range(ROWS + 20))
    assert len(lake.queries(target.location)) == 3


def test_a_first_caller_that_wakes_after_the_register_was_lost_does_not_begin_the_fences_again(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "PutObject", "register.json"))
    first = ThreadCaller(lake.publisher(60), target).start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the first caller creates the register")
    publisher.unload(target)
    publisher.unload(target, force=True)
    delete_register(lake, target)
    lake.aws.faults.release(rule)
    first.join()
    assert isinstance(first.error, errors.RegisterVanished)
    with pytest.raises(errors.RegisterVanished):
        publisher.unload(target)
    rebuild(lake, target)
    lake.assert_published_once(target.location)
    assert isinstance(publisher.unload(target), Reused)


def test_the_history_of_a_rebuilt_register_goes_on_down_the_chain(lake: Lake) -> None:
    target = lake.target(query="SELECT n FROM numbers WHERE n < 0")
    lake.publisher().unload(target, request_id="request 1")
    lake.prolong(target.location, HISTORY + 9)
    delete_register(lake, target)
    rebuild(lake, target, f"{HISTORY + 9:08d}-01")
    register = lake.register(target.location)
    assert register is not None
    assert [each.fence for each in register.history] == list(range(HISTORY + 8, 8, -1))
    assert done(lake.publisher().unload(target, request_id="request 1")).publication.fence == 1
