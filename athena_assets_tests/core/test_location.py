"""Locations: one place has one name."""

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from athena_assets.core.keys import register_key
from athena_assets.core.location import MAX_QUOTED_BYTES, InvalidLocation, Location, parse_location

ACCEPTED_CHARACTERS = "".join(sorted(set(map(chr, range(0x20, 0x7F))) - set("'\"`\\?#*{}")))

segments = st.text(ACCEPTED_CHARACTERS.replace("/", ""), min_size=1, max_size=12).filter(
    lambda text: text not in (".", "..")
)
paths = st.lists(segments, min_size=1, max_size=5).map("/".join)
buckets = st.sampled_from(["lake", "my.data-lake", "0a1", "a" * 63])


def refused(text: str) -> InvalidLocation:
    with pytest.raises(InvalidLocation) as caught:
        parse_location(text)
    error = caught.value
    assert error.problem
    assert error.next_step.endswith(".")
    assert str(error) == f"{error.problem} {error.next_step}"
    return error


@given(buckets, paths)
def test_an_accepted_location_is_kept_to_the_letter(bucket: str, path: str) -> None:
    location = parse_location(f"s3://{bucket}/{path}/")
    assert location == Location(bucket, f"{path}/")
    assert str(location) == f"s3://{bucket}/{path}/"
    assert parse_location(str(location)) == location


@given(buckets, paths)
def test_a_missing_trailing_slash_is_added(bucket: str, path: str) -> None:
    assert parse_location(f"s3://{bucket}/{path}") == parse_location(f"s3://{bucket}/{path}/")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not begin with s3://"),
        ("bucket/path/", "does not begin with s3://"),
        ("s3:/bucket/path/", "does not begin with s3://"),
        ("S3://bucket/path/", "does not begin with s3://"),
        ("s3a://bucket/path/", "does not begin with s3://"),
        ("https://bucket.s3.amazonaws.com/path/", "does not begin with s3://"),
        (" s3://bucket/path/", "does not begin with s3://"),
        ("arn:aws:s3:::bucket/path/", "is an ARN"),
        ("arn:aws:s3:eu-central-1:111122223333:accesspoint/name/object/x", "is an ARN"),
        ("s3://arn:aws:s3:eu-central-1:111122223333:accesspoint/name/x/", "not the name of a general purpose bucket"),
        ("s3://name-111122223333-s3alias/x/", "not the name of a general purpose bucket"),
        ("s3://name--ol-s3/x/", "not the name of a general purpose bucket"),
        ("s3://name--euc1-az1--x-s3/x/", "not the name of a general purpose bucket"),
        ("s3://name--table-s3/x/", "not the name of a general purpose bucket"),
        ("s3:///path/", "not the name of a general purpose bucket"),
        ("s3://Bucket/path/", "not the name of a general purpose bucket"),
        ("s3://my_bucket/path/", "not the name of a general purpose bucket"),
        ("s3://ab/path/", "not the name of a general purpose bucket"),
        (f"s3://{'a' * 64}/path/", "not the name of a general purpose bucket"),
        ("s3://-bucket/path/", "not the name of a general purpose bucket"),
        ("s3://bucket-/path/", "not the name of a general purpose bucket"),
        ("s3://a..b/path/", "not the name of a general purpose bucket"),
        ("s3://bucket\n/path/", "not the name of a general purpose bucket"),
        ("s3://bücket/path/", "not the name of a general purpose bucket"),
        ("s3://bucket", "bucket's root"),
        ("s3://bucket/", "bucket's root"),
        ("s3://bucket//", "bucket's root"),
        ("s3://bucket//path/", "the path segment ''"),
        ("s3://bucket/p//x/", "the path segment ''"),
        ("s3://bucket/p/x//", "the path segment ''"),
        ("s3://bucket/./x/", "the path segment '.'"),
        ("s3://bucket/x/.", "the path segment '.'"),
        ("s3://bucket/../x/", "the path segment '..'"),
        ("s3://bucket/x/..", "the path segment '..'"),
        ("s3://bucket/é/", "the character 'é'"),
        ("s3://bucket/e\u0301/", "the character '\u0301'"),
        ("s3://bucket/\u2028/", "the character"),
        ("s3://bucket/\U0001f600/", "the character"),
        ("s3://bucket/a\tb/", r"the character '\t'"),
        ("s3://bucket/a\nb/", r"the character '\n'"),
        ("s3://bucket/a/\n", r"the character '\n'"),
        ("s3://bucket/a\x00b/", r"the character '\x00'"),
        ("s3://bucket/a\x7fb/", r"the character '\x7f'"),
        ("s3://bucket/a'b/", "the character '"),
        ('s3://bucket/a"b/', 'the character "'),
        ("s3://bucket/a`b/", "the character `"),
        ("s3://bucket/a\\b/", "the character \\"),
        ("s3://bucket/a?b/", "the character ?"),
        ("s3://bucket/a#b/", "the character #"),
        ("s3://bucket/a*b/", "the character *"),
    ],
)
def test_what_could_give_one_place_two_names_is_refused(text: str, problem: str) -> None:
    assert problem in refused(text).problem


@given(buckets, st.characters(), paths)
def test_every_other_character_than_those_listed_is_refused(bucket: str, character: str, path: str) -> None:
    assume(character not in ACCEPTED_CHARACTERS)
    refused(f"s3://{bucket}/{path}/x{character}y/")


def test_a_dot_in_a_segment_is_ordinary() -> None:
    assert parse_location("s3://lake/.hidden/a..b/...").prefix == ".hidden/a..b/.../"


def test_a_percent_sign_is_never_decoded() -> None:
    assert parse_location("s3://lake/a%2Fb/").prefix == "a%2Fb/"


def test_an_escaped_and_a_real_slash_have_different_registers() -> None:
    escaped, real = parse_location("s3://lake/a%2Fb/"), parse_location("s3://lake/a/b/")
    assert register_key(escaped) == "_athena_assets/v1/a%252Fb/register.json"
    assert register_key(real) == "_athena_assets/v1/a%2Fb/register.json"


@given(paths, paths)
def test_two_locations_never_share_a_register(one: str, other: str) -> None:
    assume(one != other)
    assert register_key(parse_location(f"s3://lake/{one}")) != register_key(parse_location(f"s3://lake/{other}"))


@given(st.text("%2F/5ab.~=", min_size=1, max_size=6), st.text("%2F/5ab.~=", min_size=1, max_size=6))
def test_quoting_is_injective_where_escapes_could_collide(one: str, other: str) -> None:
    assume(one != other)
    assert Location("lake", f"{one}/").quoted != Location("lake", f"{other}/").quoted


@given(paths)
def test_the_quoted_location_is_one_path_segment(path: str) -> None:
    quoted = parse_location(f"s3://lake/{path}").quoted
    assert set(quoted) <= set(string.ascii_letters + string.digits + "-_.~=%")
    assert quoted not in (".", "..")


def test_a_location_of_800_bytes_is_accepted_and_of_801_refused() -> None:
    assert len(parse_location(f"s3://lake/{'a' * MAX_QUOTED_BYTES}/").quoted) == MAX_QUOTED_BYTES == 800
    assert "801 bytes" in refused(f"s3://lake/{'a' * 801}/").problem


def test_the_limit_counts_bytes_after_quoting() -> None:
    assert len(parse_location(f"s3://lake/{'%' * 266}/").quoted) == 798
    assert "801 bytes" in refused(f"s3://lake/{'%' * 267}/").problem


@pytest.mark.parametrize(
    ("one", "other", "contains", "overlaps"),
    [
        ("s3://lake/foo", "s3://lake/foo", True, True),
        ("s3://lake/foo", "s3://lake/foo/bar", True, True),
        ("s3://lake/foo/bar", "s3://lake/foo", False, True),
        ("s3://lake/foo", "s3://lake/foo_old", False, False),
        ("s3://lake/foo_old", "s3://lake/foo", False, False),
        ("s3://lake/foo", "s3://pond/foo", False, False),
        ("s3://lake/foo", "s3://pond/foo/bar", False, False),
        ("s3://lake/a/foo", "s3://lake/foo", False, False),
        ("s3://lake/foo", "s3://lake/Foo", False, False),
    ],
)
def test_a_location_contains_itself_and_its_descendants_only(
    one: str, other: str, contains: bool, overlaps: bool
) -> None:
    left, right = parse_location(one), parse_location(other)
    assert left.contains(right) is contains
    assert left.overlaps(right) is overlaps
    assert right.overlaps(left) is overlaps


@pytest.mark.parametrize("bucket", ["192.168.0.1", "xn--abc", "sthree-abc", "amzn-s3-demo-x", "alias.mrap"])
def test_names_that_are_no_general_purpose_bucket_are_refused(bucket: str) -> None:
    with pytest.raises(InvalidLocation):
        parse_location(f"s3://{bucket}/x/")
