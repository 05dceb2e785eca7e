"""Tables of all kinds in a lake, and the sensor's ticks over them on a clock of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from athena_assets import Target
from athena_assets.orchestration import build_unload_asset
from athena_assets.orchestration.upstream import QUIET_SECONDS, build_upstream_sensor
from athena_assets_tests.e2e.lake import Lake
from athena_assets_tests.orchestration.runs import resource

PARQUET = "org.apache.hadoop.hive.ql.io.parquet"


def create_table(lake: Lake, name: str, *columns: str, **changes: Any) -> str:
    """A table over upstream/<name>/ with an empty file or none; the columns partition it."""
    location = f"s3://{lake.bucket}/upstream/{name}/"
    table = {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"classification": "parquet", "EXTERNAL": "TRUE"},
        "PartitionKeys": [{"Name": each, "Type": "string"} for each in columns],
        "StorageDescriptor": storage(location),
    }
    lake.glue.create_table(DatabaseName=lake.database, TableInput=table | changes)
    return location


def storage(location: str) -> dict[str, Any]:
    return {
        "Columns": [{"Name": "n", "Type": "bigint"}],
        "Location": location,
        "InputFormat": f"{PARQUET}.MapredParquetInputFormat",
        "OutputFormat": f"{PARQUET}.MapredParquetOutputFormat",
        "SerdeInfo": {"SerializationLibrary": f"{PARQUET}.serde.ParquetHiveSerDe"},
    }


def add_partition(lake: Lake, name: str, *values: str, location: str | None = None) -> None:
    """A partition with one file of ten rows."""
    where = location or f"s3://{lake.bucket}/upstream/{name}/{'-'.join(values)}/"
    table, _, folder = where.removeprefix(f"s3://{lake.bucket}/upstream/").partition("/")
    lake.put_rows(table, f"{folder}part-0.parquet", range(10))
    lake.glue.create_partition(
        DatabaseName=lake.database,
        TableName=name,
        PartitionInput={"Values": list(values), "StorageDescriptor": storage(where)},
    )


def iceberg(snapshot: int) -> dict[str, Any]:
    """What Glue says of an Iceberg table."""
    location = f"s3://nowhere/metadata/{snapshot:05}.json"
    return {"Parameters": {"table_type": "ICEBERG", "metadata_location": location}}


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick answered; what it reported, by table."""

    requests: Sequence[dg.RunRequest]
    skipped: str
    reported: Mapping[str, dg.AssetMaterialization | dg.AssetObservation]

    @property
    def versions(self) -> dict[str, str]:
        return {name: (event.tags or {})["dagster/data_version"] for name, event in self.reported.items()}


class Ticks:
    """The sensor over targets; each tick is `QUIET_SECONDS` after the one before."""

    def __init__(
        self,
        lake: Lake,
        instance: dg.DagsterInstance,
        targets: Sequence[Target],
        assets: Sequence[dg.AssetsDefinition] | None = None,
        **settings: Any,
    ) -> None:
        self._lake = lake
        self.instance = instance
        self.now = 1_700_000_000.0
        self.cursor: str | None = None
        self.assets = [build_unload_asset(each) for each in targets] if assets is None else list(assets)
        self.sensor = build_upstream_sensor(targets, assets=self.assets, **({"clock": lambda: self.now} | settings))
        self.defs = dg.Definitions(assets=self.assets, sensors=[self.sensor], resources={"athena": resource(lake)})

    def tick(self, seconds: float = QUIET_SECONDS) -> Tick:
        """One evaluation, as the daemon makes it: its run requests are resolved, and its cursor is kept."""
        self.now += seconds
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            definitions=self.defs,
            resources={"athena": resource(self._lake)},
            sensor_name=self.sensor.name,
        ) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return Tick(
            list(result.run_requests or ()),
            result.skip_message or "",
            {
                event.asset_key.path[-1]: event
                for event in result.asset_events
                if isinstance(event, dg.AssetMaterialization | dg.AssetObservation)
            },
        )

    def runs(self, seconds: float = QUIET_SECONDS) -> list[tuple[str, str | None]]:
        """The asset and the partition, or the first and last one, of each run that a tick requests."""
        found = []
        for request in self.tick(seconds).requests:
            [key] = request.asset_selection or ()
            first, last = (request.tags.get(f"dagster/asset_partition_range_{end}") for end in ("start", "end"))
            found.append((key.to_user_string(), request.partition_key if first is None else f"{first}..{last}"))
        return found
