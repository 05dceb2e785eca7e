"""Fingerprints: golden, because a release that computed others would reuse nothing and recognise no retry."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena_assets.core.generation import (
    UpstreamVersion,
    definition_fingerprint,
    generation_fingerprint,
    request_token,
)
from athena_assets.core.location import Location
from athena_assets.core.output import OutputFormat
from athena_assets.core.target import Target
from athena_assets_tests.core.examples import LOCATION, request, target

ORDERS = UpstreamVersion("awsdatacatalog.sales.orders", "iceberg:1")
RATES = UpstreamVersion("awsdatacatalog.sales.rates", None)


def definition(
    query: str = "SELECT 1",
    output: OutputFormat = OutputFormat(),  # noqa: B008 - a frozen value
    location: Location = LOCATION,
    partition: str | None = None,
    catalog: str = "AwsDataCatalog",
    database: str = "sales",
) -> str:
    return definition_fingerprint(
        query=query, output=output, location=location, partition=partition, catalog=catalog, database=database
    )


def token(
    location: Location = LOCATION,
    generation: str = "a" * 64,
    fence: int = 7,
    attempt: int = 1,
    workgroup: str | None = "primary",
    nonce: str = "00ff",
) -> str:
    return request_token(
        location=location, generation=generation, fence=fence, attempt=attempt, workgroup=workgroup, nonce=nonce
    )


def test_fingerprints_are_what_they_always_were() -> None:
    found = definition()
    assert found == "c7848a20d8b84cba3f22b844e0b3bcf50387f3ed0daf05fcd2c1e91daa7559de"
    assert (
        generation_fingerprint(found, (ORDERS, RATES))
        == "dab9967afa1b22779ac82a548a61efc4380250bcc15865842eff4024dc110151"
    )
    assert token() == "57eb4967b95295c4977abe698c3eb2741d1f13b145b4b01c54400ae987672347"


DEFINITIONS: list[Callable[[], str]] = [
    definition,
    lambda: definition(query="SELECT 2"),
    lambda: definition(query="SELECT 1 "),
    lambda: definition(output=OutputFormat("ORC")),
    lambda: definition(output=OutputFormat("PARQUET", "ZSTD")),
    lambda: definition(output=OutputFormat("PARQUET", "ZSTD", 3)),
    lambda: definition(output=OutputFormat("PARQUET", "ZSTD", 4)),
    lambda: definition(output=OutputFormat("TEXTFILE")),
    lambda: definition(output=OutputFormat("TEXTFILE", field_delimiter=",")),
    lambda: definition(location=Location("pond", LOCATION.prefix)),
    lambda: definition(location=Location("lake", "marts/weekly/")),
    lambda: definition(partition=""),
    lambda: definition(partition="None"),
    lambda: definition(partition="null"),
    lambda: definition(catalog="other"),
    lambda: definition(database="other"),
    lambda: definition(catalog="sales", database="AwsDataCatalog"),
]


def test_every_part_of_the_definition_counts() -> None:
    found = [each() for each in DEFINITIONS]
    assert len(set(found)) == len(DEFINITIONS)


def test_upstream_versions_count_and_their_order_does_not() -> None:
    found = {
        generation_fingerprint(base, upstreams)
        for base in ("d1", "d2")
        for upstreams in (
            (),
            (ORDERS,),
            (RATES,),
            (ORDERS, RATES),
            (UpstreamVersion(ORDERS.table, "iceberg:2"),),
            (UpstreamVersion(ORDERS.table, None),),
            (UpstreamVersion(ORDERS.table, "None"),),
        )
    }
    assert len(found) == 14
    assert generation_fingerprint("d", (ORDERS, RATES)) == generation_fingerprint("d", (RATES, ORDERS))


@given(
    st.lists(st.tuples(st.text(), st.none() | st.text()), max_size=5, unique_by=lambda pair: pair[0]),
    st.randoms(use_true_random=False),
)
def test_no_order_of_upstreams_changes_the_generation(pairs: list[tuple[str, str | None]], chance: object) -> None:
    upstreams = [UpstreamVersion(*pair) for pair in pairs]
    shuffled = list(upstreams)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert generation_fingerprint("d", tuple(upstreams)) == generation_fingerprint("d", tuple(shuffled))


def test_who_told_a_version_does_not_matter() -> None:
    given_version = UpstreamVersion(ORDERS.table, ORDERS.version, given=True)
    assert generation_fingerprint("d", (ORDERS,)) == generation_fingerprint("d", (given_version,))


def test_every_part_of_the_token_counts() -> None:
    found = [
        token(),
        token(location=Location("pond", LOCATION.prefix)),
        token(location=Location("lake", "marts/weekly/")),
        token(generation="b" * 64),
        token(fence=8),
        token(attempt=2),
        token(fence=1, attempt=7),
        token(workgroup=None),
        token(workgroup="other"),
        token(nonce="ff00"),
    ]
    assert len(set(found)) == len(found)


@given(st.text(), st.integers(), st.integers(), st.none() | st.text(), st.text())
def test_a_token_is_of_a_length_that_athena_takes(
    generation: str, fence: int, attempt: int, workgroup: str | None, nonce: str
) -> None:
    found = token(LOCATION, generation, fence, attempt, workgroup, nonce)
    assert len(found) == 64
    assert set(found) <= set("0123456789abcdef")


def test_kinds_of_fingerprints_never_meet() -> None:
    assert len({definition(), generation_fingerprint(definition(), ()), token(generation=definition())}) == 3


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (target(name="other"), True),
        (target(on_conflict="fail", reuse="never", guard="always", timeout=1, wait_timeout=1, retries=0), True),
        (target(upstreams=[]), True),
        (target(workgroup="other"), True),
        (target(output="parquet"), True),
        (target(output="ORC"), False),
        (target(catalog="other"), False),
        (target(database="other"), False),
    ],
)
def test_how_a_target_is_published_is_not_part_of_what(changed: Target, same: bool) -> None:
    assert (request(target=changed).definition == request().definition) is same


def test_label_and_staging_are_not_part_of_the_definition() -> None:
    wish = request()
    one, other = wish.start_parameters("x/1/", 7, 1), wish.start_parameters("x/2/", 8, 2)
    assert one.query != other.query
    assert wish.definition == request(id="wish-2", run="run-9", workgroup="etl", force=True).definition


def test_rendered_values_are_part_of_the_definition() -> None:
    template = target(query="SELECT ${a}", parameters={"a": "1"})
    changed = target(query="SELECT ${a}", parameters={"a": "2"})
    assert (
        request(target=template, query=template.query_for(None)).definition
        != request(target=changed, query=changed.query_for(None)).definition
    )
