"""What Glue and S3 list of tables: descriptions, partitions, files. Nothing is changed by any call here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from athena_assets.aws.replies import Refusal, question
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import Unanswered

GLUE_CATALOG = "awsdatacatalog"  # the account's own

Description = Mapping[str, Any]  # a Table of the Glue API
Partition = Mapping[str, Any]


class CallFailed(Exception):
    """A call of a listing was refused or not answered; what was listed before it is of no use."""

    def __init__(self, operation: str, answer: Refusal | Unanswered) -> None:
        if isinstance(answer, Refusal):
            super().__init__(f"{operation} answered {answer.code}: {answer.message}")
        else:
            super().__init__(f"{operation} was not answered: {answer.reason}")


class OutOfTime(Exception):
    """A listing was longer than the time there was for it."""


def one_table(clients: AwsClients, database: str, name: str) -> Description:
    """One GetTable. Raises CallFailed or AccessDenied."""
    arguments = {"DatabaseName": database, "Name": name}
    answer = _answered("GetTable", f"{database}.{name}", clients.glue.get_table, arguments, "Table")
    found: Description = answer["Table"]
    return found


def tables_of(clients: AwsClients, database: str, names: Collection[str]) -> dict[str, Description]:
    """The tables of `names` that the database has, by one GetTables for each page, and no page after the last of them.

    GetTables' `Expression` is not used: what its patterns mean is not documented well enough to tell a table that the
    pattern leaves out from one that is missing.

    Raises:
        CallFailed, AccessDenied: nothing is known of any of them.
    """
    missing = set(names)
    found: dict[str, Description] = {}
    for page in _pages("GetTables", database, clients.glue.get_tables, {"DatabaseName": database}, "TableList"):
        found |= {each["Name"].lower(): each for each in page["TableList"] if each["Name"].lower() in missing}
        missing -= found.keys()
        if not missing:
            break
    return found


def partitions_of(clients: AwsClients, database: str, name: str) -> list[Partition]:
    """All partitions in the order of their values. Raises CallFailed or AccessDenied."""
    arguments = {"DatabaseName": database, "TableName": name, "ExcludeColumnSchema": True}
    pages = _pages("GetPartitions", f"{database}.{name}", clients.glue.get_partitions, arguments, "Partitions")
    return sorted((each for page in pages for each in page["Partitions"]), key=lambda each: tuple(each["Values"]))


def files_at(
    clients: AwsClients, location: str, in_time: Callable[[], bool] = lambda: True
) -> Iterator[tuple[str, int, str]]:
    """Key, size and ETag of every object below a location.

    Raises:
        CallFailed, AccessDenied: the listing is not whole.
        OutOfTime: `in_time` was false before a further page.
    """
    bucket, _, prefix = directory(location).removeprefix("s3://").partition("/")
    arguments = {"Bucket": bucket, "Prefix": prefix, "ExpectedBucketOwner": clients.settings.expected_bucket_owner}
    token: str | None = None
    while True:
        if not in_time():
            raise OutOfTime
        page = _answered(
            "ListObjectsV2", location, clients.s3.list_objects_v2, arguments | {"ContinuationToken": token}, None
        )
        for each in page.get("Contents", ()):
            yield each["Key"], each["Size"], each["ETag"]
        if not page["IsTruncated"]:
            return
        token = page["NextContinuationToken"]


def directory(location: str) -> str:
    return location if location.endswith("/") else location + "/"


def _pages(
    operation: str, subject: str, call: Callable[..., Any], arguments: Mapping[str, Any], expect: str
) -> Iterator[Mapping[str, Any]]:
    token: str | None = None
    while True:
        answer = _answered(operation, subject, call, {**arguments, "NextToken": token}, expect)
        yield answer
        token = answer.get("NextToken")
        if token is None:
            return


def _answered(
    operation: str, subject: str, call: Callable[..., Any], arguments: Mapping[str, Any], expect: str | None
) -> Mapping[str, Any]:
    answer = question(subject, call, arguments, expect=expect)
    if isinstance(answer, Refusal | Unanswered):
        raise CallFailed(operation, answer)
    found: Mapping[str, Any] = answer
    return found
