"""What the sensor has to know of the targets: which tables they read, and which partitions they have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import dagster as dg

from athena_assets.core.disjoint import check_disjoint
from athena_assets.core.generation import definition_fingerprint
from athena_assets.core.partition import Grain
from athena_assets.core.target import Target, UpstreamTable
from athena_assets.orchestration.concurrency import pool_name
from athena_assets.orchestration.lineage import GLUE_CATALOG, upstream_key
from athena_assets.orchestration.upstream_partitions import KeysOf, TargetPartitions
from athena_assets.orchestration.upstream_requests import Reader
from athena_assets.sql import inspect_query


@dataclass(frozen=True, slots=True)
class Watched:
    """A target, checked, with all of it that does not change from tick to tick."""

    target: Target
    key: dg.AssetKey
    slot: str
    code: str
    tables: tuple[UpstreamTable, ...]
    partitions_def: dg.PartitionsDefinition | None
    single_run: bool

    def reader(self, instance: dg.DagsterInstance, keys_of: Mapping[str, KeysOf]) -> Reader:
        """As of now: partitions come with time."""
        partitions = None
        if self.partitions_def is not None:
            partitions = TargetPartitions(
                partial(self.partitions_def.get_partition_keys, dynamic_partitions_store=instance),
                partial(instance.get_materialized_partitions, self.key),
                None if self.target.grain is None else Grain(self.target.grain),
                keys_of,
                partial(key_comes, self.partitions_def),
            )
        return Reader(
            self.target.name, self.code, frozenset(map(str, self.tables)), partitions, single_run=self.single_run
        )


def watched(targets: Sequence[Target], assets: Sequence[dg.AssetsDefinition]) -> list[Watched]:
    """The targets that read a table.

    Raises:
        InvalidTarget: two go against each other, or the asset of a partitioned one is not given.
    """
    check_disjoint(list(targets))
    # By the pool, which is the target's location: a translator may have given the asset another key than the name.
    by_pool = {pool: each for each in assets if (pool := _pool(each)) is not None}
    return [found for found in (_watched(target, by_pool.get(pool_name(target))) for target in targets) if found.tables]


def _pool(asset: dg.AssetsDefinition) -> str | None:
    return asset.op.pool if asset.is_executable and isinstance(asset.node_def, dg.OpDefinition) else None


def _watched(target: Target, asset: dg.AssetsDefinition | None) -> Watched:
    key = dg.AssetKey(target.name.split("/")) if asset is None else asset.key
    if target.partitioned and (asset is None or asset.partitions_def is None):
        raise target.invalid(
            "location",
            "it has ${partition}, and the sensor was not given the asset, which says what partitions there are.",
            "Give build_upstream_sensor the assets of build_unload_asset or unload_assets: assets=[...].",
        )
    tables = (target.upstreams if target.upstreams is not None else inspect_query(target).tables) or ()
    # A target that reads what it publishes would ask for itself for ever.
    tables = tuple(each for each in tables if upstream_key(each) != key and not _publishes(target, each))
    sample = target.sample_partition
    return Watched(
        target,
        key,
        pool_name(target),
        definition_fingerprint(
            query=target.query_for(sample),
            output=target.format,
            location=target.location_for(sample),
            partition=sample,
            catalog=target.catalog,
            database=target.database,
        ),
        tuple(dict.fromkeys(tables)),
        None if asset is None else asset.partitions_def,
        asset is not None
        and asset.backfill_policy == dg.BackfillPolicy.single_run()
        # A range of those is a rectangle, not a row.
        and not isinstance(asset.partitions_def, dg.MultiPartitionsDefinition),
    )


def key_comes(partitions_def: dg.PartitionsDefinition, key: str, keys: Sequence[str]) -> bool:
    """Time partitions that have no end get a key when its time is over: until then data for it may well be there."""
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) or partitions_def.end is not None:
        return False
    try:
        time, *others = (datetime.strptime(each, partitions_def.fmt) for each in (key, *keys[-1:]))  # noqa: DTZ007
    except ValueError:
        return False
    return time > others[0] if others else True


def _publishes(target: Target, table: UpstreamTable) -> bool:
    return table.catalog.lower() == GLUE_CATALOG and f"{table.database}.{table.name}" == target.glue_table
