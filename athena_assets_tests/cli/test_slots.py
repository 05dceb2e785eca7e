"""The commands that look at a slot or mend it: their answers against what S3 holds."""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest

from athena_assets.core import keys
from athena_assets.core.location import parse_location
from athena_assets.local import Fault, Respond
from athena_assets_tests.cli.conftest import Cli
from athena_assets_tests.e2e.lake import ROWS, Lake, ThreadCaller, wait_until


def stage(lake: Lake, location: str, fence: int) -> str:
    """Puts what a loser of that fence would have left; returns its key."""
    key = keys.staging_prefix(parse_location(location), fence, 1, "0123456789abcdef") + "part-0"
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=b"left behind")
    return key


def test_status_tells_nothing_published_and_running_and_published(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    header, row = cli("status", target.name).out.splitlines()
    assert header.split() == ["TARGET", "STATE", "OWNER", "AGE", "QUERY", "PUBLICATION", "KEPT"]
    assert row.split() == [target.name, "none", "-", "-", "-", "-", "-"]

    hold = lake.aws.faults.hold_queries()
    holder = ThreadCaller(lake.publisher(60), target).start()
    wait_until(
        lambda: (found := lake.register(target.location)) and found.state == "running", "the query's id is noted"
    )
    query_id = lake.queries(target.location)[0].query_id
    row = cli("status", target.name).out.splitlines()[1]
    owner = lake.register(target.location)
    assert owner is not None
    assert owner.owner is not None
    assert f"running  {owner.owner.host}/{owner.owner.pid}" in row
    assert query_id in row
    [document] = cli("status", target.location, "--json").document["slots"]
    assert (document["state"], document["query_id"]) == ("running", query_id)
    assert 0 <= document["age_seconds"] < 60
    lake.aws.faults.release(hold)
    holder.join()

    row = cli("status", target.name).out.splitlines()[1]
    assert "free" in row
    assert f"ago, 1,000 rows, 4 files, {' '.join(row.split('4 files, ')[1].split()[:2])} query {query_id}" in row


def test_without_a_name_every_target_of_the_module_is_meant_and_partitioned_ones_are_named(
    lake: Lake, cli: Cli
) -> None:
    one, two = lake.target(), lake.target()
    cli.define(one, two, lake.target("parted", location=f"s3://{lake.bucket}/parted/${{partition}}/"))
    cli("unload", two.name)
    slots = cli("status", "--json").document["slots"]
    assert {each["target"]: each["state"] for each in slots} == {one.name: "none", two.name: "free"}
    for command in ("status", "scrub", "gc"):
        ended = cli(command, "--json")
        assert {each["target"] for each in ended.document["slots"]} == {one.name, two.name}
        assert "Left out" in ended.err
        assert "parted" in ended.err


def test_status_tells_the_last_failure_and_what_is_kept(lake: Lake, cli: Cli) -> None:
    target = lake.target(retries=0)
    cli.define(target)
    cli("unload", target.name)
    cli("unload", target.name, "--force")
    lake.aws.faults.fail_queries(sql_contains=target.name)
    cli("unload", target.name, "--force")
    [document] = cli("status", target.name, "--json").document["slots"]
    assert [each["fence"] for each in document["kept"]] == [1]
    assert document["failure"]["query_id"] == lake.queries(target.location)[-1].query_id
    assert document["failure"]["query_id"] in cli("status", target.name).out


def test_show_prints_the_whole_register(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    assert cli("show", target.name).status == 1
    cli("unload", target.name)
    body = lake.s3.get_object(Bucket=lake.bucket, Key=keys.register_key(parse_location(target.location)))["Body"]

    assert cli("show", target.location, "--json").document["register"] == json.load(body)
    pretty = cli("show", target.name).out.splitlines()
    assert "state: free" in pretty
    assert f"  query_id: {lake.queries(target.location)[0].query_id}" in pretty


def test_scrub_is_clean_only_if_readers_see_exactly_the_publication(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    cli("unload", target.name)
    ended = cli("scrub", target.name)
    assert ended.status == 0
    assert ended.out.startswith("clean")

    foreign = f"published/{target.name}/theirs.parquet"
    lake.s3.put_object(Bucket=lake.bucket, Key=foreign, Body=b"theirs")
    published = next(key for key in lake.listing(target.location) if key != foreign)
    lake.s3.delete_object(Bucket=lake.bucket, Key=published)
    ended = cli("scrub", target.name)
    assert ended.status == 1
    assert ended.out.startswith("NOT CLEAN")
    assert f"s3://{lake.bucket}/{foreign}" in ended.out
    document = cli("scrub", target.location, "--json").document
    assert (document["clean"], document["exit_status"]) == (False, 1)
    assert document["slots"][0]["missing"] == [published]
    assert [each["key"] for each in document["slots"][0]["foreign"]] == [foreign]


def test_gc_deletes_only_when_told_to_and_nothing_that_is_published(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    cli("unload", target.name)
    key = stage(lake, target.location, 1)
    listed = cli("gc", target.name)
    assert listed.status == 0
    assert f"s3://{lake.bucket}/{key}" in listed.out
    assert "1 object, 11 B: garbage" in listed.out
    assert key in lake.staged(target.location)

    deleted = cli("gc", target.name, "--delete", "--json").document
    assert [each["key"] for each in deleted["slots"][0]["staging"]] == [key]
    assert deleted["slots"][0]["remaining"] == []
    assert lake.staged(target.location) == {}
    lake.assert_published_once(target.location)
    assert "no garbage" in cli("gc", target.name).out


def test_gc_says_what_it_could_not_delete(lake: Lake, cli: Cli) -> None:

    target = lake.target()
    cli("unload", cli.define(target))
    key = stage(lake, target.location, 1)
    lake.aws.faults.add(Fault(service="s3", operation="DeleteObject", action=Respond(403, "AccessDenied")))
    ended = cli("gc", target.name, "--delete", "--json")
    assert ended.status == 4
    assert [each["key"] for each in ended.document["slots"][0]["remaining"]] == [key]


def test_gc_finds_nothing_while_the_slot_is_held(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    cli("unload", target.name)
    key = stage(lake, target.location, 1)
    hold = lake.aws.faults.hold_queries()
    holder = ThreadCaller(lake.publisher(60), target, {"force": True}).start()
    wait_until(lambda: (found := lake.register(target.location)) and found.state == "running", "the slot is held")
    ended = cli("gc", target.name, "--delete")
    assert "the slot is running" in ended.out
    assert key in lake.staged(target.location)
    lake.aws.faults.release(hold)
    holder.join()


def test_restore_lists_what_is_kept_and_brings_it_back(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    cli("unload", target.name)
    lake.put_rows("numbers", "part-1.parquet", range(ROWS, ROWS + 10))
    cli("unload", target.name)
    assert lake.rows(target.location) == Counter(range(ROWS + 10))

    [kept] = cli("restore", target.name, "--json").document["kept"]
    assert (kept["fence"], kept["rows"]) == (1, ROWS)
    assert "1,000 rows" in cli("restore", target.name).out
    assert lake.rows(target.location) == Counter(range(ROWS + 10))

    ended = cli("restore", target.name, "--fence", "1")
    assert ended.status == 0, ended.err
    assert ended.out.startswith(f"restored   {target.name}: 1,000 rows, ")
    assert lake.rows(target.location) == Counter(range(ROWS))
    assert len(lake.queries(target.location)) == 2
    assert cli("restore", target.name, "--fence", "9").status == 1


@pytest.fixture
def blocked(lake: Lake, cli: Cli) -> str:
    """The name of a target in mode direct whose query left two files."""
    target = lake.target("blocked", mode="direct")
    cli.define(target)
    lake.aws.faults.fail_queries(sql_contains=target.name, after_files=2)
    assert cli("unload", "blocked").status == 5
    return "blocked"


def test_repair_shows_what_lies_there_and_leaves_it(lake: Lake, cli: Cli, blocked: str) -> None:
    location = lake.target(blocked).location
    ended = cli("repair", blocked)
    assert ended.status == 1
    for key in lake.listing(location):
        assert f"s3://{lake.bucket}/{key}" in ended.out
    assert len(lake.listing(location)) == 2
    assert cli("unload", blocked).status == 5


@pytest.mark.parametrize(("answer", "status"), [("n\n", 1), ("", 2)], ids=["no", "nobody answers"])
def test_repair_deletes_nothing_without_a_yes(lake: Lake, cli: Cli, blocked: str, answer: str, status: int) -> None:
    ended = cli("repair", blocked, "--delete", answer=answer)
    assert ended.status == status
    assert "Delete 2 objects" in ended.err
    assert len(lake.listing(lake.target(blocked).location)) == 2


@pytest.mark.parametrize(("options", "answer"), [(["--delete"], "y\n"), (["--delete", "--yes"], "")])
def test_repair_with_a_yes_frees_the_slot(lake: Lake, cli: Cli, blocked: str, options: list[str], answer: str) -> None:
    location = lake.target(blocked).location
    ended = cli("repair", blocked, *options, answer=answer)
    assert ended.status == 0, ended.err
    assert lake.listing(location) == {}
    assert cli("unload", blocked).status == 0
    lake.assert_published_once(location)
    assert cli("repair", blocked).status == 1


def pointing(lake: Lake, cli: Cli, *sizes: int) -> str:
    """The location of a target in mode pointer with a Glue table, published once for each size; none is kept."""
    location = f"s3://{lake.bucket}/published/pointed/"
    for size in sizes:
        cli.write(
            "from athena_assets import Target\n"
            f"pointed = Target(name='pointed', query='SELECT n FROM numbers WHERE n < {size}', location='{location}',"
            f" database='{lake.database}', mode='pointer', keep_previous=0, glue_table='{lake.database}.pointed')"
        )
        sys.modules.pop(cli.module, None)
        assert cli("unload", "pointed").status == 0
    return location


def test_gc_deletes_replaced_results_of_a_pointer_when_their_grace_period_is_over(lake: Lake, cli: Cli) -> None:
    location = pointing(lake, cli, 500, 600)
    old = set(lake.listing(location)) - set(lake.listing(lake.readers(location)))
    assert len(old) == 2
    assert "no garbage" in cli("gc", "pointed", "--delete").out
    listed = cli("gc", "pointed", "--grace", "0", "--json").document["slots"][0]
    assert {each["key"] for each in listed["directories"]} == old
    assert old < set(lake.listing(location))
    deleted = cli("gc", "pointed", "--grace", "0", "--delete")
    assert deleted.status == 0
    assert "2 objects" in deleted.out
    assert set(lake.listing(location)) == set(lake.listing(lake.readers(location)))
    assert cli("gc", "pointed", "--grace", "-1").status == 2
    lake.assert_published_once(location, range(600))


def test_repair_sends_the_readers_of_a_table_back_to_the_publication(lake: Lake, cli: Cli) -> None:
    location = pointing(lake, cli, 500)
    assert cli("scrub", "pointed").status == 0
    found = lake.glue.get_table(DatabaseName=lake.database, Name="pointed")["Table"]
    table = {name: found[name] for name in ("Name", "TableType", "Parameters", "PartitionKeys")}
    storage = {**found["StorageDescriptor"], "Location": f"s3://{lake.bucket}/elsewhere/"}
    lake.glue.update_table(DatabaseName=lake.database, TableInput={**table, "StorageDescriptor": storage})
    ended = cli("scrub", "pointed")
    assert ended.status == 1
    assert "Glue sends readers elsewhere" in ended.out
    assert "elsewhere" in cli("scrub", "pointed", "--json").document["slots"][0]["astray"]
    ended = cli("repair", "pointed")
    assert ended.status == 0
    assert ended.out.startswith("pointed ")
    assert lake.pointer("pointed") == lake.readers(location)
    assert cli("scrub", "pointed").status == 0
    assert cli("repair", "pointed").status == 1


def test_rebuild_says_first_what_it_would_write_and_then_writes_it(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    cli("unload", target.name)
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys.register_key(parse_location(target.location)))
    assert "rebuild" in cli("unload", target.name).err
    looked = cli("rebuild", target.name)
    assert looked.status == 0
    assert "it is gone" in looked.out
    assert "00000001-01" in looked.out
    assert "it is proved" in looked.out
    assert "would be written (--write)" in looked.out
    assert lake.register(target.location) is None
    document = cli("rebuild", target.name, "--write", "--json").document
    assert document["written"] is True
    assert document["chosen"]["name"] == "00000001-01"
    lake.assert_published_once(target.location)
    assert cli("rebuild", target.name).status == 5


def test_rebuild_lists_what_it_can_not_tell_apart(lake: Lake, cli: Cli) -> None:
    target = lake.target()
    cli.define(target)
    cli("unload", target.name)
    for key in lake.listing(target.location):
        lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    lake.s3.delete_object(Bucket=lake.bucket, Key=keys.register_key(parse_location(target.location)))
    looked = cli("rebuild", target.name)
    assert looked.status == 5
    assert "0 of 4 files there" in looked.out
    assert "--publication" in looked.out
    assert cli("rebuild", target.name, "--write").status == 5
    lost = cli("rebuild", target.name, "--write", "--publication", "00000001-01")
    assert "PublicationLost" in lost.err
    assert cli("unload", target.name).status == 0
    lake.assert_published_once(target.location)
