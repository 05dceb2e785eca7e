"""The YAML of a component: what its fields mean and how they are read."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import dagster as dg
from pydantic import BaseModel, ConfigDict, model_validator

from athena_assets.core.output import OutputFormat
from athena_assets.core.target import UpstreamTable

# The partitions that Dagster has as {{ dg.NAME(...) }}.
PARTITIONS_IN_TEMPLATES = (
    "HourlyPartitionsDefinition",
    "DailyPartitionsDefinition",
    "WeeklyPartitionsDefinition",
    "MonthlyPartitionsDefinition",
    "TimeWindowPartitionsDefinition",
    "StaticPartitionsDefinition",
)


class Environment:
    """`env` in templates. A variable that is not set is an error: Dagster's own is None, which leaves a field out."""

    def __call__(self, name: str, default: Any = None) -> Any:
        value = os.environ.get(name, default)
        if value is None:
            raise LookupError(
                f"the environment variable {name} is not set. Nothing was loaded. Set it, or give a default: "
                f"{{{{ env('{name}', 'default') }}}}"
            )
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("jinja"):  # Jinja asks any object so
            raise AttributeError(name)
        return self(name)


def _text(context: dg.ResolutionContext, value: Any) -> Any:
    """Text stays text. Dagster reads what a template renders as a Python literal: "007" or "1e3" would be changed."""
    if isinstance(value, str):
        if "{{" not in value and "{%" not in value:
            return value
        rendered = context.resolve_value(f"={value}", as_type=str)  # no literal begins so
        return rendered.removeprefix("=")
    if isinstance(value, Mapping):
        return {name: _text(context.at_path(name), each) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [_text(context.at_path(index), each) for index, each in enumerate(value)]
    return value


def text(description: str, example: Any) -> dg.Resolver:
    """Text, or lists and mappings of it."""
    return dg.Resolver(_text, inject_before_resolve=False, description=description, examples=[example])


def plain(description: str, example: Any) -> dg.Resolver:
    resolver: dg.Resolver = dg.Resolver.default(description=description, examples=[example])
    return resolver


def made_by_template(description: str, example: str) -> dg.Resolver:
    """Only a template can make it."""
    resolver: dg.Resolver = dg.Resolver.default(
        model_field_type=str | None, description=description, examples=[example]
    )
    return resolver


def _guard(context: dg.ResolutionContext, value: Any) -> Any:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else context.resolve_value(value)


class PartitionsFields(dg.Model, dg.Resolvable):
    """The partitions of assets."""

    type: Annotated[
        Literal["hourly", "daily", "weekly", "monthly", "static", "multi"],
        plain("The kind: one of Dagster's time partitions, a fixed list of keys, or several dimensions.", "daily"),
    ]
    start_date: Annotated[str | None, text("The first partition of time partitions.", "2013-01-01")] = None
    end_date: Annotated[
        str | None, text("The end of time partitions, exclusive. Left out: they go on to the present.", "2014-01-01")
    ] = None
    timezone: Annotated[str | None, text("The time zone of time partitions. Left out: UTC.", "Europe/Berlin")] = None
    keys: Annotated[list[str] | None, text("The keys of static partitions.", ["eu", "us"])] = None

    dimensions: Annotated[
        dict[str, dict[str, Any]] | None,
        text(
            "The dimensions of type multi, each as partitions of another type; the target names them too.",
            {
                "day": {"type": "daily", "start_date": "2013-01-01"},
                "origin": {"type": "static", "keys": ["EWR", "JFK"]},
            },
        ),
    ] = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {"static": "keys", "multi": "dimensions"}.get(self.type, "start_date")
        if [each for each in ("keys", "dimensions", "start_date") if getattr(self, each)] != [needed]:
            raise ValueError("give keys with type static, dimensions with multi, and start_date with the others.")
        return self

    def definition(self) -> dg.PartitionsDefinition:
        if self.dimensions:
            parts = {name: PartitionsFields(**said).definition() for name, said in self.dimensions.items()}
            return dg.MultiPartitionsDefinition(parts)
        if self.keys:
            return dg.StaticPartitionsDefinition(self.keys)
        assert self.start_date is not None
        kinds = {
            "hourly": dg.HourlyPartitionsDefinition,
            "daily": dg.DailyPartitionsDefinition,
            "weekly": dg.WeeklyPartitionsDefinition,
            "monthly": dg.MonthlyPartitionsDefinition,
        }
        made: dg.PartitionsDefinition = kinds[self.type](
            start_date=self.start_date, end_date=self.end_date, timezone=self.timezone
        )
        return made


class RetryFields(dg.Model, dg.Resolvable):
    """How a failed step is tried again."""

    max_retries: Annotated[int, plain("How often.", 2)]
    delay: Annotated[float | None, plain("Seconds before the first retry.", 30)] = None
    backoff: Annotated[
        Literal["linear", "exponential"] | None, plain("How the delay grows. Left out: it does not.", "exponential")
    ] = None

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        if self.max_retries < 0 or not 0 <= (self.delay or 0) < math.inf:
            raise ValueError("give zero or more max_retries, and zero or more seconds of delay.")
        return self

    def policy(self) -> dg.RetryPolicy:
        backoff = None if self.backoff is None else dg.Backoff[self.backoff.upper()]
        return dg.RetryPolicy(max_retries=self.max_retries, delay=self.delay, backoff=backoff)


class OutputFields(dg.Model, dg.Resolvable):
    """An output format with its properties; see docs/targets.md."""

    format: Annotated[str, text("PARQUET, ORC, JSON, TEXTFILE or AVRO.", "PARQUET")] = "PARQUET"
    compression: Annotated[str | None, text("One that the format has. Left out: Athena's default.", "ZSTD")] = None
    compression_level: Annotated[int | None, plain("1 to 22, with ZSTD.", 9)] = None
    field_delimiter: Annotated[str | None, text("One ASCII character, with TEXTFILE.", ",")] = None
    partitioned_by: Annotated[
        list[str] | None, text("Columns by which one result's files are laid out in directories.", ["country"])
    ] = None

    def output(self) -> OutputFormat:
        given = self.model_dump(exclude_unset=True)
        return OutputFormat(**given | {"partitioned_by": tuple(self.partitioned_by or ())})


class UpstreamFields(dg.Model, dg.Resolvable):
    """A table that a query reads."""

    database: Annotated[str, text("Its Glue database.", "sales")]
    name: Annotated[str, text("Its name.", "orders")]
    catalog: Annotated[str, text("Its data catalog.", "awsdatacatalog")] = "awsdatacatalog"

    def table(self) -> UpstreamTable:
        return UpstreamTable(self.database.lower(), self.name.lower(), self.catalog.lower())


def nested(fields: type[Any], description: str, example: Any, *, or_text: bool = False) -> dg.Resolver:
    """A mapping, or what a template gives."""

    def resolve(context: dg.ResolutionContext, value: Any) -> Any:
        if isinstance(value, str) and not or_text:
            raise ValueError(
                f"{value!r} is neither a mapping nor a template. Nothing was loaded. Write e.g. {example}."
            )
        return fields.resolve_from_model(context, value) if isinstance(value, BaseModel) else value

    return dg.Resolver(resolve, model_field_type=fields.model() | None, description=description, examples=[example])


class SharedFields(dg.Model, dg.Resolvable):
    """What a target may say, and its component for all of its targets that do not."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        made: Self = super().resolve_from_model(context.with_scope(env=Environment()), model)
        return made

    database: Annotated[
        str | None, text("The Glue database in which table names without one are looked up.", "sales")
    ] = None
    catalog: Annotated[str | None, text("The Athena data catalog.", "AwsDataCatalog")] = None
    workgroup: Annotated[str | None, text("The Athena workgroup. Left out: the resource's.", "primary")] = None
    output: Annotated[
        OutputFields | OutputFormat | str | None,
        nested(
            OutputFields,
            "The output format, or its name.",
            {"format": "PARQUET", "compression": "ZSTD"},
            or_text=True,
        ),
    ] = None
    mode: Annotated[Literal["staged", "direct", "pointer"] | None, plain("How results are put in place.", "staged")] = (
        None
    )
    group_name: Annotated[str | None, text("The group of the asset.", "sales")] = None
    owners: Annotated[
        list[str] | None,
        text("The asset's owners: e-mail addresses, or team: and a name.", ["team:analytics"]),
    ] = None
    tags: Annotated[
        dict[str, str] | None, text("Tags of the asset. A target's are added to its component's.", {"tier": "gold"})
    ] = None
    partitions: Annotated[
        PartitionsFields | dg.PartitionsDefinition | None,
        nested(
            PartitionsFields,
            "The partitions of targets with dimensions, or ${partition} in the location. A template may give one of"
            f" {', '.join(PARTITIONS_IN_TEMPLATES)}; others come from a variable of your template_vars_module.",
            {"type": "daily", "start_date": "2013-01-01"},
        ),
    ] = None
    max_partitions_per_run: Annotated[
        int | None,
        plain(
            "How many partitions a run of a backfill has. Left out: all of them for time partitions, else one.",
            30,
        ),
    ] = None
    checks: Annotated[
        bool | list[str] | None,
        plain(
            "The asset's checks of what readers see: true for all, or a list: scrub, row_count, schema_change.", True
        ),
    ] = None
    blocking_checks: Annotated[
        list[str] | None,
        plain("Those of them whose error keeps what depends on the asset from running.", ["scrub"]),
    ] = None
    automation_condition: Annotated[
        dg.AutomationCondition[Any] | None,
        made_by_template("When Dagster materializes the asset by itself.", "{{ dg.AutomationCondition.eager() }}"),
    ] = None
    freshness_policy: Annotated[
        dg.FreshnessPolicy | None,
        made_by_template(
            "How old the asset may be.",
            "{{ dg.FreshnessPolicy.time_window(fail_window=datetime.timedelta(hours=24)) }}",
        ),
    ] = None
    retry_policy: Annotated[
        RetryFields | None,
        nested(RetryFields, "How failures that may pass are tried again.", {"max_retries": 2, "delay": 30}),
    ] = None


class UnloadTarget(SharedFields):
    """One target: a query and where its result is published. Fields not described here: see docs/targets.md."""

    name: Annotated[str, text("The target's name, which is its asset key, split at /.", "sales/by_country")]
    query: Annotated[
        str | None,
        text("The SELECT itself, instead of a file.", "SELECT country, count(*) AS orders FROM orders GROUP BY 1"),
    ] = None
    sql_file: Annotated[
        str | None,
        text(
            "The file with the SELECT, from the folder of this file. It is no template. Left out, with no query: the"
            " name and .sql.",
            "by_country.sql",
        ),
    ] = None
    location: Annotated[
        str | None,
        text(
            "s3://bucket/path/, or a path below location_prefix, where the result is published; ${partition} stands for"
            " the partition's key. Left out: the name.",
            "by_country/day=${partition}/",
        ),
    ] = None
    description: Annotated[str | None, text("Stands before the query.", "Orders by country.")] = None
    deps: Annotated[
        list[dg.ResolvedAssetKey] | None,
        plain("The asset keys upstream. Left out: the tables that the query reads.", ["sales/orders"]),
    ] = None
    grain: Annotated[Literal["hour", "day", "week", "month"] | None, plain("The length of time partitions.", "day")] = (
        None
    )
    dimensions: Annotated[
        list[str] | None,
        text("The names of the parts of keys `a|b`, the time first; each is a placeholder.", ["day", "origin"]),
    ] = None
    parameters: Annotated[
        dict[str, str] | None, text("Values of further placeholders, as text.", {"country": "AT"})
    ] = None
    upstreams: Annotated[
        list[UpstreamFields] | None,
        plain(
            "The tables whose versions decide about reuse. Left out: those that the query reads.",
            [{"database": "sales", "name": "orders"}],
        ),
    ] = None
    on_conflict: Annotated[
        Literal["join", "queue", "skip", "fail"] | None, plain("What to do when another holds the slot.", "join")
    ] = None
    reuse: Annotated[
        Literal["auto", "always", "never"] | None, plain("When a finished result is taken for a new one.", "auto")
    ] = None
    guard: Annotated[
        str | None,
        dg.Resolver(
            _guard,
            model_field_type=Literal["takeover", "always", "off"] | bool | None,
            description="Before which starts of a query to look for others that run already.",
            examples=["takeover"],
        ),
    ] = None
    timeout: Annotated[float | None, plain("Seconds that the query may run.", 3600)] = None
    wait_timeout: Annotated[float | None, plain("Seconds to wait for others' work.", 21600)] = None
    retries: Annotated[int | None, plain("How often a failure inside Athena is tried again.", 2)] = None
    grace_period: Annotated[
        float | None, plain("Mode pointer: seconds for which a replaced result stays readable.", 86400)
    ] = None
    keep_previous: Annotated[int | None, plain("How many replaced results are kept.", 1)] = None
    adopt_existing: Annotated[
        bool | None, plain("Move foreign objects to the backup at the first use of the location.", False)
    ] = None
    clean_after_failure: Annotated[
        bool | None, plain("Mode direct: delete what a failed query left at the location.", False)
    ] = None
    on_empty: Annotated[Literal["publish", "fail"] | None, plain("What a result without rows is.", "publish")] = None
    glue_table: Annotated[
        str | None, text("database.table: an external table over the location, kept in step.", "sales.by_country")
    ] = None
