"""Where a Glue table, or a partition of it, points: pointer mode's swap, one read and one write at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.model import StructureShape

from athena_assets.aws.glue_table import PARQUET, find_partition, find_table, table_input
from athena_assets.aws.parquet import sample_columns
from athena_assets.aws.replies import Refusal, call
from athena_assets.aws.session import AwsClients
from athena_assets.core.effects import Absent, Done, MovePointer, Pointer, ReadPointer, Refused, Unanswered
from athena_assets.core.register import GlueTable

SLOT, FENCE = "athena_assets.slot", "athena_assets.fence"  # in the parameters, beside the location
NO_DATABASE = "EntityNotFoundException"  # of CreateTable; of the others: somebody has dropped the table or partition
CONFLICT = 409  # of Glue's own 400s those that only say what stood there

# Glue API reference, UpdateTable and its siblings; a stale VersionId was seen to answer ConcurrentModificationException
# (github.com/floci-io/floci/issues/1205).
_CONFLICTS = frozenset({"ConcurrentModificationException", "AlreadyExistsException", "EntityNotFoundException"})


class GluePointers:
    """Performs `ReadPointer` and `MovePointer` for the slots of one bucket. Writes are sent once."""

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    def read(self, effect: ReadPointer) -> Pointer | Absent | Unanswered:
        table = find_table(self._clients, effect.table)
        return table if isinstance(table, Absent | Unanswered) else self._pointer(effect.table, table)

    def move(self, effect: MovePointer) -> Done | Refused | Unanswered:
        table = find_table(self._clients, effect.table)
        if isinstance(table, Unanswered):
            return table
        if isinstance(table, Absent):
            return self._create(effect) if effect.expected is None else Refused(CONFLICT, "TableIsGone")
        # What others have written since is read here and kept, where Glue can't compare versions for us.
        before = self._pointer(effect.table, table)
        if isinstance(before, Unanswered):
            return before
        if before != effect.expected:
            return Refused(CONFLICT, "PointerMoved")
        if effect.table.value is None:
            arguments = {
                "DatabaseName": effect.table.database,
                "TableInput": _moved(self._only("TableInput", table), effect),
                "VersionId": before.version,
                "SkipArchive": True,  # an account's number of archived table versions is limited
            }
            return self._send("UpdateTable", self._clients.glue_once.update_table, arguments)
        return self._move_partition(effect, table, before)

    def _pointer(self, table: GlueTable, found: Mapping[str, Any]) -> Pointer | Unanswered:
        root = _location(found)
        if table.value is None:
            return _read(root, found, str(found.get("VersionId")))
        partition = find_partition(self._clients, table)
        if isinstance(partition, Unanswered):
            return partition
        return Pointer(root, None) if isinstance(partition, Absent) else _read(root, partition, None)

    def _move_partition(
        self, effect: MovePointer, table: Mapping[str, Any], before: Pointer
    ) -> Done | Refused | Unanswered:
        glue, value = self._clients.glue_once, effect.table.value
        names = {"DatabaseName": effect.table.database, "TableName": effect.table.name}
        if before.location is None:
            new = {"Values": [value], "StorageDescriptor": table["StorageDescriptor"]}
            arguments = names | {"PartitionInput": _moved(new, effect)}
            return self._send("CreatePartition", glue.create_partition, arguments)
        partition = find_partition(self._clients, effect.table)
        if isinstance(partition, Unanswered):
            return partition
        if isinstance(partition, Absent):
            return Refused(CONFLICT, "PartitionIsGone")
        changed = {"PartitionInput": _moved(self._only("PartitionInput", partition), effect)}
        return self._send("UpdatePartition", glue.update_partition, names | {"PartitionValueList": [value]} | changed)

    def _create(self, effect: MovePointer) -> Done | Refused | Unanswered:
        columns = None if effect.sample is None else sample_columns(self._clients, self._bucket, effect.sample)
        if columns is None:
            return Unanswered(f"no columns could be read from {effect.sample}; is pyarrow installed?")
        storage = {"Columns": [{"Name": each.name, "Type": each.type} for each in columns], **PARQUET}
        arguments = table_input(effect.table, {**storage, "Location": effect.table.root})
        if effect.table.value is None:
            arguments["TableInput"] = _moved(arguments["TableInput"], effect)
        answer = self._send("CreateTable", self._clients.glue_once.create_table, arguments)
        if isinstance(answer, Refused) and answer.code == NO_DATABASE:
            return Refused(400, answer.code)  # the database is missing, which no next look changes
        return answer

    def _only(self, shape: str, found: Mapping[str, Any]) -> dict[str, Any]:
        """What of a read table or partition can be written back: all that the SDK's input has."""
        model = self._clients.glue_once.meta.service_model.shape_for(shape)
        assert isinstance(model, StructureShape)
        return {name: found[name] for name in model.members if name in found}

    def _send(self, name: str, operation: Any, arguments: Mapping[str, Any]) -> Done | Refused | Unanswered:
        """Lost reply: applied or not; the next read tells."""
        answer = call(name, operation, arguments)
        if isinstance(answer, Unanswered):
            return answer
        if not isinstance(answer, Refusal):
            return Done()
        if answer.throttled:
            return Unanswered(answer.code)
        return Refused(CONFLICT if answer.code in _CONFLICTS else answer.status, answer.code)


def _location(found: Mapping[str, Any]) -> str:
    return str(found.get("StorageDescriptor", {}).get("Location", ""))


def _read(root: str, found: Mapping[str, Any], version: str | None) -> Pointer:
    parameters: Mapping[str, str] = found.get("Parameters") or {}
    fence = parameters.get(FENCE, "")
    return Pointer(
        root,
        _location(found),
        version,
        parameters.get(SLOT),
        int(fence) if fence.isascii() and fence.isdigit() else None,
    )


def _moved(found: Mapping[str, Any], effect: MovePointer) -> dict[str, Any]:
    """The same table or partition, at the new location and with our mark; all else is somebody's, and stays."""
    marks = {SLOT: effect.slot, FENCE: str(effect.fence)}
    return {
        **found,
        "StorageDescriptor": {**found.get("StorageDescriptor", {}), "Location": effect.location},
        "Parameters": {**(found.get("Parameters") or {}), **marks},
    }
