"""Eight callers at one moment: the same harness whatever they call."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from athena_assets import Published, Publisher, Target
from athena_assets.demo.stage import DATABASE, FINAL, FORMAT, Stage, until
from athena_assets.local import QueryRecord

CALLERS = 8

Call = Callable[[Callable[[], None]], str]
"""Publishes and says how that ended. It calls its argument once it is in: its query is started, or it waits."""


def all_at_once(stage: Stage, calls: Sequence[Call]) -> Counter[str]:
    """Starts the calls at one moment, each in a thread of its own; returns how many ended how.

    Athena takes a while between its check that the destination is empty and its first file. That while lasts here until
    everybody is in and every query that was started stands there (or has ended).
    """
    mark = stage.mark()
    hold = stage.aws.faults.hold_queries(at="checked")
    barrier = threading.Barrier(len(calls))
    arrivals = [threading.Event() for _ in calls]
    endings: list[str] = []

    def run(call: Call, arrived: threading.Event) -> None:
        barrier.wait()
        try:
            endings.append(call(arrived.set))
        except Exception as error:  # noqa: BLE001 - an ending like others: it is counted, and shown
            endings.append(f"{type(error).__name__}: {error}")
        finally:
            arrived.set()

    # Daemons: an interrupted demo does not wait for them.
    threads = [
        threading.Thread(target=run, args=(call, arrived), daemon=True)
        for call, arrived in zip(calls, arrivals, strict=True)
    ]
    for thread in threads:
        thread.start()
    until(lambda: all(arrived.is_set() for arrived in arrivals), "all callers are in")
    until(lambda: _all_stand(stage, mark.queries(), hold), "every query stands before its first file")
    queries = mark.queries()
    standing = len(stage.aws.faults.held(hold))
    stage.say(f"all {len(calls)} are in: {len(queries)} started a query, {standing} of them past Athena's check")
    stage.aws.faults.remove(hold)
    until(lambda: not any(thread.is_alive() for thread in threads), "all callers have ended")
    return Counter(endings)


def _all_stand(stage: Stage, queries: Sequence[QueryRecord], hold: str) -> bool:
    held = stage.aws.faults.held(hold)
    return all(query.query_id in held or query.state in FINAL for query in queries)


def naive_call(stage: Stage, location: str) -> Call:
    """An UNLOAD as one writes it with boto3."""
    athena = stage.aws.client("athena")
    statement = f"UNLOAD (\n{stage.query})\nTO '{location}'\nWITH (format = 'PARQUET', compression = 'ZSTD')"

    def call(arrived: Callable[[], None]) -> str:
        query_id = athena.start_query_execution(
            QueryString=statement,
            QueryExecutionContext={"Database": DATABASE},
            ResultConfiguration={"OutputLocation": stage.results},
        )["QueryExecutionId"]
        arrived()
        while True:
            status = athena.get_query_execution(QueryExecutionId=query_id)["QueryExecution"]["Status"]
            if status["State"] in FINAL:
                return f"{status['State'].lower()} {status.get('StateChangeReason', '').partition(':')[0]}".strip()
            time.sleep(0.2)

    return call


def our_call(stage: Stage, location: str) -> Call:
    """The same UNLOAD through a Publisher that no other caller shares."""
    publisher = Publisher(stage.settings)
    target = Target(name="flights", query=stage.query, location=location, database=DATABASE, output=FORMAT)

    def call(arrived: Callable[[], None]) -> str:
        def observe(line: str) -> None:
            if line.startswith(("running", "waiting")):
                arrived()

        outcome = publisher.unload(target, observe=observe)
        return "published" if isinstance(outcome, Published) else "reused"

    return call


def describe(endings: Counter[str]) -> str:
    """`1 published, 7 reused`."""
    return ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items()))
