"""Targets in YAML: `defs.yaml` beside the .sql files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from zoneinfo import ZoneInfoNotFoundError

import dagster as dg
import yaml

from athena_assets.core.disjoint import check_disjoint
from athena_assets.core.output import InvalidOutput, OutputFormat
from athena_assets.core.target import Target, UpstreamTable
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration.asset_keys import check_asset_keys, key_of
from athena_assets.orchestration.assets import build_unload_asset
from athena_assets.orchestration.checks import build_unload_checks
from athena_assets.orchestration.declared import Declared, check_against, declared_by_others, remember
from athena_assets.orchestration.fields import (
    Environment,
    OutputFields,
    PartitionsFields,
    RetryFields,
    SharedFields,
    UnloadTarget,
    plain,
    text,
)
from athena_assets.orchestration.lineage import (
    AthenaUnloadTranslator,
    check_filled,
    external_specs,
    upstream_key,
    with_attributes,
    within_set,
)
from athena_assets.orchestration.scaffold import UnloadScaffolder
from athena_assets.orchestration.upstream import build_upstream_sensor

FILE_NAMES = ("defs.yaml", "defs.yml", "component.yaml")

T = TypeVar("T")


@dg.scaffold_with(UnloadScaffolder)
class AthenaUnloadComponent(SharedFields, dg.Component):
    """Publishes the results of Athena queries to S3, exactly once: an asset for each target.

    The queries stand in .sql files beside this file. The tables that they read become upstream assets. `${...}` are
    placeholders of the queries and locations; `{{ ... }}` are Dagster's templates, such as `{{ env.BUCKET }}`.
    """

    targets: Annotated[
        list[UnloadTarget],
        plain("What is published: one asset each.", [{"name": "by_country", "sql_file": "by_country.sql"}]),
    ]
    location_prefix: Annotated[
        str | None, text("Where the targets' results are published, each below its name.", "s3://lake/published/")
    ] = None
    asset_keys: Annotated[
        dict[str, str] | None,
        text(
            "Tables that are Dagster assets already: database.table, or catalog.database.table, to asset key.",
            {"sales.orders": "dbt/orders"},
        ),
    ] = None
    upstream_assets: Annotated[
        bool,
        plain(
            "Whether to declare the other tables that are read as external assets. Say false if other definitions of"
            " the project have assets with their keys.",
            True,
        ),
    ] = True
    sensor: Annotated[
        str | None,
        text(
            "The name of a sensor that requests runs of the targets whose upstream tables changed. Left out: there is"
            " none. build_upstream_sensor has more to choose.",
            "sales_tables",
        ),
    ] = None
    resource_key: Annotated[str, text("The key of the AthenaUnloadResource.", "athena")] = "athena"

    # --- to override ------------------------------------------------------------------------------------------------

    def get_asset_spec(self, target: Target) -> dg.AssetSpec:
        """What the asset of a target is, with all that the YAML says. Override it, and change what this one returns."""
        said = next(each for each in self.targets if each.name == target.name)
        own_tags = said.tags if "tags" in said.model_fields_set else None
        return with_attributes(
            _Translator(self).described(target),
            deps=said.deps,
            group_name=self._said(said, "group_name"),
            owners=self._said(said, "owners"),
            tags={**(self.tags or {}), **(own_tags or {})},
            description=said.description,
            automation_condition=self._said(said, "automation_condition"),
            freshness_policy=self._said(said, "freshness_policy"),
            partitions_def=self._partitions(said, target),
        )

    def get_upstream_key(self, table: UpstreamTable) -> dg.AssetKey:
        """The asset that an upstream table is: the one of `asset_keys`, else an external one."""
        return self._known_key(table) or upstream_key(table)

    def _known_key(self, table: UpstreamTable) -> dg.AssetKey | None:
        """What `asset_keys` says."""
        key = upstream_key(table)
        for name, asset in (self.asset_keys or {}).items():
            if key == key_of(name):
                return dg.AssetKey.from_user_string(asset)
        return None

    # --- for Dagster and the command line ---------------------------------------------------------------------------

    @classmethod
    def get_additional_scope(cls) -> Mapping[str, Any]:
        """Also for `post_processing`, which is no field of a component."""
        return {"env": Environment(), **super().get_additional_scope()}

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """An upstream table that another component of the project has declared already is not declared again.

        Raises:
            InvalidTarget: names the file, the target and its field.
        """
        source = next((each for name in FILE_NAMES if (each := context.path / name).exists()), context.path)
        targets = self.build_targets(source)
        check_asset_keys(self.asset_keys or {}, targets, source)
        others = declared_by_others(context)
        check_against(Declared(source, self.resource_key, targets), others)
        translator = _located(source, lambda: within_set(targets, _Translator(self)))
        pairs = list(zip(self.targets, targets, strict=True))
        assets = [_located(source, partial(self._asset, said, target, translator)) for said, target in pairs]
        checks = [
            check
            for (said, target), asset in zip(pairs, assets, strict=True)
            for check in _located(source, partial(self._checks, said, target, asset.key))
        ]
        keys = {asset.key for asset in assets}
        taken = keys.union(*(each.upstream for each in others))
        upstream = external_specs(targets, translator, taken) if self.upstream_assets else []
        watching = [] if self.sensor is None else [partial(self._sensor, self.sensor, targets, assets, translator)]
        made = dg.Definitions(
            assets=[*assets, *upstream],
            asset_checks=checks,
            sensors=[_located(source, each) for each in watching],
        )
        remember(context, Declared(source, self.resource_key, targets, frozenset(spec.key for spec in upstream)))
        return made

    def build_targets(self, source: Path) -> list[Target]:
        """The targets, with the .sql files from the folder of `source`, which errors name.

        Raises:
            InvalidTarget: names the file, the target and its field.
        """
        folder = source if source.is_dir() else source.parent
        targets = [_located(source, partial(self._target, said, folder)) for said in self.targets]
        _located(source, partial(check_disjoint, targets))
        _located(source, partial(check_filled, targets))
        return targets

    @classmethod
    def targets_in(cls, path: Path) -> list[Target]:
        """The targets of a defs.yaml, for scripts and the command line `athena-assets`. Calls nothing.

        Components of other types in the file are left out. A `template_vars_module` is not read.

        Raises:
            InvalidTarget: names the file, the target and its field.
        """
        found: list[Declared] = []
        try:
            for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                if str((document or {}).get("type")).rpartition(".")[2] == cls.__name__:
                    component: Self = cls.resolve_from_dict(document.get("attributes") or {})
                    declared = Declared(path, component.resource_key, component.build_targets(path))
                    check_against(declared, found)
                    found.append(declared)
        except Exception as error:
            error.add_note(f"{path} was being read. Nothing was sent to AWS.")  # Dagster calls it <string>
            raise
        return [target for declared in found for target in declared.targets]

    # --- one target -------------------------------------------------------------------------------------------------

    def _target(self, said: UnloadTarget, folder: Path) -> Target:
        given = {
            each.name: value
            for each in fields(Target)
            if each.name in UnloadTarget.model_fields and (value := self._said(said, each.name)) is not None
        }
        if isinstance(self._said(said, "output"), OutputFields):
            given["output"] = _output(said, self._said(said, "output"))
        if said.upstreams is not None:
            given["upstreams"] = tuple(each.table() for each in said.upstreams)
        return Target(**given | {"query": _query(said, folder), "location": self._location(said)})

    def _location(self, said: UnloadTarget) -> str:
        below = said.location or said.name
        if below.startswith("s3://"):
            return below
        if self.location_prefix is None:
            raise InvalidTarget(
                said.name,
                "location",
                "it is no s3:// location, and the component has no location_prefix.",
                "Give one of the two.",
            )
        return f"{self.location_prefix.rstrip('/')}/{below.strip('/')}/"

    def _partitions(self, said: UnloadTarget, target: Target) -> dg.PartitionsDefinition | None:
        partitions = self._said(said, "partitions")
        if not target.partitioned and "partitions" not in said.model_fields_set:
            return None
        try:
            made = partitions.definition() if isinstance(partitions, PartitionsFields) else partitions
        except (ValueError, ZoneInfoNotFoundError, OSError, dg.DagsterError) as error:  # OSError: zone `Europe`
            raise InvalidTarget(said.name, "partitions", f"Dagster refuses them: {error}", "Correct them.") from error
        assert isinstance(made, dg.PartitionsDefinition | None)
        return made

    def _asset(self, said: UnloadTarget, target: Target, translator: AthenaUnloadTranslator) -> dg.AssetsDefinition:
        retry_policy: RetryFields | None = self._said(said, "retry_policy")
        most = self._said(said, "max_partitions_per_run")
        if most is not None and most < 1:
            raise InvalidTarget(said.name, "max_partitions_per_run", f"{most} are none.", "Give one or more.")
        return build_unload_asset(
            target,
            backfill_policy=dg.BackfillPolicy.multi_run(most) if most is not None and target.partitioned else None,
            retry_policy=None if retry_policy is None else retry_policy.policy(),
            translator=translator,
            resource_key=self.resource_key,
        )

    def _checks(self, said: UnloadTarget, target: Target, key: dg.AssetKey) -> Sequence[dg.AssetChecksDefinition]:
        return build_unload_checks(
            target,
            checks=self._said(said, "checks") or False,
            blocking=self._said(said, "blocking_checks") or (),
            asset_key=key,
            resource_key=self.resource_key,
        )

    def _sensor(
        self,
        name: str,
        targets: Sequence[Target],
        assets: Sequence[dg.AssetsDefinition],
        translator: AthenaUnloadTranslator,
    ) -> dg.SensorDefinition:
        return build_upstream_sensor(
            targets,
            assets=assets,
            name=name,
            upstream_key=translator.get_upstream_key,
            resource_key=self.resource_key,
        )

    def _said(self, said: UnloadTarget, name: str) -> Any:
        """The target's own word, which may be null, else the component's."""
        if name in said.model_fields_set or name not in SharedFields.model_fields:
            return getattr(said, name)
        return getattr(self, name)


class _Translator(AthenaUnloadTranslator):
    """What a component says."""

    def __init__(self, component: AthenaUnloadComponent) -> None:
        self._component = component

    def get_asset_spec(self, target: Target) -> dg.AssetSpec:
        return self._component.get_asset_spec(target)

    def get_upstream_key(self, table: UpstreamTable) -> dg.AssetKey:
        return self._component.get_upstream_key(table)

    def get_upstream_spec(self, table: UpstreamTable) -> dg.AssetSpec | None:
        return None if self._component._known_key(table) else super().get_upstream_spec(table)

    def described(self, target: Target) -> dg.AssetSpec:
        return super().get_asset_spec(target)


def _query(said: UnloadTarget, folder: Path) -> str:
    if said.query is not None:
        if said.sql_file is not None:
            raise InvalidTarget(said.name, "query", "there is a sql_file too.", "Give one of the two.")
        return said.query
    path = folder / (said.sql_file or f"{said.name}.sql")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTarget(
            said.name, "sql_file", f"{path} can't be read: {error}.", "Write the SELECT there, or give a query."
        ) from error


def _output(said: UnloadTarget, output: OutputFields) -> OutputFormat:
    try:
        return output.output()
    except InvalidOutput as error:
        raise InvalidTarget(said.name, error.field, error.problem, error.next_step) from error


def _located(source: Path, make: Callable[[], T]) -> T:
    """Names the file in the error of a target."""
    try:
        return make()
    except InvalidTarget as error:
        raise InvalidTarget(error.target, f"{error.field} in {source}", error.what, error.next_step) from error
