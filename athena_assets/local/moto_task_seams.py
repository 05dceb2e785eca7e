"""The private parts of moto's Lambda and Step Functions that this package leans on: the rest of `moto_seams`.

moto's interpreter of state machines runs each execution in threads of its own. But for the lock around an execution's
end there is none that could be shared, so these functions read and set single attributes only. It calls other services
through boto3's default session, at `http://localhost:$MOTO_PORT`, with one attempt, as `CALLER`.

Seams: `default_user_config["stepfunctions"]["execute_state_machine"]`; `boto_client_for` and its access key;
`lambda_backends[account][region].get_function`, `UnknownFunctionException`, and of a `LambdaFunction` `.function_name`,
`.version`, `.region`, `.handler`, `.run_time`, `.timeout`, `.memory_size`, `.environment_vars`, `.code_bytes`,
`.code_digest`, `.package_type`; `stepfunctions_parser_backends[account][region].state_machines`, and of one `.name`,
`.definition`, `.roleArn`, `.executions`; of an execution `.execution_arn`, `.status`, `.exec_status`, `.stop_date`,
`.error`, `.cause`, `.stop`, `.exec_worker.env` (`None` until its thread has read the definition), whose
`.program_state()` is `None` until the first state is entered, and a `ProgramStopped` with what `stop` was given;
its `.set_error`, `.set_timed_out` and `._state_mutex`, which is reentrant.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moto.core.config import default_user_config

from athena_assets.local.moto_seams import ACCOUNT

CALLER = "ak"  # the access key that moto's Step Functions call other services with
START_SECONDS = 10.0

_CALLERS = threading.Lock()


@dataclass(frozen=True, slots=True)
class FunctionVersion:
    """A function as it is configured now. Equal values may share an execution environment."""

    name: str
    version: str
    region: str
    handler: str
    runtime: str
    timeout: float
    memory_size: int
    variables: tuple[tuple[str, str], ...]
    code_digest: str
    code: bytes = field(compare=False, repr=False)


def execute_state_machines() -> None:
    """moto's own setting: StartExecution interprets the definition instead of answering SUCCEEDED."""
    default_user_config["stepfunctions"] = {"execute_state_machine": True}
    # It logs every failure of a state with the whole program; that an execution fails is an answer, not an error.
    logging.getLogger("moto.stepfunctions").setLevel(logging.CRITICAL)


def find_function(region: str, name_or_arn: str, qualifier: str | None) -> FunctionVersion | None:
    """`None` if there is no such function or version. `ValueError` if it is none that a subprocess could run."""
    from moto.awslambda.exceptions import UnknownFunctionException
    from moto.awslambda.models import lambda_backends

    try:
        found: Any = lambda_backends[ACCOUNT][region].get_function(name_or_arn, qualifier)
    except UnknownFunctionException:
        return None
    runtime = str(found.run_time)
    if found.package_type != "Zip" or not runtime.startswith("python") or not found.handler:
        raise ValueError(f"{found.function_name} is no Python function in a zip file")
    return FunctionVersion(
        name=found.function_name,
        version=str(found.version),
        region=found.region,
        handler=found.handler,
        runtime=runtime,
        timeout=float(found.timeout),
        memory_size=int(found.memory_size),
        variables=tuple(sorted((found.environment_vars or {}).items())),
        code_digest=found.code_digest,
        code=found.code_bytes,
    )


def prepare_callers() -> None:
    """Lets boto3's default session load what it loads at its first use: that is not safe in many threads at once."""
    from moto.stepfunctions.parser.asl.utils.boto_client import boto_client_for

    with _CALLERS:
        boto_client_for("us-east-1", "lambda")


def find_state_machine(region: str, name: str) -> tuple[str, str] | None:
    """Definition and role of a state machine; `None` if there is none of this name."""
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    machines = list(stepfunctions_parser_backends[ACCOUNT][region].state_machines)
    return next(((machine.definition, machine.roleArn) for machine in machines if machine.name == name), None)


def _executions() -> Iterator[Any]:
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    for region in list(stepfunctions_parser_backends[ACCOUNT].values()):
        for machine in list(region.state_machines):
            yield from list(machine.executions)


def find_execution(arn: str) -> Any | None:
    """An execution of moto's; `None` if there is none."""
    return next((execution for execution in _executions() if execution.execution_arn == arn), None)


def stop_execution(execution: Any, error: str | None, cause: str | None) -> datetime:
    """StopExecution of one that may have ended; returns when it stopped or ended. A stop can lose against the end."""
    deadline = time.monotonic() + START_SECONDS
    while execution.status == "RUNNING":
        # Before its thread has begun there is nothing that a stop could be told.
        if _program_state(execution) is not None:
            _stop(execution, error, cause)
            reflect_stop(execution)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{execution.execution_arn} neither begins nor ends")
        time.sleep(0.001)
    found = end_of(execution)
    assert found is not None
    return found


def _stop(execution: Any, error: str | None, cause: str | None) -> None:
    """A stop that lasts: to moto's thread, whatever a stopped program cannot do any more is an error of the program."""
    from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped

    env = execution.exec_worker.env

    def unless_stopped(end: Callable[..., None]) -> Callable[..., None]:
        def guarded(*args: Any, **named: Any) -> None:
            with env._state_mutex:
                if not isinstance(env.program_state(), ProgramStopped):
                    end(*args, **named)

        return guarded

    env.set_error, env.set_timed_out = unless_stopped(env.set_error), unless_stopped(env.set_timed_out)
    execution.stop(stop_date=datetime.now(UTC), error=error, cause=cause)


def end_of(execution: Any) -> datetime | None:
    """When it was stopped or ended; `None` while it runs. moto moves the former to when its thread is back."""
    from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped

    state = _program_state(execution)
    found: datetime | None = state.stop_date if isinstance(state, ProgramStopped) else execution.stop_date
    return found


def reflect_stop(execution: Any) -> None:
    """Makes a stopped execution ABORTED since its stop. moto does it when its thread is back from the present task."""
    from moto.stepfunctions.parser.api import ExecutionStatus
    from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped

    state = _program_state(execution)
    if isinstance(state, ProgramStopped):
        execution.stop_date, execution.error, execution.cause = state.stop_date, state.error, state.cause
        execution.exec_status = ExecutionStatus.ABORTED


def _program_state(execution: Any) -> Any | None:
    worker = execution.exec_worker
    return None if worker is None or worker.env is None else worker.env.program_state()


def reflect_stops() -> None:
    """`reflect_stop` for all."""
    for execution in _executions():
        reflect_stop(execution)


def stop_executions() -> None:
    """Before the stores are emptied: threads end after their present task, and nothing more is called."""
    for execution in _executions():
        if _program_state(execution) is not None:
            _stop(execution, None, None)
