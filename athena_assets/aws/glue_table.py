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
            InvalidTarget: the table lies elsewhere, or is missing and its columns can't be read from the result.
        """
        found = find_table(self._clients, table)
        if isinstance(found, Unanswered):
            return
        if isinstance(found, Absent):
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

    def keep(self, effect: KeepGlueTable) -> Done | Unanswered:
        table = effect.table
        found = find_table(self._clients, table)
        if isinstance(found, Unanswered):
            return found
        if isinstance(found, Absent):
            columns = None if effect.sample is None else sample_columns(self._clients, self._bucket, effect.sample)
            if columns is None:
                return Done()  # an empty result tells no columns: the next one creates the table
            storage = {
                "Columns": [{"Name": each.name, "Type": each.type} for each in columns],
                "Location": table.root,
                **PARQUET,
            }
            created = self._create("CreateTable", self._clients.glue.create_table, table_input(table, storage))
            if isinstance(created, Unanswered):
                return created
            found = {"StorageDescriptor": storage}
        place = found["StorageDescriptor"].get("Location", "")
        if place.rstrip("/") != table.root.rstrip("/"):
            raise denied(str(table), "the table", f"it was made at {place} meanwhile, not at {table.root}")
        if table.value is None:
            return Done()
        storage = {**found["StorageDescriptor"], "Location": effect.location}
        partition = {
            "DatabaseName": table.database,
            "TableName": table.name,
            "PartitionInput": {"Values": [table.value], "StorageDescriptor": storage},
        }
        return self._create("CreatePartition", self._clients.glue.create_partition, partition)

    def _create(self, name: str, operation: Any, arguments: Mapping[str, Any]) -> Done | Unanswered:
        """There already counts as done: a lost reply's second send, or another roller."""
        answer = call(name, operation, arguments)
        if isinstance(answer, Refusal) and answer.code != "AlreadyExistsException":
            if answer.throttled:
                return Unanswered(answer.code)
            raise denied(str(arguments.get("DatabaseName")), name, f"HTTP {answer.status} {answer.code}")
        return answer if isinstance(answer, Unanswered) else Done()


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
