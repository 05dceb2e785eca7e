"""Mode `pointer`: a lost register is made anew; what proves the publication is Glue, or that nothing else is whole."""

from __future__ import annotations

from collections import Counter

import pytest

from athena_assets import Published, Reused, Target, errors
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, HoldRequest
from athena_assets_tests.e2e.lake import Lake, ThreadCaller, done, wait_until
from athena_assets_tests.e2e.test_pointer import glue, numbers
from athena_assets_tests.e2e.test_rebuild import delete_register, names, rebuild, register_key

LONG = 600.0  # a lease that does not end in a test


def publish(lake: Lake, *targets: Target, first: int = 1) -> list[str]:
    """One publication after another, with request ids that count from `first`; where each lies."""
    places = []
    for number, target in enumerate(targets, first):
        lake.publisher().unload(target, request_id=f"request {number}")
        places.append(lake.readers(target.location))
    return places


def whole(lake: Lake, places: list[str]) -> list[int]:
    return [sum(lake.rows(place).values()) for place in places]


def delete_objects(lake: Lake, location: str) -> None:
    for key in lake.listing(location):
        lake.s3.delete_object(Bucket=lake.bucket, Key=key)


# --- with Glue -------------------------------------------------------------------------------------------------------


def test_the_publication_that_glue_names_is_current_and_nothing_is_forgotten(lake: Lake) -> None:
    sizes, publisher = (300, 400, 500, 600), lake.publisher()
    places = publish(lake, *(glue(lake, "t", size, keep_previous=2) for size in sizes))
    target = glue(lake, "t", 600, keep_previous=2)
    location = parse_location(target.location)
    before, pointed = lake.register(target.location), lake.pointer("t")
    assert before is not None
    delete_register(lake, target)
    rebuild(lake, target)
    after = lake.register(target.location)
    assert after is not None
    assert (after.publication, after.history, after.kept) == (before.publication, before.history, before.kept)
    assert [each.prefix for each in after.retired] == [each.prefix for each in before.retired]
    assert after.fence > before.fence
    assert lake.pointer("t") == pointed
    assert isinstance(publisher.unload(target), Reused)
    assert done(publisher.unload(glue(lake, "t", 300), request_id="request 1")).publication.fence == 1
    assert len(lake.queries(target.location)) == 4
    publisher.collect(location, delete=True)
    assert whole(lake, places) == [300, 400, 500, 600]
    publisher.collect(location, delete=True, grace=0)
    assert whole(lake, places) == [0, 400, 500, 600]
    publisher.restore(location, 2)
    assert lake.pointer("t") == places[1]
    lake.assert_published_once(target.location, range(400))


def test_a_restored_result_that_glue_names_is_current_and_its_directory_is_used_once(lake: Lake) -> None:
    target = glue(lake, "t", 600)
    places = publish(lake, glue(lake, "t", 500), target)
    lake.publisher().restore(parse_location(target.location), 1)
    before = lake.register(target.location)
    assert before is not None
    delete_register(lake, target)
    rebuild(lake, target)
    after = lake.register(target.location)
    assert after is not None
    assert (after.publication, after.history, after.kept) == (before.publication, before.history, before.kept)
    assert after.retired == ()
    assert lake.pointer("t") == places[0]


def test_one_partition_is_rebuilt_and_the_others_stay(lake: Lake) -> None:
    root = f"s3://{lake.bucket}/published/parts/"
    publisher = lake.publisher()

    def parts(size: int) -> Target:
        return glue(lake, "parts", size, location=f"{root}dt=${{partition}}/")

    for size in (500, 600):
        for key in ("a", "b"):
            publisher.unload(parts(size), partition=key)
    before = {key: (lake.register(f"{root}dt={key}/"), lake.pointer("parts", key)) for key in ("a", "b")}
    lost = parse_location(f"{root}dt=a/")
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys.register_key(lost))
    publisher.rebuild(lost, write=True)
    for key, (register, pointed) in before.items():
        after = lake.register(f"{root}dt={key}/")
        assert register is not None
        assert after is not None
        assert (after.publication, after.kept) == (register.publication, register.kept)
        assert lake.pointer("parts", key) == pointed
    assert isinstance(publisher.unload(parts(600), partition="a"), Reused)


def test_a_register_that_was_put_back_is_rebuilt_as_glue_says(lake: Lake) -> None:
    target = glue(lake, "t", 600)
    publish(lake, glue(lake, "t", 400))
    old = lake.read(register_key(target))
    publish(lake, glue(lake, "t", 500), target, first=2)
    lake.s3.put_object(Bucket=lake.bucket, Key=register_key(target), Body=old)
    with pytest.raises(errors.TableNotOurs, match="athena-assets rebuild"):
        lake.publisher().unload(glue(lake, "t", 700))
    rebuild(lake, target)
    lake.publisher().unload(glue(lake, "t", 700))
    lake.assert_published_once(target.location, range(700))
    assert lake.pointer("t") == lake.readers(target.location)


def test_a_result_that_glue_names_and_no_manifest_is_not_replaced_by_an_older_one(lake: Lake) -> None:
    target = glue(lake, "t", 600)
    publish(lake, glue(lake, "t", 500), target)
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys.manifest_key(parse_location(target.location), 2, 1))
    delete_register(lake, target)
    pointed = lake.pointer("t")
    for choice in (None, "00000001-01"):
        with pytest.raises(errors.NotRebuilt, match="Bring the later manifest back"):
            rebuild(lake, target, choice)
    assert lake.register(target.location) is None
    assert lake.pointer("t") == pointed


def test_a_damaged_result_that_glue_names_is_said_to_be_lost(lake: Lake) -> None:
    target = glue(lake, "t", 600)
    places = publish(lake, glue(lake, "t", 500), target)
    lake.s3.delete_object(Bucket=lake.bucket, Key=min(lake.listing(places[1])))
    delete_register(lake, target)
    with pytest.raises(errors.PublicationLost, match="rebuilt"):
        rebuild(lake, target)
    assert isinstance(lake.publisher().unload(target), Published)
    lake.assert_published_once(target.location, range(600))
    assert lake.pointer("t") == lake.readers(target.location)


def test_a_table_that_is_another_slots_by_now_is_left_alone_and_the_result_lost(lake: Lake) -> None:
    target = glue(lake, "t", 500)
    publish(lake, target)
    found = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    table = {name: found[name] for name in ("Name", "TableType", "StorageDescriptor")}
    marks = {**found["Parameters"], "athena_assets.slot": "s3://another/slot/"}
    lake.glue.update_table(DatabaseName=lake.database, TableInput={**table, "Parameters": marks})
    delete_register(lake, target)
    with pytest.raises(errors.TableNotOurs):
        rebuild(lake, target)
    register = lake.register(target.location)
    assert register is not None
    assert register.state == "free"
    assert register.publication is not None
    assert register.publication.lost


# --- in the middle of a publication with Glue ------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", ["table", "partition"])
@pytest.mark.parametrize(("choice", "size"), [("00000001-01", 500), ("00000002-01", 600)])
def test_an_owner_that_wakes_before_it_moves_glue_changes_nothing_that_was_rebuilt(
    lake: Lake, kind: str, choice: str, size: int
) -> None:
    location = f"s3://{lake.bucket}/published/t/{'' if kind == 'table' else 'dt=${partition}/'}"
    partition = () if kind == "table" else ("a",)
    slot = parse_location(location.replace("${partition}", "a"))
    arguments = {"partition": "a"} if partition else {}
    operation = "UpdateTable" if kind == "table" else "UpdatePartition"
    older, newer = (glue(lake, "t", each, location=location) for each in (500, 600))
    lake.publisher().unload(older, partition="a" if partition else None)
    update = lake.aws.faults.add(Fault(HoldRequest(), "glue", operation, "t"))
    owner = ThreadCaller(lake.publisher(LONG), newer, {"request_id": "old", **arguments}).start()
    wait_until(lambda: lake.aws.faults.hits(update) == 1, "the owner has committed and points Glue at its result")
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys.register_key(slot))
    with pytest.raises(errors.NotRebuilt, match="nothing at the location proves"):
        lake.publisher().rebuild(slot, write=True)
    lake.publisher().rebuild(slot, write=True, publication=choice)
    assert lake.pointer("t", *partition) == lake.readers(str(slot))
    assert lake.rows(lake.pointer("t", *partition)) == Counter(range(size))
    query = lake.aws.faults.hold_queries(sql_contains="600")
    lake.aws.faults.release(update)
    if size == 600:
        assert isinstance(owner.end(), Published)
        assert len(lake.queries(str(slot))) == 2
    else:
        lake.wait_until_held(query)  # its wish is unfulfilled: it asks anew
        assert lake.pointer("t", *partition) == lake.readers(str(slot))
        assert lake.rows(lake.pointer("t", *partition)) == Counter(range(500))
        lake.aws.faults.release(query)
        assert isinstance(owner.end(), Published)
    lake.assert_published_once(str(slot), range(600))
    assert lake.pointer("t", *partition) == lake.readers(str(slot))


def test_a_first_result_that_glue_does_not_name_yet_is_rolled_forward(lake: Lake) -> None:
    target = glue(lake, "t", 500)
    hold = lake.aws.faults.add(Fault(HoldRequest(), "glue", "CreateTable", "t"))
    owner = ThreadCaller(lake.publisher(LONG), target, {"request_id": "old"}).start()
    wait_until(lambda: lake.aws.faults.hits(hold) == 1, "the owner has committed")
    delete_register(lake, target)
    rebuild(lake, target)
    assert lake.rows(lake.pointer("t")) == Counter(range(500))
    lake.aws.faults.release(hold)
    assert isinstance(owner.end(), Published)
    lake.assert_published_once(target.location, range(500))
    assert len(lake.queries(target.location)) == 1


# --- without Glue ----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("choice", "size"), [("00000001-01", 500), ("00000002-01", 600)])
def test_without_glue_two_whole_results_are_told_apart_by_a_person(lake: Lake, choice: str, size: int) -> None:
    target, publisher = numbers(lake, "t", 600), lake.publisher()
    places = publish(lake, numbers(lake, "t", 500), target)
    location = parse_location(target.location)
    delete_register(lake, target)
    with pytest.raises(errors.NotRebuilt, match=r"00000002-01 .*3 of 3 files there\), or 00000001-01"):
        rebuild(lake, target)
    assert names(lake, target) == ["00000002-01", "00000001-01"]
    rebuild(lake, target, choice)
    lake.assert_published_once(target.location, range(size))
    for request in ("request 1", "request 2") if size == 600 else ("request 1",):
        found = publisher.unload(numbers(lake, "t", 500 if request == "request 1" else 600), request_id=request)
        assert done(found).publication.request == request
    assert len(lake.queries(target.location)) == 2
    publisher.collect(location, delete=True)
    assert whole(lake, places) == [500, 600]
    publisher.collect(location, delete=True, grace=0)
    assert whole(lake, places) == [500, 600 if size == 600 else 0]
    if size == 600:
        publisher.restore(location, 1)
        lake.assert_published_once(target.location, range(500))


def test_the_only_result_that_can_be_shown_needs_no_person(lake: Lake) -> None:
    first = numbers(lake, "t", 500, keep_previous=0)
    publish(lake, first)
    delete_register(lake, first)
    rebuild(lake, first)
    lake.assert_published_once(first.location, range(500))
    second = numbers(lake, "t", 600, keep_previous=0)
    publish(lake, second, first=2)
    lake.publisher().collect(parse_location(second.location), delete=True, grace=0)
    delete_register(lake, second)
    rebuild(lake, second)
    lake.assert_published_once(second.location, range(600))
    assert isinstance(lake.publisher().unload(second), Reused)


def test_an_older_result_that_alone_is_whole_is_not_shown_unasked(lake: Lake) -> None:
    target = numbers(lake, "t", 600)
    places = publish(lake, numbers(lake, "t", 500), target)
    lake.s3.delete_object(Bucket=lake.bucket, Key=min(lake.listing(places[1])))
    delete_register(lake, target)
    with pytest.raises(errors.NotRebuilt, match="2 of 3 files there"):
        rebuild(lake, target)
    rebuild(lake, target, "00000001-01")
    lake.assert_published_once(target.location, range(500))


def test_a_restored_result_is_not_taken_for_current_because_the_one_before_is_gone(lake: Lake) -> None:
    target = numbers(lake, "t", 600)
    places = publish(lake, numbers(lake, "t", 500), target)
    lake.publisher().restore(parse_location(target.location), 1)
    delete_objects(lake, places[1])
    delete_register(lake, target)
    with pytest.raises(errors.NotRebuilt, match="-restore-"):
        rebuild(lake, target)


def test_an_owner_that_wakes_before_its_commit_publishes_under_a_new_fence_only(lake: Lake) -> None:
    target = numbers(lake, "t", 600)
    publish(lake, numbers(lake, "t", 500))
    hold = lake.aws.faults.add(Fault(HoldRequest(), "s3", "PutObject", "register.json", skip=2))
    owner = ThreadCaller(lake.publisher(LONG), target, {"request_id": "old"}).start()
    wait_until(lambda: lake.aws.faults.hits(hold) == 1, "the owner's commit is on its way")
    delete_register(lake, target)
    rebuild(lake, target, "00000001-01")
    before = lake.register(target.location)
    assert before is not None
    lake.aws.faults.release(hold)
    outcome = owner.end()
    assert isinstance(outcome, Published)
    assert outcome.publication.fence > before.fence
    lake.assert_published_once(target.location, range(600))


# --- directories that no manifest names ------------------------------------------------------------------------------


def test_a_directory_that_no_manifest_names_is_shown_and_left_alone_and_its_fence_is_passed(lake: Lake) -> None:
    target, publisher = glue(lake, "t", 600), lake.publisher()
    publish(lake, glue(lake, "t", 500))
    location = parse_location(target.location)
    for fence in (2, 3):
        lake.aws.faults.fail_queries(sql_contains="600", after_files=2)
        with pytest.raises(errors.QueryInternalError):
            publisher.unload(glue(lake, "t", 600, retries=0))
        register = lake.register(target.location)
        assert register is not None
        assert register.fence == fence
    left = {str(keys.directory_of(location, key)) for key in lake.listing(target.location)}
    unnamed = {each for each in left if not lake.readers(target.location).endswith(each)}
    assert len(unnamed) == 2
    delete_register(lake, target)
    found = publisher.rebuild(location, write=True)
    assert (set(found.unnamed), found.retired) == (unnamed, ())
    assert found.fence > 3
    files = lake.listing(target.location)
    publisher.collect(location, delete=True, grace=0)
    assert lake.listing(target.location) == files
    assert {str(keys.directory_of(location, each.key)) for each in publisher.scrub(location).staged} == unnamed
    publisher.unload(target)
    assert files.items() <= lake.listing(target.location).items()
    lake.assert_published_once(target.location, range(600))


def test_directories_without_any_manifest_are_not_forgotten(lake: Lake) -> None:
    target = numbers(lake, "t", 500)
    publish(lake, target)
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys.manifest_key(parse_location(target.location), 1, 1))
    delete_register(lake, target)
    with pytest.raises(errors.NotRebuilt, match="failed attempt"):
        rebuild(lake, target)
    assert lake.register(target.location) is None
