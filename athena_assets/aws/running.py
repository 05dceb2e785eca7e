"""Queued and running queries of whole workgroups, found within bounds of time and calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from athena_assets.aws.replies import Refusal, question
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import LookForQueries, QueriesFound, RunningQuery, Unanswered

if TYPE_CHECKING:
    from mypy_boto3_athena.type_defs import QueryExecutionTypeDef

T = TypeVar("T")

PAGE = 50  # ids in an answer of ListQueryExecutions, and in a question of BatchGetQueryExecution (Athena's limits)
MOST_PAGES = 60  # of one workgroup
SECONDS = 30.0  # for all of them
PACE = 0.25  # seconds between two pages: ListQueryExecutions has a default quota of 5 calls a second
OLDEST = 24 * 3600.0
"""Seconds. A DML query ends after 240 minutes at most, its time in the queue left aside (Athena, service quotas)."""

_RUNNING = ("QUEUED", "RUNNING")


@dataclass(frozen=True, slots=True)
class Running:
    """What was found. `cut_short`: workgroups whose history was not looked through far enough, and why."""

    queries: tuple[RunningQuery, ...]
    cut_short: Mapping[str, str]


def look_for_queries(clients: AwsClients, effect: LookForQueries) -> QueriesFound:
    """Performs the protocol's effect. Callers of one process share looks: ListQueryExecutions has a small quota.

    A look takes half of the time at most: whoever comes while another looks has the other half for the next look.

    Raises:
        AccessDenied: a call was refused, or there is no such workgroup.
    """
    until = time.monotonic() + effect.seconds

    def look() -> QueriesFound:
        left = min(effect.seconds / 2, until - time.monotonic())
        found = running_queries(clients, (effect.workgroup,), seconds=left)
        return QueriesFound(found.queries, found.cut_short.get(effect.workgroup))

    shared = clients.looks.ask(effect.workgroup, look, effect.seconds)
    return QueriesFound((), "the looks of other callers took all the time") if shared is None else shared


def running_queries(
    clients: AwsClients,
    workgroups: Sequence[str],
    *,
    most_pages: int = MOST_PAGES,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Running:
    """The queued and running queries of the workgroups, newest first.

    Athena lists ids only, of ended queries too. So each page is looked up, back to one on which every query is older
    than one can be and still run, or as far as pages and seconds go. Throttling is waited out. The newest come first:
    that is observed, not documented, so one old query alone ends nothing.

    Raises:
        AccessDenied: a call was refused, or there is no such workgroup.
    """
    until = clock() + seconds
    found: list[RunningQuery] = []
    cut_short: dict[str, str] = {}
    for workgroup in workgroups:
        try:
            found += _Look(clients, workgroup, until, clock, sleep).all(most_pages)
        except _CutShort as stop:
            found += stop.found
            cut_short[workgroup] = stop.why
    return Running(tuple(found), cut_short)


class _CutShort(Exception):
    def __init__(self, why: str, found: Sequence[RunningQuery]) -> None:
        super().__init__(why)
        self.why = why
        self.found = found


@dataclass(frozen=True, slots=True)
class _Look:
    clients: AwsClients
    workgroup: str
    until: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    left_out: list[str] = field(default_factory=list)

    def all(self, most_pages: int) -> Sequence[RunningQuery]:
        found: list[RunningQuery] = []
        token: str | None = None
        for number in range(most_pages):
            if number:
                if self.clock() + PACE > self.until:
                    raise _CutShort(f"no time for more than {number * PAGE} queries of its history", found)
                self.sleep(PACE)
            listed = self._ask(
                self.clients.athena.list_query_executions,
                {"WorkGroup": self.workgroup, "MaxResults": PAGE, "NextToken": token},
                "QueryExecutionIds",
                found,
            )
            executions = list(self._look_up(listed["QueryExecutionIds"], found))
            found += (_running(each) for each in executions if each["Status"]["State"] in _RUNNING)
            token = listed.get("NextToken")
            if token is None or (executions and all(_age(each) > OLDEST for each in executions)):
                if self.left_out:
                    raise _CutShort(f"Athena told nothing of {len(self.left_out)} of its queries", found)
                return found
        raise _CutShort(f"more than {most_pages * PAGE} queries in its history", found)

    def _look_up(self, ids: Sequence[str], found: Sequence[RunningQuery]) -> Iterator[QueryExecutionTypeDef]:
        if ids:
            arguments = {"QueryExecutionIds": list(ids)}
            answer = self._ask(self.clients.athena.batch_get_query_execution, arguments, "QueryExecutions", found)
            yield from answer["QueryExecutions"]
            self.left_out.extend(each["QueryExecutionId"] for each in answer.get("UnprocessedQueryExecutionIds", ()))

    def _ask(
        self,
        operation: Callable[..., Any],
        arguments: Mapping[str, Any],
        expect: str,
        found: Sequence[RunningQuery],
    ) -> Any:
        wait = PACE
        while True:
            answer = question(f"workgroup {self.workgroup}", operation, arguments, expect=expect)
            if not isinstance(answer, Refusal | Unanswered):
                return answer
            if self.clock() + wait > self.until:
                raise _CutShort(f"no answer in time ({answer})", found)
            self.sleep(wait)
            wait = min(2 * wait, 4.0)


def _running(execution: QueryExecutionTypeDef) -> RunningQuery:
    return RunningQuery(
        query_id=execution["QueryExecutionId"],
        workgroup=execution.get("WorkGroup", ""),
        text=execution.get("Query", ""),
        catalog=execution.get("QueryExecutionContext", {}).get("Catalog", ""),
        database=execution.get("QueryExecutionContext", {}).get("Database", ""),
        output_location=execution.get("ResultConfiguration", {}).get("OutputLocation", ""),
        state=execution["Status"]["State"],
        submitted=execution["Status"]["SubmissionDateTime"].timestamp(),
    )


def _age(execution: QueryExecutionTypeDef) -> float:
    return time.time() - execution["Status"]["SubmissionDateTime"].timestamp()
