"""The external table over a target's location, so that Athena users find a result as soon as it is published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena_assets.aws.parquet import available, sample_columns
from athena_assets.aws.replies import Refusal, call, denied, question
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import Absent, Done, KeepGlueTable, Unanswered
from athena_assets.core.location import Location
from athena_assets.core.register import GlueTable, Mode
from athena_assets.core.target import Target
from athena_assets.errors import AccessDenied

PARQUET = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
}


def find_table(clients: AwsClients, table: GlueTable) -> Mapping[str, Any] | Absent | Unanswered:
    """GetTable's `Table`."""
    names = {"DatabaseName": table.database, "Name": table.name}
    answer = question(str(table), clients.glue.get_table, names, expect="Table")
    if isinstance(answer, Refusal):
        return Absent()
    return answer if isinstance(answer, Unanswered) else answer["Table"]


def find_partition(clients: AwsClients, table: GlueTable) -> Mapping[str, Any] | Absent | Unanswered:
    """GetPartition's `Partition`, of the table's own value."""
    names = {"DatabaseName": table.database, "TableName": table.name, "PartitionValues": [table.value]}
    answer = question(str(table), clients.glue.get_partition, names, expect="Partition")
    if isinstance(answer, Refusal):
        return Absent()
    return answer if isinstance(answer, Unanswered) else answer["Partition"]


class GlueTables:
    """Performs `KeepGlueTable` for the slots of one bucket."""

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    def check(self, target: Target, table: GlueTable, at: Location | None = None) -> None:
        """Refuses, before a query is paid for, what `keep` could not do; with `at`, also for the slot's partition.

        Raises:
            InvalidTarget: the table lies elsewhere, or is missing and its columns can't be read from the result, or its
                database is missing.
        """
        found = find_table(self._clients, table)
        if isinstance(found, Unanswered):
            return
        if isinstance(found, Absent):
            if self._has_no_database(table):
                raise target.invalid(
                    "glue_table",
                    f"the Glue database {table.database} does not exist.",
                    "Create that database, or correct its name.",
                )
            if target.format.format != "PARQUET" or not available():
                raise target.invalid(
                    "glue_table",
                    f"{table} does not exist, and columns are read from Parquet results with pyarrow only.",
                    "Create the table, or install athena_assets[schema].",
                )
            return
        if target.mode is Mode.POINTER:
            # Whose it is the slot's owner finds out: it moves.
            if table.value is not None and found.get("Parameters", {}).get("projection.enabled", "").lower() == "true":
                raise target.invalid(
                    "glue_table",
                    f"{table} has partition projection, with which Athena does not look where partitions point.",
                    "Turn projection.enabled off, or name another table.",
                )
            return
        place = found.get("StorageDescriptor", {}).get("Location", "")
        if place.rstrip("/") != table.root.rstrip("/"):
            raise target.invalid(
                "glue_table", f"{table} is at {place}, not at {table.root}.", "Name another table or location."
            )
        if at is not None and table.value is not None:
            self._check_partition(target, table, at)

    def _has_no_database(self, table: GlueTable) -> bool:
        """False where nobody tells, such as without glue:GetDatabase: then CreateTable does."""
        answer = call(str(table), self._clients.glue.get_database, {"Name": table.database})
        return isinstance(answer, Refusal) and answer.code == "EntityNotFoundException"

    def _check_partition(self, target: Target, table: GlueTable, location: Location) -> None:
        found = find_partition(self._clients, table)
        if isinstance(found, Absent | Unanswered):
            return
        place = found.get("StorageDescriptor", {}).get("Location", "")
        if place.rstrip("/") != str(location).rstrip("/"):
            raise target.invalid(
                "glue_table",
                f"its partition {table.value!r} is at {place}, not at {location}.",
                "Drop that partition, or name another table or location.",
            )

    def stands(self, table: GlueTable, location: Location) -> bool:
        """Whether Athena users find the location by the table, or by the partition of its value. False: not for sure.

        Raises:
            AccessDenied: Glue refuses to tell.
        """
        find = find_table if table.value is None else find_partition
        try:
            found = find(self._clients, table)
        except AccessDenied as error:
            raise _not_shown(table, str(location), error.what) from error
        return not isinstance(found, Absent | Unanswered) and _place(found) == str(location).rstrip("/")

    def keep(self, effect: KeepGlueTable) -> Done | Unanswered:
        """The result is in place already: what goes wrong here is told as that."""
        try:
            return self._keep(effect)
        except AccessDenied as error:
            raise _not_shown(effect.table, effect.location, error.what) from error

    def _keep(self, effect: KeepGlueTable) -> Done | Unanswered:
        table = effect.table
        found = find_table(self._clients, table)
        if isinstance(found, Unanswered):
            return found
        if isinstance(found, Absent):
            if effect.sample is None:
                return Done()  # an empty result tells no columns: the next one creates the table
            columns = sample_columns(self._clients, self._bucket, effect.sample)
            if columns is None:
                why = "" if available() else " (pyarrow is not installed)"
                what = f"the table is missing, and its columns could not be read from {effect.sample}{why}."
                raise _not_shown(table, effect.location, what)
            storage = {
                "Columns": [{"Name": each.name, "Type": each.type} for each in columns],
                "Location": table.root,
                **PARQUET,
            }
            arguments = table_input(table, storage)
            if not self._create(table, "CreateTable", self._clients.glue.create_table, arguments):
                return Unanswered("it was not created, or another came before")  # the next look tells
            found = {"StorageDescriptor": storage}
        if _place(found) != table.root.rstrip("/"):
            what = f"it was made at {_place(found)} meanwhile, not at {table.root}."
            raise _not_shown(table, effect.location, what)
        if table.value is None:
            return Done()
        storage = {**found["StorageDescriptor"], "Location": effect.location}
        partition = {
            "DatabaseName": table.database,
            "TableName": table.name,
            "PartitionInput": {"Values": [table.value], "StorageDescriptor": storage},
        }
        if self._create(table, "CreatePartition", self._clients.glue.create_partition, partition):
            return Done()
        there = find_partition(self._clients, table)
        if isinstance(there, Absent | Unanswered):
            return Unanswered("the partition was not created")
        if _place(there) != effect.location.rstrip("/"):
            what = f"its partition {table.value!r} is at {_place(there)}, not at {effect.location}."
            raise _not_shown(table, effect.location, what)
        return Done()

    def _create(self, table: GlueTable, name: str, operation: Any, arguments: Mapping[str, Any]) -> bool:
        """False: no answer, or there already (a lost reply's second send, another roller, or a stranger): look."""
        answer = call(str(table), operation, arguments)
        if isinstance(answer, Refusal) and answer.code != "AlreadyExistsException" and not answer.throttled:
            raise denied(str(table), name, f"HTTP {answer.status} {answer.code}")
        return not isinstance(answer, Refusal | Unanswered)


def table_input(table: GlueTable, storage: Mapping[str, Any]) -> dict[str, Any]:
    partitions = [] if table.column is None else [{"Name": table.column, "Type": "string"}]
    return {
        "DatabaseName": table.database,
        "TableInput": {
            "Name": table.name,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet"},
            "PartitionKeys": partitions,
            "StorageDescriptor": storage,
        },
    }


def _place(found: Mapping[str, Any]) -> str:
    return str(found.get("StorageDescriptor", {}).get("Location", "")).rstrip("/")


def _not_shown(table: GlueTable, location: str, what: str) -> AccessDenied:
    return AccessDenied(
        table,
        what,
        not_done=f"The result is in place at {location}, and Athena users do not find it by this table.",
        next_step=f"See that the database {table.database} exists and that glue:GetTable, GetPartition, CreateTable "
        "and CreatePartition are allowed there; then publish again: what is missing is added.",
    )
