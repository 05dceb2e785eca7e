"""A code location with one asset, for runs in processes of their own. The environment says where it publishes."""

import json
import logging
import os
import signal
from collections.abc import Mapping, Sequence

import dagster as dg

from athena_assets import Target, UpstreamTable
from athena_assets.orchestration import AthenaUnloadResource, build_unload_asset
from athena_assets_tests.e2e.lake import LEASE, Lake

ASSET = "numbers"


def environment(
    lake: Lake, target: Target, dagster_home: str | os.PathLike[str], partitions: Sequence[str] = ()
) -> Mapping[str, str]:
    """What such a process needs beside the environment of the test's own process."""
    return lake.aws.environment() | {
        "DAGSTER_HOME": str(dagster_home),
        "TEST_QUERY": target.query,
        "TEST_LOCATION": target.location,
        "TEST_DATABASE": target.database,
        "TEST_REUSE": str(target.reuse),
        "TEST_UPSTREAMS": json.dumps([[table.database, table.name] for table in target.upstreams or ()]),
        "TEST_PARTITIONS": json.dumps(partitions),
        "TEST_RESULTS": str(lake.settings.output_location),
    }


@dg.definitions
def defs() -> dg.Definitions:
    target = Target(
        name=ASSET,
        query=os.environ["TEST_QUERY"],
        location=os.environ["TEST_LOCATION"],
        database=os.environ["TEST_DATABASE"],
        reuse=os.environ["TEST_REUSE"],
        upstreams=tuple(UpstreamTable(*names) for names in json.loads(os.environ["TEST_UPSTREAMS"])) or None,
    )
    keys = json.loads(os.environ["TEST_PARTITIONS"])
    asset = build_unload_asset(
        target,
        partitions_def=dg.StaticPartitionsDefinition(keys) if keys else None,
        backfill_policy=dg.BackfillPolicy.single_run() if keys else None,
        retry_policy=dg.RetryPolicy(max_retries=2),  # for a termination to be final all the same
    )
    machine = os.environ.get("TEST_STATE_MACHINE")
    athena = AthenaUnloadResource(
        output_location=os.environ["TEST_RESULTS"],
        lease_seconds=LEASE,
        runner="process" if machine is None else "step_functions",
        state_machine_arn=machine,
    )
    return dg.Definitions(
        assets=[asset],
        jobs=[dg.define_asset_job("numbers_job", [ASSET])],
        resources={"athena": athena},
        loggers={"terminating": terminating},
        executor=dg.in_process_executor,
    )


class Terminating(logging.Handler):
    """Terminates the run while Dagster stores a materialization: our code is not on the stack then."""

    def emit(self, record: logging.LogRecord) -> None:
        if "ASSET_MATERIALIZATION" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)


@dg.logger
def terminating(_: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.getLogger("terminating")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Terminating())
    return logger


def numbers_job() -> dg.JobDefinition:
    return defs().resolve_job_def("numbers_job")
