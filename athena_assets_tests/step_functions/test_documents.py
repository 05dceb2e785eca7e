"""What goes into an execution and comes out: written by us, by hand, and read back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from athena_assets import OutputFormat, Published, Reused, Skipped, Target, UpstreamTable, errors
from athena_assets.core.location import Location
from athena_assets.core.request import Outcome
from athena_assets.errors import AthenaAssetsError, InvalidTarget
from athena_assets.step_functions.documents import (
    LONGEST,
    Wish,
    outcome_document,
    raised,
    read_error,
    read_outcome,
    read_wish,
)
from athena_assets.step_functions.names import execution_name, session_of
from athena_assets_tests.core.examples import PUBLICATION
from athena_assets_tests.core.test_errors import ALL, example

PLAIN = Target(name="marts/daily", query="SELECT n FROM t", location="s3://lake/daily/")
SMALL = {"name": "a", "query": "SELECT 1", "location": "s3://b/p/"}
RICH = Target(
    name="sales",
    query="SELECT * FROM t WHERE d = ${day} AND r = ${region} AND x = ${limit}",
    location="s3://lake/sales/${day}/${region}/",
    database="sales",
    grain="day",
    dimensions=("day", "region"),
    output=OutputFormat("ORC", "ZSTD", partitioned_by=("a", "b")),
    parameters={"limit": "3"},
    catalog="other",
    workgroup="etl",
    upstreams=(UpstreamTable("sales", "orders"), UpstreamTable("sales", "lines", "other")),
    on_conflict="queue",
    reuse="never",
    timeout=60.5,
    wait_timeout=10,
    retries=0,
    keep_previous=3,
    adopt_existing=True,
    on_empty="fail",
)


@pytest.mark.parametrize("target", [PLAIN, RICH], ids=["plain", "rich"])
def test_a_wish_survives_the_way_through_step_functions(target: Target) -> None:
    wish = Wish(
        target=target, partition="2024-01-01|north", request_id="r-1", force=True, upstream_versions={"a.b": "7"}
    )
    assert read_wish(json.loads(wish.text())) == wish
    assert wish.text() == read_wish(json.loads(wish.text())).text()


def test_what_has_its_default_is_left_out() -> None:
    assert Wish(target=PLAIN).document() == {
        "target": {"name": "marts/daily", "query": "SELECT n FROM t", "location": "s3://lake/daily/"}
    }


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([], "not an object"),
        ({}, "lacks target"),
        ({"target": {"name": "a"}}, "lacks location, query"),
        ({"target": SMALL | {"queyr": 1}}, "unknown 'queyr'"),
        ({"target": SMALL, "partiton": "x"}, "unknown 'partiton'"),
        ({"target": SMALL, "partition": 3}, "partition 3"),
        ({"target": SMALL, "force": "yes"}, "force 'yes'"),
        ({"target": SMALL, "upstream_versions": [1]}, "upstream_versions"),
        ({"target": SMALL | {"output": {"format": 3}}}, "output"),
        ({"target": SMALL | {"output": {"fromat": "ORC"}}}, "output"),
        ({"target": SMALL | {"upstreams": ["t"]}}, "upstreams"),
        ({"target": SMALL | {"timeout": "1h"}}, "timeout"),
        ({"target": {"name": "a", "query": "DROP TABLE t", "location": "s3://b/p/"}}, "not a query"),
    ],
)
def test_an_input_that_a_person_got_wrong_is_told(document: Any, told: str) -> None:
    with pytest.raises(InvalidTarget, match=re.escape(told)):
        read_wish(document)


def test_an_input_that_step_functions_would_refuse_is_refused_first() -> None:
    padded = Target(name="a", query=f"SELECT 1 -- {'x' * (LONGEST - 40_000)}", location="s3://lake/a/")
    assert len(Wish(target=padded).text()) < LONGEST
    longer = Target(name="a", query=f"SELECT 1 -- {'x' * (LONGEST - 3_000)}", location="s3://lake/a/")
    with pytest.raises(InvalidTarget, match="Shorten the query"):
        Wish(target=longer).text()


@pytest.mark.parametrize(
    "outcome",
    [
        Published(PUBLICATION, attempts=2, waited=1.5, adopted=True),
        Reused(PUBLICATION, waited=3.0, joined=True, superseded=True),
        Skipped("process 1 on host", "q-1"),
    ],
)
def test_an_outcome_survives_the_way_through_step_functions(outcome: Outcome) -> None:
    found = read_outcome(json.loads(json.dumps(outcome_document(outcome))), "arn:execution")
    assert isinstance(found, Skipped) or found.execution == "arn:execution"
    assert outcome_document(found) | {"schema": 1} == outcome_document(found)
    assert type(found) is type(outcome)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_the_way_through_step_functions(kind: type[AthenaAssetsError]) -> None:
    error = example(kind)
    sent = raised(error)
    assert type(sent).__name__ == kind.__name__
    assert str(sent).startswith(str(error))
    found = read_error(type(sent).__name__, json.dumps({"errorMessage": str(sent), "errorType": kind.__name__}))
    assert type(found) is kind
    assert str(found) == str(error)
    assert vars(found) == vars(error)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Runtime.ExitError", '{"errorMessage": "RequestId: 1 Error: Runtime exited"}'),
        ("States.Timeout", ""),
        ("AthenaAssetsError", "no JSON"),
        ("rebuild", '{"errorMessage": "x\\n{}"}'),
        ("SlotBusy", '{"errorMessage": "cut off'),
        ("SlotBusy", '{"errorMessage": "without a second line"}'),
    ],
)
def test_what_is_no_error_of_ours_is_not_taken_for_one(name: str, cause: str) -> None:
    assert read_error(name, cause) is None


def test_one_request_has_one_name_and_another_try_another() -> None:
    slot = Location("lake", "daily/")
    name = execution_name("marts/daily", slot, "r-1", 1)
    assert name == execution_name("marts/daily", slot, "r-1", 1)
    others = {
        execution_name("marts/daily", slot, "r-1", 2),
        execution_name("marts/daily", slot, "r-2", 1),
        execution_name("marts/daily", Location("lake", "hourly/"), "r-1", 1),
    }
    assert len(others | {name}) == 4
    assert re.fullmatch(r"marts-daily-[0-9a-f]{40}", name)
    assert len(execution_name("x" * 200, slot, "r" * 200, 1)) <= 80


def test_executions_have_sessions_of_their_own() -> None:
    assert session_of("arn:a") == session_of("arn:a") != session_of("arn:b")
    assert re.fullmatch("[0-9a-f]{16}", session_of("arn:a"))


def test_all_errors_are_known_by_name() -> None:
    assert all(getattr(errors, kind.__name__) is kind for kind in ALL)


def test_an_error_with_a_long_text_keeps_its_kind() -> None:
    """Step Functions cuts a cause, and would leave no JSON."""
    error = errors.QueryUserError("s3://lake/daily/", "no " * 20_000, query_id="q-1", next_step="Correct it.")
    cause = json.dumps({"errorMessage": str(raised(error)), "stackTrace": ["x" * 5_000]})
    assert len(cause) < 32_768
    found = read_error("QueryUserError", cause)
    assert isinstance(found, errors.QueryUserError)
    assert found.query_id == "q-1"
