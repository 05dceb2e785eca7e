"""The S3 keys: a release that derived others would exclude nobody and find nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena_assets.core import keys
from athena_assets.core.location import Location
from athena_assets_tests.core.examples import LOCATION


def test_keys_are_what_they_always_were() -> None:
    slot = "_athena_assets/v1/marts%2Fdaily/"
    assert keys.CONTROL_PREFIX == "_athena_assets/v1/"
    assert keys.slot_prefix(LOCATION) == slot
    assert keys.register_key(LOCATION) == f"{slot}register.json"
    assert keys.manifest_key(LOCATION, 7, 2) == f"{slot}manifests/00000007-02.json"
    assert keys.staging_prefix(LOCATION, 7, 2, "00ff") == f"{slot}staging/00000007-02-00ff/"


@pytest.mark.parametrize(
    ("staged", "published"),
    [
        ("20240131_101112_00042_abcde_1a2b", "marts/daily/00000007-02-00003"),
        ("20240131_101112_00042_abcde_1a2b.gz", "marts/daily/00000007-02-00003.gz"),
        ("20240131_101112_00042.gz.parquet", "marts/daily/00000007-02-00003.gz.parquet"),
        ("day=2024-01-31/x.y=z/file.gz", "marts/daily/day=2024-01-31/x.y=z/00000007-02-00003.gz"),
        ("v=1.5/file", "marts/daily/v=1.5/00000007-02-00003"),
    ],
)
def test_a_published_file_keeps_its_directories_and_suffix(staged: str, published: str) -> None:
    assert keys.published_key(LOCATION, 7, 2, 3, staged) == published


names = st.tuples(st.integers(1, 10**9), st.integers(1, 150), st.integers(0, 10**6))


@given(names, names)
def test_files_of_two_publications_never_share_a_key(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    same = keys.published_key(LOCATION, *one, "file.gz") == keys.published_key(LOCATION, *other, "file.gz")
    assert same == (one == other)


def test_the_longest_keys_fit_into_s3s_limit() -> None:
    longest = Location("lake", "%" * 266 + "/")
    assert len(keys.staging_prefix(longest, 10**9, 999, "f" * 16)) < 1024 - 64  # Athena's file names
    assert len(keys.manifest_key(longest, 10**9, 999)) < 1024
