"""The embedded AWS: S3, Glue, Athena, Lambda and Step Functions, for tests, development and demonstrations.

S3, Glue and Step Functions are moto's, made atomic and completed where the promise of this project rests on them;
Athena really runs, on DuckDB, and so do Lambda functions, in subprocesses. It checks no signature and therefore
listens on 127.0.0.1 only.

| Real AWS                                         | Here                                                        |
|--------------------------------------------------|-------------------------------------------------------------|
| all of Trino's SQL                               | what is known to mean the same; the rest: NOT_SUPPORTED     |
| tables in any format, views, Iceberg             | Parquet, ORC, Avro, delimited text, CSV of strings, JSON    |
| values that do not fit: NULL or an error         | always an error                                             |
| partition projection of any size                 | enum, integer, date; at most 10,000 partitions              |
| Parquet with LZO                                 | NOT_SUPPORTED                                               |
| `partitioned_by` columns of any plain type       | not timestamps and floating-point numbers                   |
| TEXTFILE of nested values, of texts that clash   | NOT_SUPPORTED                                               |
| Avro files are compressed                        | they are not                                                |
| Parquet timestamps are INT96                     | INT64, milliseconds                                         |
| an UNLOAD without rows: documents differ         | no file, no data manifest, no DataManifestLocation          |
| `.metadata` is binary                            | lines of name and type                                      |
| DataScannedInBytes: what was read                | the size of every file of the tables used                   |
| tokens expire, history ends after 45 days        | never (`faults.forget_tokens`, `faults.forget_queries`)     |
| throttling, 409, 503, lost replies, requeues     | only as injected faults                                     |
| IAM, bucket policies, KMS, quotas                | not enforced                                                |
| DeleteObject If-Match on an absent key: not told | 412                                                         |
| state is durable                                 | in memory; with `start(state=...)` it survives the process  |
| a query goes on, whatever becomes of its caller  | the server's end makes it FAILED                            |
| an execution's name is free again after 90 days  | never                                                       |
| functions and state machines are durable         | in memory, with a `state` too                               |
| a function's runtime, layers, memory             | Python in a zip, on the server's own Python and packages    |
| functions are invoked by any service             | by Invoke and by Step Functions only                        |
| an Event invocation is tried three times         | once                                                        |
| tails of logs (LogType)                          | never; what a function prints is in the server's log        |
| state machines: definitions are validated        | only as far as they can be parsed                           |
| States.ALL does not match States.Runtime         | it does                                                     |
| errors of `events:putEvents` have names          | EventBridge.FailedEntry; all others are States.Runtime      |
| errors of `aws-sdk:s3` tasks begin with `S3.`    | with `s3.`                                                  |
| Step Functions: JSONata, activities, `.sync`     | not checked by our tests                                    |
"""

from athena_assets.local.embedded import EmbeddedAws, EmbeddedAwsError
from athena_assets.local.fault_client import Faults
from athena_assets.local.faults import (
    Action,
    ApplyLate,
    CutReply,
    Delay,
    DropReply,
    DropRequest,
    Fault,
    FunctionRecord,
    HoldReply,
    HoldRequest,
    QueryRecord,
    RequestRecord,
    Respond,
    RespondAfterApply,
)

__all__ = [
    "Action",
    "ApplyLate",
    "CutReply",
    "Delay",
    "DropReply",
    "DropRequest",
    "EmbeddedAws",
    "EmbeddedAwsError",
    "Fault",
    "Faults",
    "FunctionRecord",
    "HoldReply",
    "HoldRequest",
    "QueryRecord",
    "RequestRecord",
    "Respond",
    "RespondAfterApply",
]
