"""One valid value of everything, to be varied with `replace`."""

from dataclasses import replace
from typing import Any

from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.location import Location
from athena_assets.core.manifest import Manifest, ManifestFile, RemovedFile
from athena_assets.core.register import (
    Attempt,
    Failure,
    FailureKind,
    GlueTable,
    Kept,
    ObjectVersion,
    Owner,
    Publication,
    PublishSettings,
    Register,
    Retired,
    StartParameters,
    State,
    Statistics,
)
from athena_assets.core.request import Request
from athena_assets.core.target import Target

LOCATION = Location("lake", "marts/daily/")
CONTROL = "_athena_assets/v1/marts%2Fdaily/"


def target(**changes: Any) -> Target:
    return Target(**{"name": "daily", "query": "SELECT 1 AS one", "location": "s3://lake/marts/daily/", **changes})


def request(**changes: Any) -> Request:
    wanted = changes.pop("target", None) or target()
    fields: dict[str, Any] = {
        "id": "wish-1",
        "target": wanted,
        "location": LOCATION,
        "query": "SELECT 1 AS one",
        "partition": None,
        "upstreams": (),
        "given": (),
        "deterministic": True,
        "workgroup": "primary",
        "output_location": None,
    }
    return Request(**{**fields, **changes})


START = StartParameters(
    query="-- athena_assets {}\nUNLOAD (\nSELECT 'ä'\n)\nTO 's3://lake/x/'\nWITH (format = 'PARQUET')",
    staging=f"{CONTROL}staging/00000007-01-00112233445566aa/",
    catalog="AwsDataCatalog",
    database="sales",
    workgroup="primary",
    output_location=None,
)

ATTEMPT = Attempt(
    number=1,
    generation="a" * 64,
    definition="d" * 64,
    request="wish-1",
    run="run-1",
    token="t" * 64,
    starts=(START,),
    upstreams=(
        UpstreamVersion("awsdatacatalog.sales.orders", "iceberg:s3://lake/orders/metadata/00001.json"),
        UpstreamVersion("awsdatacatalog.sales.rates", None),
        UpstreamVersion("awsdatacatalog.sales.days", "2024-01-31", given=True),
    ),
    reusable=False,
    settings=PublishSettings(
        keep_previous=2, glue=GlueTable("marts", "daily", "s3://lake/marts/daily/", "dt", "2024-01-31")
    ),
)

RUNNING_ATTEMPT = replace(ATTEMPT, query_id="11111111-2222-3333-4444-555555555555", accepted=0)

OWNER = Owner(session="0123456789abcdef", host="worker-1", pid=4711, request="wish-1", run="run-1")

PUBLICATION = Publication(
    generation="a" * 64,
    definition="d" * 64,
    request="wish-1",
    run="run-1",
    query_id="11111111-2222-3333-4444-555555555555",
    fence=7,
    attempt=1,
    manifest=f"{CONTROL}manifests/00000007-01.json",
    files=2,
    bytes=1_234_567,
    rows=42,
    at=1_700_000_000.0,
    reusable=True,
    statistics=Statistics(bytes_scanned=987_654_321, queue_ms=120, engine_ms=3400, total_ms=3600),
    workgroup="primary",
)

POINTING = replace(PUBLICATION, directory="marts/daily/00000007-01-00112233445566aa/")
RETIRED = Retired("marts/daily/00000005-01-aa00112233445566/", f"{CONTROL}manifests/00000005-01.json", 86400.0, 1.7e9)

EARLIER = replace(
    PUBLICATION,
    generation="b" * 64,
    request="wish-0",
    run=None,
    query_id="00000000-2222-3333-4444-555555555555",
    fence=5,
    manifest=f"{CONTROL}manifests/00000005-01.json",
    rows=None,
    at=1_600_000_000.5,
    reusable=False,
    statistics=Statistics(),
    workgroup=None,
)

FAILURE = Failure(
    generation="a" * 64,
    request="wish-1",
    fence=7,
    query_id="11111111-2222-3333-4444-555555555555",
    kind=FailureKind.USER_ERROR,
    reason="COLUMN_NOT_FOUND: line 2:8: Column 'x' cannot be resolved",
)

FREE = Register(write_id="00000000000000f0", fence=7, state=State.FREE, lease=60.0)
KEPT = Kept(replace(EARLIER, fence=3), f"{CONTROL}backup/00000003/")
FREE_PUBLISHED = replace(FREE, publication=PUBLICATION, history=(EARLIER,), kept=(KEPT,))
FREE_FAILED = replace(FREE, publication=EARLIER, failure=FAILURE)
SUBMITTING = replace(FREE, state=State.SUBMITTING, owner=OWNER, attempt=ATTEMPT, publication=EARLIER)
RUNNING = replace(
    SUBMITTING,
    state=State.RUNNING,
    attempt=replace(RUNNING_ATTEMPT, number=2, token="u" * 64),
    earlier_attempts=(RUNNING_ATTEMPT,),
)
CLEANING = replace(RUNNING, cleanup=(ObjectVersion("marts/daily/one", '"e1"'),))
PUBLISHING = replace(
    RUNNING,
    state=State.PUBLISHING,
    attempt=RUNNING_ATTEMPT,
    earlier_attempts=(),
    publication=PUBLICATION,
    history=(EARLIER,),
)
BLOCKED = replace(FREE_FAILED, state=State.BLOCKED)
FREE_POINTING = replace(FREE, publication=POINTING, history=(EARLIER,), retired=(RETIRED,))

REGISTERS = {
    "free": FREE,
    "free-published": FREE_PUBLISHED,
    "free-failed": FREE_FAILED,
    "submitting": SUBMITTING,
    "running": RUNNING,
    "cleaning": CLEANING,
    "publishing": PUBLISHING,
    "blocked": BLOCKED,
    "free-pointing": FREE_POINTING,
}

MANIFEST = Manifest(
    slot="s3://lake/marts/daily/",
    publication=PUBLICATION,
    staging=START.staging,
    files=(
        ManifestFile(f"{START.staging}one.gz", '"e1"', 10, "marts/daily/00000007-01-00000.gz"),
        ManifestFile(f"{START.staging}two.gz", '"e2"', 20, "marts/daily/00000007-01-00001.gz"),
    ),
    removes=(
        RemovedFile("marts/daily/00000005-01-00000.gz", '"e0"', 5, f"{CONTROL}backup/00000005/00000005-01-00000.gz"),
        RemovedFile("marts/daily/00000004-01-00000.gz", '"e9"', 6, None),
    ),
    replaces=(EARLIER,),
    settings=ATTEMPT.settings,
)
