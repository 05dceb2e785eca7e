"""The scenes with Dagster: real processes, real kills."""

from __future__ import annotations

from athena_assets.core import keys
from athena_assets.core.location import Location
from athena_assets.core.policy import LEASE_SECONDS
from athena_assets.core.register import State
from athena_assets.demo.dagster_runs import DAGSTER_SECONDS, Run, Runs, who_sent
from athena_assets.demo.report import Check
from athena_assets.demo.scenes import rows_are_right
from athena_assets.demo.stage import ASSET, FLIGHTS, FLIGHTS_OF_DAY, Mark, Stage, until

PREFIX = f"published/{ASSET}/"
PROCESSES = 4
SHORT_LEASE = 5.0  # seconds


def at_once(stage: Stage, runs: Runs) -> list[Check]:
    """Four Dagster processes materialize one asset; none has finished before all have looked."""
    mark = stage.mark()
    hold = stage.aws.faults.hold_queries(at="checked")
    stage.say(f"{PROCESSES} x `dagster asset materialize --select {ASSET}`, each in a Dagster instance of its own")
    started = [runs.start(f"run-{number}") for number in range(1, PROCESSES + 1)]
    until(
        lambda: all(_has_read_register(stage, mark, run) for run in started),
        "all runs have read the register",
        DAGSTER_SECONDS,
    )
    standing = stage.aws.faults.held(hold)
    stage.say(f"all {PROCESSES} have read the register; {len(standing)} query stands before its first file: let go")
    stage.aws.faults.remove(hold)
    for run in started:
        run.succeeded()
    starters = [run.name for run in started if run.sent(mark.requests("athena", "StartQueryExecution"))]
    stage.say(f"all runs succeeded; the query was started by {', '.join(starters)}")
    return [
        Check("runs that succeeded", sum(run.process.returncode == 0 for run in started), PROCESSES),
        Check("queries", len(mark.queries()), 1),
        Check("processes that started it", len(starters), 1),
        *rows_are_right(stage.read(PREFIX), FLIGHTS),
    ]


def killed(stage: Stage, runs: Runs) -> list[Check]:
    """The process that holds the slot is killed while its query runs; the next run finishes that query."""
    expected = FLIGHTS + FLIGHTS_OF_DAY[1]
    stage.say(f"upstream: a file with {stage.append_day(1):,} flights is added, so the published result is outdated")
    mark = stage.mark()
    hold = stage.aws.faults.hold_queries(at="checked")
    owner = runs.start("run-killed", SHORT_LEASE)
    until(
        lambda: len(_held(stage, hold, owner)) == 1 and _state(stage) is State.RUNNING,
        "the query runs",
        DAGSTER_SECONDS,
    )
    (query_id,) = stage.aws.faults.held(hold)
    register = stage.register(PREFIX)
    assert register.owner is not None
    exit_status = owner.kill(register.owner.pid)
    in_mid_query = _query_state(mark, query_id)
    stage.say(f"process {register.owner.pid} holds the slot (fence {register.fence}) and was killed with SIGKILL;")
    stage.say(f"its query {query_id} runs on; a lease lasts {SHORT_LEASE:g} s here ({LEASE_SECONDS:g} s by default)")
    outdated = stage.read(PREFIX)

    following = runs.start("run-next", SHORT_LEASE)
    until(lambda: _owner(stage, following), "the next run holds the slot", DAGSTER_SECONDS)
    adopted = _query_state(mark, query_id)
    stage.say(f"the next run, process {following.process.pid}, holds the slot now: the query may go on")
    stage.aws.faults.remove(hold)
    following.succeeded()
    ids = [query.query_id for query in mark.queries()]
    stage.say(f"it succeeded by itself; queries since the kill: {len(ids) - 1}")
    finishers = who_sent([owner, following], mark, "s3", "CopyObject", PREFIX)
    return [
        Check("exit status of the killed", exit_status, -9),
        Check("query at kill, at adoption", f"{in_mid_query}, {adopted}", "RUNNING, RUNNING"),
        Check("rows in S3 after the kill", outdated.rows, FLIGHTS),
        Check("queries, by id", ", ".join(each[:8] for each in ids), query_id[:8]),
        Check("started by, published by", f"{_starters(owner, following, mark)}, {finishers}", _HANDOVER),
        *rows_are_right(stage.read(PREFIX), expected, f"{FLIGHTS:,} + {FLIGHTS_OF_DAY[1]}"),
    ]


_HANDOVER = "run-killed, run-next"


def changed(stage: Stage, runs: Runs) -> list[Check]:
    """New data upstream replace the result; the same data start no query."""
    expected = FLIGHTS + FLIGHTS_OF_DAY[1] + FLIGHTS_OF_DAY[2]
    before = stage.read(PREFIX).objects
    stage.say(f"upstream: a file with {stage.append_day(2):,} flights is added; the asset is materialized")
    mark = stage.mark()
    runs.start("run-changed").succeeded()
    queries, replaced = len(mark.queries()), stage.read(PREFIX)
    stage.say(f"{queries} query; {replaced.rows:,} rows; and once more, with nothing changed")
    mark = stage.mark()
    runs.start("run-unchanged").succeeded()
    again = stage.read(PREFIX)
    return [
        Check("queries after the change", queries, 1),
        Check("old files that are left", len(before.keys() & replaced.objects.keys()), 0),
        *rows_are_right(replaced, expected, f"{FLIGHTS:,} + {FLIGHTS_OF_DAY[1]} + {FLIGHTS_OF_DAY[2]}"),
        Check("queries, nothing changed", len(mark.queries()), 0),
        Check("files that differ then", len(again.objects.items() ^ replaced.objects.items()), 0),
    ]


def _has_read_register(stage: Stage, mark: Mark, run: Run) -> bool:
    run.check()
    key = keys.register_key(Location(stage.bucket, PREFIX))
    return bool(run.sent(mark.requests("s3", "GetObject", key)))


def _held(stage: Stage, hold: str, run: Run) -> list[str]:
    run.check()
    return stage.aws.faults.held(hold)


def _state(stage: Stage) -> State:
    return stage.register(PREFIX).state


def _owner(stage: Stage, run: Run) -> bool:
    run.check()
    owner = stage.register(PREFIX).owner
    return owner is not None and owner.pid == run.process.pid


def _query_state(mark: Mark, query_id: str) -> str:
    return next(query.state for query in mark.queries() if query.query_id == query_id)


def _starters(owner: Run, following: Run, mark: Mark) -> str:
    return who_sent([owner, following], mark, "athena", "StartQueryExecution")
