"""Mode `pointer`: results stay in the directories that their queries wrote; readers are sent to one whole result."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from athena_assets import Published, Reused, Target, errors, read_manifest
from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, HoldRequest, Respond
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, done, wait_until


def numbers(lake: Lake, name: str, size: int, **changes: Any) -> Target:
    """A target of the numbers below `size`, in pointer mode."""
    query = f"SELECT n FROM numbers WHERE n < {size}"
    return lake.target(name, **{"mode": "pointer", "query": query, **changes})


def glue(lake: Lake, name: str, size: int, **changes: Any) -> Target:
    return numbers(lake, name, size, glue_table=f"{lake.database}.{name}", **changes)


def values(lake: Lake, table: str) -> Counter[int]:
    """What an Athena user gets: the rows that a query over the table publishes elsewhere."""
    target = lake.target(query=f"SELECT n FROM {table}")
    lake.publisher().unload(target)
    return lake.rows(target.location)


def by_manifest(lake: Lake, target: Target, **arguments: Any) -> Counter[int]:
    """What a reader without Glue gets."""
    found = read_manifest(target, settings=lake.settings, **arguments)
    counted: Counter[int] = Counter()
    for file in found.files:
        counted += lake.rows(file.uri)
    return counted


# --- without Glue ----------------------------------------------------------------------------------------------------


def test_a_pointer_publication_copies_nothing_and_leaves_the_old_result_whole(lake: Lake) -> None:
    publisher = lake.publisher()
    target = numbers(lake, "t", 500)
    first = done(publisher.unload(target)).publication
    old = lake.readers(target.location)
    later = numbers(lake, "t", 600)
    second = done(publisher.unload(later)).publication
    lake.assert_published_once(target.location, range(600))
    assert lake.readers(target.location) != old
    assert lake.rows(old) == Counter(range(500))
    assert lake.aws.requests("s3", "CopyObject") == []
    assert lake.aws.requests("s3", "DeleteObject") == []
    assert isinstance(publisher.unload(later), Reused)
    assert len(lake.queries(target.location)) == 2
    found = read_manifest(later, settings=lake.settings)
    assert {(file.uri, file.size) for file in found.files} == {
        (f"s3://{lake.bucket}/{key}", size) for key, (_, size) in lake.listing(lake.readers(target.location)).items()
    }
    assert (found.query_id, found.fence, found.generation) == (second.query_id, 2, second.generation)
    assert first.fence == 1


def test_read_manifest_gives_the_whole_result_of_every_mode(lake: Lake) -> None:
    for mode in ("staged", "direct", "pointer"):
        target = lake.target(f"in_{mode}", mode=mode)
        with pytest.raises(errors.NothingPublished):
            read_manifest(target, settings=lake.settings)
        lake.publisher().unload(target)
        assert by_manifest(lake, target) == Counter(range(ROWS))


def test_read_manifest_gives_nothing_that_is_lost_or_half_copied(lake: Lake) -> None:
    target, publisher = lake.target(), lake.publisher()
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "CopyObject", "published/", skip=1))
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the swap is half done")
    with pytest.raises(errors.SlotBusy, match="being replaced"):
        publisher.read_manifest(target)
    lake.aws.faults.release(rule)
    publication = done(caller.join().outcome).publication
    lake.s3.delete_object(Bucket=lake.bucket, Key=publication.manifest)
    with pytest.raises(errors.PublicationLost):
        publisher.read_manifest(target)


def test_an_object_that_the_data_manifest_does_not_name_is_never_published(lake: Lake) -> None:
    target = lake.target(mode="pointer")
    lake.aws.faults.requeue(sql_contains=target.name, after_files=2)
    outcome = lake.publisher().unload(target)
    assert isinstance(outcome, Published)
    assert outcome.attempts == 2
    assert len(lake.queries(target.location)) == 2
    lake.assert_published_once(target.location)
    never = lake.target(mode="pointer", retries=0)
    lake.aws.faults.requeue(sql_contains=never.name, after_files=2)
    with pytest.raises(errors.ResultInvalid, match="fresh directory"):
        lake.publisher().unload(never)
    register = lake.register(never.location)
    assert register is not None
    assert (register.state, register.publication) == ("free", None)


def test_an_empty_result_is_a_publication_without_files(lake: Lake) -> None:
    target = numbers(lake, "t", 0)
    assert isinstance(lake.publisher().unload(target), Published)
    assert read_manifest(target, settings=lake.settings).files == ()
    assert lake.publisher().scrub(parse_location(target.location)).clean


def test_foreign_objects_are_refused_before_a_query_and_not_touched(lake: Lake) -> None:
    target = lake.target(mode="pointer")
    key = parse_location(target.location).prefix + "notes.txt"
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"precious")
    with pytest.raises(errors.LocationNotEmpty, match=r"notes\.txt"):
        lake.publisher().unload(target)
    assert lake.queries(target.location) == []
    assert lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() == b"precious"
    assert lake.register(target.location) is None


@pytest.mark.parametrize(("before", "after"), [("staged", "pointer"), ("direct", "pointer"), ("pointer", "staged")])
def test_a_slot_changes_its_mode_only_when_its_location_is_empty(lake: Lake, before: str, after: str) -> None:
    publisher = lake.publisher()
    old, new = lake.target("t", mode=before), lake.target("t", mode=after)
    publisher.unload(old)
    listing = lake.listing(old.location, stamped=True)
    for force in (False, True):  # nor is the other mode's result taken for an answer
        with pytest.raises(errors.ModeChanged, match="another mode"):
            publisher.unload(new, force=force)
    assert lake.listing(old.location, stamped=True) == listing
    assert len(lake.queries(old.location)) == 1
    assert isinstance(publisher.unload(old), Reused)
    for key in listing:
        lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    assert isinstance(publisher.unload(new), Published)
    lake.assert_published_once(new.location)


def test_direct_publishes_nothing_beside_directories(lake: Lake) -> None:
    publisher = lake.publisher()
    publisher.unload(lake.target("t", mode="pointer"))
    with pytest.raises(errors.ModeChanged):
        publisher.unload(lake.target("t", mode="direct"))
    assert len(lake.queries(lake.target("t").location)) == 1


# --- with Glue -------------------------------------------------------------------------------------------------------


def test_glue_is_pointed_at_each_new_result(lake: Lake) -> None:
    target, publisher = glue(lake, "t", 500), lake.publisher()
    publisher.unload(target)
    table = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    assert [(each["Name"], each["Type"]) for each in table["StorageDescriptor"]["Columns"]] == [("n", "bigint")]
    assert lake.pointer("t") == lake.readers(target.location)
    assert values(lake, "t") == Counter(range(500))
    publisher.unload(glue(lake, "t", 600))
    assert lake.pointer("t") == lake.readers(target.location)
    assert values(lake, "t") == Counter(range(600))
    assert lake.aws.requests("s3", "CopyObject", "/t/") == []


def test_what_others_changed_in_the_table_survives(lake: Lake) -> None:
    publisher = lake.publisher()
    publisher.unload(glue(lake, "t", 500))
    hold = lake.aws.faults.add(Fault(HoldRequest(), "glue", "UpdateTable", "t"))
    caller = ThreadCaller(publisher, glue(lake, "t", 600)).start()
    wait_until(lambda: lake.aws.faults.hits(hold) == 1, "our update is on its way")
    found = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    storage = found["StorageDescriptor"]
    columns = [{**each, "Comment": "a number"} for each in storage["Columns"]]
    lake.glue.update_table(
        DatabaseName=lake.database,
        TableInput={
            "Name": "t",
            "Description": "by hand",
            "TableType": found["TableType"],
            "Parameters": {**found["Parameters"], "theirs": "1"},
            "PartitionKeys": [],
            "StorageDescriptor": {**storage, "Columns": columns},
        },
    )
    lake.aws.faults.release(hold)
    assert caller.join().error is None
    after = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    assert [each.status for each in lake.aws.requests("glue", "UpdateTable")] == [400, 200, 200]
    assert after["Description"] == "by hand"
    assert after["Parameters"]["theirs"] == "1"
    assert after["StorageDescriptor"]["Columns"][0]["Comment"] == "a number"
    assert lake.pointer("t") == lake.readers(lake.target("t").location)
    assert len(lake.queries(lake.target("t").location)) == 2


def test_each_partition_is_pointed_at_its_own_result(lake: Lake) -> None:
    root = f"s3://{lake.bucket}/published/parts/"
    publisher = lake.publisher()

    def parts(size: int) -> Target:
        return glue(lake, "parts", size, location=f"{root}dt=${{partition}}/")

    for key in ("a", "b"):
        publisher.unload(parts(500), partition=key)
    unchanged = lake.pointer("parts", "b")
    publisher.unload(parts(600), partition="a")
    table = lake.glue.get_table(DatabaseName=lake.database, Name="parts")["Table"]
    assert table["PartitionKeys"] == [{"Name": "dt", "Type": "string"}]
    assert table["StorageDescriptor"]["Location"] == root
    assert lake.pointer("parts", "a") == lake.readers(f"{root}dt=a/")
    assert lake.pointer("parts", "b") == unchanged == lake.readers(f"{root}dt=b/")
    assert values(lake, "parts") == Counter(range(600)) + Counter(range(500))
    assert by_manifest(lake, parts(600), partition="a") == Counter(range(600))


def test_readers_see_one_whole_result_at_every_moment(lake: Lake) -> None:
    publisher = lake.publisher(60)
    sizes = (100, 200, 300, 400)
    publisher.unload(glue(lake, "t", sizes[0]))
    whole = [Counter(range(size)) for size in sizes]
    target = glue(lake, "t", sizes[0])
    ended = threading.Event()
    seen: list[Counter[int]] = []

    def read() -> None:
        while not ended.is_set():
            seen.append(lake.rows(lake.pointer("t")))
            seen.append(by_manifest(lake, target))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for size in sizes[1:]:
        publisher.unload(glue(lake, "t", size))
    ended.set()
    reader.join(60)
    assert not reader.is_alive()
    assert len(seen) > len(sizes)
    assert all(each in whole for each in seen)


def test_nobody_is_told_before_glue_shows_the_result(lake: Lake) -> None:
    publisher = lake.publisher(60)
    publisher.unload(glue(lake, "t", 500))
    old = lake.pointer("t")
    hold = lake.aws.faults.add(Fault(HoldRequest(), "glue", "UpdateTable", "t"))
    target = glue(lake, "t", 600)
    callers = [ThreadCaller(publisher, target).start() for _ in range(3)]
    wait_until(lambda: lake.aws.faults.hits(hold) == 1, "the swap is on its way")
    register = lake.register(target.location)
    assert register is not None
    assert register.state == "publishing"
    assert lake.pointer("t") == old
    assert lake.rows(old) == Counter(range(500))
    assert all(each.outcome is None and each.error is None for each in callers)
    lake.aws.faults.release(hold)
    kinds = Counter(type(caller.join().outcome).__name__ for caller in callers)
    assert kinds == {"Published": 1, "Reused": 2}
    assert values(lake, "t") == Counter(range(600))


def test_an_empty_result_points_glue_at_an_empty_directory(lake: Lake) -> None:
    publisher = lake.publisher()
    publisher.unload(glue(lake, "t", 0))
    with pytest.raises(lake.glue.exceptions.EntityNotFoundException):  # it has no columns to be created with
        lake.pointer("t")
    publisher.unload(glue(lake, "t", 500))
    publisher.unload(glue(lake, "t", 0, query="SELECT n FROM numbers WHERE n < -1"))
    assert lake.pointer("t") == lake.readers(lake.target("t").location)
    assert lake.listing(lake.pointer("t")) == {}
    assert values(lake, "t") == Counter()


def test_a_table_that_is_not_ours_is_refused_before_a_query(lake: Lake) -> None:
    target = numbers(lake, "t", 500, glue_table=f"{lake.database}.numbers")
    with pytest.raises(errors.TableNotOurs, match="not pointed there by this slot"):
        lake.publisher().unload(target)
    assert lake.queries(target.location) == []
    assert lake.pointer("numbers") == f"s3://{lake.bucket}/upstream/numbers/"
    publisher = lake.publisher()
    publisher.unload(glue(lake, "t", 500))
    other = numbers(lake, "u", 500, glue_table=f"{lake.database}.t")
    with pytest.raises(errors.TableNotOurs):
        publisher.unload(other)
    assert lake.queries(other.location) == []


def test_a_glue_database_that_goes_while_the_query_runs_is_told_at_once_and_waited_for(lake: Lake) -> None:
    target = numbers(lake, "t", 500, glue_table=f"{lake.database}_going.t")
    database = {"Name": f"{lake.database}_going"}
    lake.glue.create_database(DatabaseInput=database)
    publisher = lake.publisher(lease=60)  # an unanswered call would be tried again for five minutes
    hold = lake.aws.faults.hold_queries(sql_contains=target.name)
    caller = ThreadCaller(publisher, target).start()
    lake.wait_until_held(hold)
    lake.glue.delete_database(**database)
    lake.aws.faults.release(hold)
    error = caller.join(30).error
    assert isinstance(error, errors.AccessDenied)
    assert f"Glue refused to point {lake.database}_going.t at the new result (HTTP 400 EntityNotFound" in str(error)
    assert "The result is committed and whole in" in str(error)
    assert lake.state(target.location) == "publishing"
    mended = numbers(lake, "t", 500, glue_table=f"{lake.database}.t")
    with pytest.raises(errors.AccessDenied, match=f"See that the database {lake.database}_going exists"):
        publisher.unload(mended, take_over=True)  # what is committed goes first
    lake.glue.create_database(DatabaseInput=database)
    done(publisher.unload(mended, take_over=True))
    lake.assert_published_once(target.location, range(500))
    assert len(lake.queries(target.location)) == 1


@pytest.mark.long
def test_a_table_that_changes_hands_while_the_query_runs_is_left_alone_and_wedges_nobody(lake: Lake) -> None:
    publisher = lake.publisher()
    publisher.unload(glue(lake, "t", 500))
    hold = lake.aws.faults.hold_queries(sql_contains="600")
    caller = ThreadCaller(publisher, glue(lake, "t", 600, keep_previous=0)).start()
    wait_until(lambda: lake.aws.faults.held(hold), "the query runs")
    found = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    table = {name: found[name] for name in ("Name", "TableType", "StorageDescriptor")}
    marks = {**found["Parameters"], "athena_assets.slot": "s3://another/slot/"}
    lake.glue.update_table(DatabaseName=lake.database, TableInput={**table, "Parameters": marks})
    lake.aws.faults.release(hold)
    assert isinstance(caller.join().error, errors.TableNotOurs)
    assert values(lake, "t") == Counter(range(500))
    location = parse_location(lake.target("t").location)
    with pytest.raises(errors.TableNotOurs):
        publisher.restore(location, 1)
    other = numbers(lake, "t", 600, keep_previous=0, glue_table=f"{lake.database}.other")
    assert isinstance(publisher.unload(other), Published)
    assert values(lake, "other") == Counter(range(600))
    publisher.collect(location, delete=True, grace=0)
    assert values(lake, "t") == Counter(range(500))  # the table that it once had still sends readers there


def test_a_table_with_partition_projection_is_refused_before_a_query(lake: Lake) -> None:
    root = f"s3://{lake.bucket}/published/parts/"
    target = glue(lake, "parts", 500, location=f"{root}dt=${{partition}}/")
    publisher = lake.publisher()
    publisher.unload(target, partition="a")
    found = lake.glue.get_table(DatabaseName=lake.database, Name="parts")["Table"]
    table = {name: found[name] for name in ("Name", "TableType", "PartitionKeys", "StorageDescriptor")}
    parameters = {**found["Parameters"], "projection.enabled": "true"}
    lake.glue.update_table(DatabaseName=lake.database, TableInput={**table, "Parameters": parameters})
    with pytest.raises(errors.InvalidTarget, match="partition projection"):
        publisher.unload(target, partition="b")
    assert lake.queries(f"{root}dt=b/") == []


def test_a_table_made_beforehand_at_the_location_is_taken_with_its_columns(lake: Lake) -> None:
    target = glue(lake, "t", 500)
    found = lake.glue.get_table(DatabaseName=lake.database, Name="numbers")["Table"]
    columns = [{"Name": "n", "Type": "bigint", "Comment": "theirs"}]
    lake.glue.create_table(
        DatabaseName=lake.database,
        TableInput={
            "Name": "t",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": found["Parameters"],
            "StorageDescriptor": {**found["StorageDescriptor"], "Columns": columns, "Location": target.location},
        },
    )
    lake.publisher().unload(target)
    assert values(lake, "t") == Counter(range(500))
    table = lake.glue.get_table(DatabaseName=lake.database, Name="t")["Table"]
    assert table["StorageDescriptor"]["Columns"] == columns


def test_a_refused_swap_is_finished_by_the_next_caller_without_a_query(lake: Lake) -> None:
    target, publisher = glue(lake, "t", 500), lake.publisher()
    lake.aws.faults.add(Fault(Respond(400, "AccessDeniedException"), "glue", "CreateTable"))
    with pytest.raises(errors.AccessDenied, match="next caller goes on"):
        publisher.unload(target)
    with pytest.raises(lake.glue.exceptions.EntityNotFoundException):
        lake.pointer("t")
    done(publisher.unload(target))
    assert lake.pointer("t") == lake.readers(target.location)
    assert len(lake.queries(target.location)) == 1


def test_a_register_that_was_put_back_does_not_point_glue_back(lake: Lake) -> None:
    target, publisher = glue(lake, "t", 500), lake.publisher()
    publisher.unload(target)
    key = keys.register_key(parse_location(target.location))
    old = lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
    for size in (600, 700, 800):
        publisher.unload(glue(lake, "t", size))
    pointed = lake.pointer("t")
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=old)
    with pytest.raises(errors.TableNotOurs, match="put back to an earlier version"):
        publisher.unload(glue(lake, "t", 900))
    assert lake.pointer("t") == pointed
    assert lake.rows(pointed) == Counter(range(800))


def test_a_result_that_changed_before_the_swap_is_lost_and_not_shown(lake: Lake) -> None:
    publisher = lake.publisher()
    publisher.unload(glue(lake, "t", 500))
    old = lake.pointer("t")
    rule = lake.aws.faults.add(Fault(HoldRequest(), "s3", "PutObject", "/manifests/"))
    target = glue(lake, "t", 600)
    caller = ThreadCaller(publisher, target).start()
    wait_until(lambda: lake.aws.faults.hits(rule) == 1, "the result is verified")
    attempt = lake.register(target.location)
    assert attempt is not None
    stranger = attempt.current.staging + "stranger.parquet"
    lake.s3.put_object(Bucket=lake.bucket, Key=stranger, Body=b"precious")
    lake.aws.faults.release(rule)
    assert isinstance(caller.join().error, errors.PublicationLost)
    assert lake.pointer("t") == old
    assert lake.rows(old) == Counter(range(500))
    assert isinstance(publisher.unload(target), Published)
    assert values(lake, "t") == Counter(range(600))
    assert lake.s3.get_object(Bucket=lake.bucket, Key=stranger)["Body"].read() == b"precious"


# --- restore ---------------------------------------------------------------------------------------------------------


def test_a_restored_result_is_pointed_at_again_and_nothing_is_copied(lake: Lake) -> None:
    publisher = lake.publisher()
    location = parse_location(lake.target("t").location)
    places = {}
    for size in (500, 600):
        publisher.unload(glue(lake, "t", size))
        places[size] = lake.pointer("t")
    for fence, size, new in ((1, 500, 3), (2, 600, 4), (3, 500, 5)):
        publication = publisher.restore(location, fence)
        assert (publication.fence, publication.restored) == (new, fence)
        assert lake.pointer("t") == places[size] == lake.readers(str(location))
        lake.assert_published_once(str(location), range(size))
        publisher.collect(location, delete=True, grace=0)
        assert {size: lake.rows(place) for size, place in places.items()} == {
            size: Counter(range(size)) for size in places
        }
    assert len(lake.queries(str(location))) == 2
    assert lake.aws.requests("s3", "CopyObject") == []


def test_a_kept_result_that_is_not_whole_is_not_restored(lake: Lake) -> None:
    publisher = lake.publisher()
    location = parse_location(lake.target("t").location)
    for size in (500, 600):
        publisher.unload(numbers(lake, "t", size))
    register = lake.register(str(location))
    assert register is not None
    lake.s3.put_object(Bucket=lake.bucket, Key=register.kept[0].backup + "stranger", Body=b"precious")
    with pytest.raises(errors.NotKept, match="not one of its files"):
        publisher.restore(location, 1)
    lake.assert_published_once(str(location), range(600))
