"""Manifests: a result is exactly what one query's data manifest names, and a copy is ours only with its whole proof."""

from dataclasses import replace

import pytest

from athena_assets.core.effects import ListedObject
from athena_assets.core.location import Location
from athena_assets.core.manifest import (
    InvalidResult,
    ManifestFile,
    match_files,
    owner_of,
    parse_data_manifest,
    planned_files,
)
from athena_assets_tests.core.examples import LOCATION, MANIFEST

STAGING = "_athena_assets/v1/marts%2Fdaily/staging/00000007-01-00ff/"


def listed(*names: str, size: int = 10) -> tuple[ListedObject, ...]:
    return tuple(ListedObject(f"{STAGING}{name}", size, f'"{name}"') for name in names)


def uris(*names: str) -> tuple[str, ...]:
    return tuple(f"s3://lake/{STAGING}{name}" for name in names)


# --- Athena's --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", ()),
        (b"\n", ()),
        (b"s3://lake/a", ("s3://lake/a",)),
        (b"s3://lake/a\ns3://lake/b\n", ("s3://lake/a", "s3://lake/b")),
        (b"s3://lake/a\r\ns3://lake/b\r\n", ("s3://lake/a", "s3://lake/b")),
        (b"s3://lake/b\n\ns3://lake/a\n", ("s3://lake/b", "s3://lake/a")),
        ("s3://lake/stadt=Köln/a\n".encode(), ("s3://lake/stadt=Köln/a",)),
        (b"s3://lake/a,b%20c d\n", ("s3://lake/a,b%20c d",)),
    ],
)
def test_a_data_manifest_is_one_uri_a_line(body: bytes, found: tuple[str, ...]) -> None:
    assert parse_data_manifest(body) == found


def test_the_named_files_come_in_key_order_with_size_and_etag() -> None:
    listing = listed("a", "b", "c")
    assert match_files(uris("c", "a", "b"), listing, LOCATION, STAGING) == listing


def test_no_uris_and_no_objects_are_an_empty_result() -> None:
    assert match_files((), (), LOCATION, STAGING) == ()


def test_a_leftover_that_no_manifest_names_is_not_part_of_the_result() -> None:
    assert match_files(uris("b"), listed("a", "b", "c"), LOCATION, STAGING) == listed("b")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://lake/marts/daily/a",
        "s3://pond/" + STAGING + "a",
        "s3://lake/" + STAGING.removesuffix("/") + "-twin/a",
        "s3://lake/" + STAGING.replace("00ff", "ff00") + "a",
        "s3://lake" + STAGING + "a",
        STAGING + "a",
        "s3a://lake/" + STAGING + "a",
        "https://lake/" + STAGING + "a",
    ],
)
def test_a_file_outside_staging_is_refused(uri: str) -> None:
    key = uri.removeprefix("s3://lake/")
    with pytest.raises(InvalidResult, match=f"which is not under s3://lake/{STAGING}"):
        match_files((*uris("a"), uri), (*listed("a"), ListedObject(key, 1, '"x"')), LOCATION, STAGING)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidResult, match=r"b, which does not exist"):
        match_files(uris("a", "b"), listed("a"), LOCATION, STAGING)


def test_a_file_named_twice_is_refused() -> None:
    with pytest.raises(InvalidResult, match=r"a twice"):
        match_files(uris("a", "b", "a"), listed("a", "b"), LOCATION, STAGING)


def test_a_file_may_have_any_size() -> None:
    largest = listed("a", size=50 * 1024**4)
    assert match_files(uris("a"), largest, LOCATION, STAGING) == largest


# --- ours ------------------------------------------------------------------------------------------------------------


def test_the_plan_names_every_file_by_fence_attempt_and_index() -> None:
    assert planned_files(listed("a.gz", "day=1/b.gz", "c"), LOCATION, STAGING, 7, 2) == (
        ManifestFile(f"{STAGING}a.gz", '"a.gz"', 10, "marts/daily/00000007-02-00000.gz"),
        ManifestFile(f"{STAGING}day=1/b.gz", '"day=1/b.gz"', 10, "marts/daily/day=1/00000007-02-00001.gz"),
        ManifestFile(f"{STAGING}c", '"c"', 10, "marts/daily/00000007-02-00002"),
    )


def test_the_metadata_of_a_copy_is_what_it_always_was() -> None:
    assert MANIFEST.copy_metadata(1) == {
        "athena-assets-slot": "s3://lake/marts/daily/",
        "athena-assets-source": "7-1-1-e2",
    }
    assert owner_of(MANIFEST.copy_metadata(0), MANIFEST.files[0].key) == "s3://lake/marts/daily/"


def test_our_copy_is_recognised_whatever_else_its_metadata_hold() -> None:
    assert MANIFEST.is_copy(0, 10, MANIFEST.copy_metadata(0))
    assert MANIFEST.is_copy(0, 10, {**MANIFEST.copy_metadata(0), "added-by": "replication"})


OTHER_FILES = tuple(replace(file, source_etag='"other"') for file in MANIFEST.files)


@pytest.mark.parametrize(
    ("size", "metadata"),
    [
        (11, MANIFEST.copy_metadata(0)),
        (0, MANIFEST.copy_metadata(0)),
        (10, {}),
        (10, {"athena-assets-slot": MANIFEST.slot}),
        (10, {"athena-assets-source": "7-1-0-e1"}),
        (10, MANIFEST.copy_metadata(1)),
        (10, replace(MANIFEST, slot="s3://lake/marts/daily_old/").copy_metadata(0)),
        (10, replace(MANIFEST, slot=str(Location("pond", LOCATION.prefix))).copy_metadata(0)),
        (10, replace(MANIFEST, publication=replace(MANIFEST.publication, fence=8)).copy_metadata(0)),
        (10, replace(MANIFEST, publication=replace(MANIFEST.publication, attempt=2)).copy_metadata(0)),
        (10, replace(MANIFEST, files=OTHER_FILES).copy_metadata(0)),
    ],
)
def test_an_object_without_the_whole_proof_is_not_our_copy(size: int, metadata: dict[str, str]) -> None:
    assert not MANIFEST.is_copy(0, size, metadata)


def test_a_data_manifest_that_is_not_text_is_no_result() -> None:
    with pytest.raises(InvalidResult, match="UTF-8"):
        parse_data_manifest(b"s3://lake/\xff\n")


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x1c", "\x0b"])
def test_only_a_line_feed_ends_a_line_of_the_data_manifest(character: str) -> None:
    assert parse_data_manifest(f"s3://lake/a{character}b\n".encode()) == (f"s3://lake/a{character}b",)


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ({}, MANIFEST.files[0].key),
        ({"athena-assets-slot": MANIFEST.slot}, MANIFEST.files[0].key),
        (MANIFEST.copy_metadata(0), "marts/daily/copied-by-hand.gz"),
        (MANIFEST.copy_metadata(0), MANIFEST.files[1].key),
        ({**MANIFEST.copy_metadata(0), "athena-assets-source": "x-y-z"}, MANIFEST.files[0].key),
    ],
)
def test_metadata_that_came_along_with_a_copy_prove_nothing(metadata: dict[str, str], key: str) -> None:
    assert owner_of(metadata, key) is None
