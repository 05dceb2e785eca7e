"""How far a look goes back, against an Athena whose pages a test writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from athena_assets.aws.running import OLDEST, running_queries
from athena_assets.aws.session import AwsClients

NEW, OLD = 60.0, OLDEST + 60.0


@dataclass(slots=True)
class Athena:
    """`pages`: the age of each query; one that is negative runs. `untold`: those that a batch does not tell of."""

    pages: Sequence[Sequence[float]]
    untold: Sequence[str] = ()
    asked: list[int] = field(default_factory=list)

    def list_query_executions(self, **asked: Any) -> Mapping[str, Any]:
        page = int(asked.get("NextToken", 0))
        self.asked.append(page)
        ids = [f"{page}.{each}" for each in range(len(self.pages[page]))]
        return {"QueryExecutionIds": ids, **({"NextToken": str(page + 1)} if page + 1 < len(self.pages) else {})}

    def batch_get_query_execution(self, **asked: Any) -> Mapping[str, Any]:
        ids = asked["QueryExecutionIds"]
        return {
            "QueryExecutions": [self._query(each) for each in ids if each not in self.untold],
            "UnprocessedQueryExecutionIds": [{"QueryExecutionId": each} for each in ids if each in self.untold],
        }

    def _query(self, query_id: str) -> Mapping[str, Any]:
        page, number = map(int, query_id.split("."))
        age = self.pages[page][number]
        submitted = datetime.now(UTC) - timedelta(seconds=abs(age))
        state = "RUNNING" if age < 0 else "SUCCEEDED"
        return {"QueryExecutionId": query_id, "Status": {"State": state, "SubmissionDateTime": submitted}}

    def running(self) -> list[str]:
        clients = cast("AwsClients", SimpleNamespace(athena=self))
        found = running_queries(clients, ["primary"], sleep=lambda _: None)
        assert bool(found.cut_short) == bool(self.untold)
        return [each.query_id for each in found.queries]


@pytest.mark.parametrize(
    ("pages", "asked", "found"),
    [
        ([[NEW, OLD], [-NEW], [OLD]], 3, ["1.0"]),  # in no order
        ([[-NEW, NEW], [OLD, OLD], [-NEW]], 2, ["0.0"]),
        ([[NEW], [], [-NEW]], 3, ["2.0"]),  # an empty page tells nothing
        ([[NEW], [OLD, NEW], [OLD], [OLD]], 3, []),
        ([[]], 1, []),
    ],
)
def test_a_look_ends_with_a_page_on_which_every_query_is_too_old(
    pages: list[list[float]], asked: int, found: list[str]
) -> None:
    athena = Athena(pages)
    assert athena.running() == found
    assert athena.asked == list(range(asked))


def test_a_page_of_which_nothing_is_told_ends_no_look() -> None:
    athena = Athena([[OLD], [-NEW]], untold=["0.0"])
    assert athena.running() == ["1.0"]
