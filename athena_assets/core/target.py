"""Target: a query and the S3 location that its result is published to."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from athena_assets.core import statement
from athena_assets.core.keys import CONTROL_PREFIX
from athena_assets.core.location import InvalidLocation, Location, parse_location
from athena_assets.core.output import InvalidOutput, OutputFormat
from athena_assets.core.partition import END, PARTITION, START, Grain, join_key, placeholder_values
from athena_assets.core.register import GRACE_SECONDS, GlueTable, Mode, PublishSettings
from athena_assets.errors import InvalidTarget

_GLUE_TABLE = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")
_DIMENSION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TARGET_NAME = re.compile(r"[A-Za-z0-9_]+(?:/[A-Za-z0-9_]+)*")


class OnConflict(StrEnum):
    """What a caller does when another holds the slot."""

    JOIN = "join"
    QUEUE = "queue"
    SKIP = "skip"
    FAIL = "fail"


class Guard(StrEnum):
    """Before which starts of a query it is looked for others that run already."""

    TAKEOVER = "takeover"
    ALWAYS = "always"
    OFF = "off"


class OnEmpty(StrEnum):
    """What a result without rows is."""

    PUBLISH = "publish"
    FAIL = "fail"


class Reuse(StrEnum):
    """When a finished publication of the same generation is returned instead of running the query again."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class UpstreamTable:
    """A table that the query reads. Lower case, as the Glue catalog stores names."""

    database: str
    name: str
    catalog: str = "awsdatacatalog"

    def __str__(self) -> str:
        return f"{self.catalog}.{self.database}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing to publish. Everything that can be checked without AWS is checked here.

    Args:
        name: names the target in errors and is its Dagster asset key: letters, digits, `_`, with `/` between parts.
        query: one SELECT. `${partition}`, `${parameter}` and, with a grain, `${partition_start}` and
            `${partition_end}` (exclusive; `YYYY-MM-DD hh:mm:ss`) render as whole, quoted string literals.
        location: `s3://bucket/path/`, where the result is published. With `${partition}` there is one slot per key.
        database: Glue database in which unqualified table names are looked up.
        output: an OutputFormat, or just the name of a format.
        grain: `hour`, `day`, `week` or `month`, for time partitions; None: the keys are any text.
        dimensions: the names of the parts of a key `a|b`, which has them in the order of their sorted names; each is a
            placeholder of its own (`${day}`) in place of `${partition}`. With a grain the first one is the time.
        parameters: values of further placeholders. Strings only: cast them in SQL.
        catalog: the Athena data catalog.
        workgroup: overrides the workgroup of the AWS settings.
        upstreams: the tables whose versions decide about reuse; None: they are read from the query.
        on_conflict: when another holds the slot: `join` (wait and share its result), `queue` (wait, then run one's own
            query), `skip` (return at once without a result) or `fail`.
        reuse: `auto`, `always` or `never`.
        guard: before a query is started, look for one that runs already, our own or another that writes to the
            location: `takeover` (where an earlier owner may have started it), `always` or `off`.
        timeout: seconds that the query may run, counted from the moment its owner knows that Athena accepted it.
        wait_timeout: seconds to wait for somebody else's work before giving up with SlotBusy.
        retries: how often an internal or retryable failure of Athena is tried again within one request.
        mode: `staged` (the query writes aside and its files are swapped in) or `direct` (it writes into the location,
            which must be empty) or `pointer` (it writes into a fresh directory below the location, and readers are sent
            there by `glue_table` or `read_manifest`).
        grace_period: `pointer` only: seconds for which a result that was replaced, and is not kept, stays readable.
        keep_previous: how many replaced results are kept, so that they can be restored.
        adopt_existing: `staged` only: foreign objects at first use are moved to the backup instead of refused.
        clean_after_failure: `direct` only: what a failed query left at the location is deleted, instead of blocking it.
        on_empty: `publish` (a result without rows is an empty publication) or `fail`.
        glue_table: `database.table`: an external table over the location that is created and, for a partitioned
            target, given each partition, so that Athena users see the result at once.

    Raises:
        InvalidTarget: names the field, the problem and the next step. Nothing was sent to AWS.
    """

    name: str
    query: str
    location: str
    database: str = "default"
    grain: Grain | str | None = None
    dimensions: tuple[str, ...] = ()
    output: OutputFormat | str = OutputFormat()  # noqa: RUF009 - a frozen value without identity
    parameters: Mapping[str, str] = field(default_factory=dict)
    catalog: str = "AwsDataCatalog"
    workgroup: str | None = None
    upstreams: tuple[UpstreamTable, ...] | None = None
    on_conflict: OnConflict | str = OnConflict.JOIN
    reuse: Reuse | str = Reuse.AUTO
    guard: Guard | str = Guard.TAKEOVER
    timeout: float = 3600.0
    wait_timeout: float = 6 * 3600.0
    retries: int = 2
    mode: Mode | str = Mode.STAGED
    grace_period: float = GRACE_SECONDS
    keep_previous: int = 1
    adopt_existing: bool = False
    clean_after_failure: bool = False
    on_empty: OnEmpty | str = OnEmpty.PUBLISH
    glue_table: str | None = None

    def __post_init__(self) -> None:
        self._check_types()
        if not _TARGET_NAME.fullmatch(self.name):
            raise self.invalid(
                "name", "it is not a valid asset key.", "Use letters, digits and _, with / between parts."
            )
        object.__setattr__(self, "output", self._checked_output())
        if self.grain is not None:
            object.__setattr__(self, "grain", self._choice("grain", Grain))
        object.__setattr__(self, "on_conflict", self._choice("on_conflict", OnConflict))
        object.__setattr__(self, "reuse", self._choice("reuse", Reuse))
        object.__setattr__(self, "guard", self._choice("guard", Guard))
        object.__setattr__(self, "mode", self._choice("mode", Mode))
        object.__setattr__(self, "on_empty", self._choice("on_empty", OnEmpty))
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        object.__setattr__(self, "dimensions", tuple(self.dimensions))
        if self.upstreams is not None:
            object.__setattr__(self, "upstreams", tuple(self.upstreams))
        for name in ("timeout", "wait_timeout"):
            if not getattr(self, name) > 0:
                raise self.invalid(
                    name, f"{getattr(self, name)!r} is not a positive number.", "Give seconds above zero."
                )
        for name in ("retries", "keep_previous"):
            if getattr(self, name) < 0:
                raise self.invalid(name, f"{getattr(self, name)!r} is negative.", "Give zero or more.")
        if not 0 <= self.grace_period < math.inf:
            raise self.invalid(
                "grace_period", f"{self.grace_period!r} is no number of seconds.", "Give zero or more seconds."
            )
        if self.adopt_existing and self.mode is not Mode.STAGED:
            raise self.invalid(
                "adopt_existing", "it needs mode 'staged'.", "Leave it out, and move what lies there away."
            )
        if self.format.partitioned_by and self.mode is Mode.DIRECT:
            raise self.invalid(
                "partitioned_by",
                "Athena does not check the destination of a partitioned UNLOAD: in mode 'direct' a rerun would append.",
                "Use mode 'staged'.",
            )
        if self.format.partitioned_by and self.mode is Mode.POINTER:
            raise self.invalid(
                "partitioned_by",
                "Athena does not check the destination of a partitioned UNLOAD: in mode 'pointer' a late twin of the "
                "query would append to the published directory.",
                "Use mode 'staged', or put ${partition} into the location.",
            )
        if self.grace_period != GRACE_SECONDS and self.mode is not Mode.POINTER:
            raise self.invalid("grace_period", "it needs mode 'pointer'.", "Leave it out: see keep_previous.")
        if self.format.partitioned_by and self.glue_table is not None:
            raise self.invalid(
                "glue_table", "it can't be kept for a result with partitioned_by.", "Create that table yourself."
            )
        if self.clean_after_failure and self.mode is not Mode.DIRECT:
            raise self.invalid(
                "clean_after_failure", "it needs mode 'direct'.", "Leave it out: other modes never leave files there."
            )
        if self.glue_table is not None and not _GLUE_TABLE.fullmatch(self.glue_table):
            raise self.invalid(
                "glue_table", f"{self.glue_table!r} is not database.table.", "Write it in lower case so."
            )
        if not self.database or not self.catalog:
            raise self.invalid("database", "database and catalog must not be empty.", "Name them.")
        self._check_dimensions()
        self._check_query()
        self._check_parameters()
        self._check_location()

    @property
    def format(self) -> OutputFormat:
        """`output` as the checked value that it always is after construction."""
        assert isinstance(self.output, OutputFormat)
        return self.output

    @property
    def sample_partition(self) -> str | None:
        """A key that such a target could have, for checks at load; None if it is not partitioned."""
        if not self.partitioned:
            return None
        one = "0" if self.grain is None else Grain(self.grain).sample
        return join_key({**dict.fromkeys(self.dimensions, "0"), self.dimensions[0]: one}) if self.dimensions else one

    @property
    def partitioned(self) -> bool:
        return bool(self.dimensions) or PARTITION in statement.location_placeholders(self.location)

    @property
    def key_placeholders(self) -> frozenset[str]:
        """The placeholders whose values a partition's key gives."""
        key = self.dimensions or (PARTITION,)
        return frozenset(key if self.grain is None else (*key, START, END))

    def location_for(self, partition: str | None) -> Location:
        """The concrete location of one slot.

        Raises:
            InvalidTarget: if the key is missing, superfluous, or does not fit into one path segment.
        """
        if self.partitioned and partition is None:
            raise self.invalid("location", "the target is partitioned and no partition key was given.", "Give one.")
        if not self.partitioned and partition is not None:
            raise self.invalid(
                "location",
                f"partition {partition!r} was asked for, but the location has no ${{partition}}.",
                "Put ${partition} into the location: else every partition would replace the one before.",
            )
        try:
            location = parse_location(statement.render_location(self.location, self.values(partition)))
        except (statement.InvalidStatement, InvalidLocation) as error:
            raise self.invalid("location", error.problem, error.next_step) from error
        control = Location(location.bucket, CONTROL_PREFIX)
        if location.overlaps(control):
            raise self.invalid(
                "location", f"{location} overlaps the control prefix {control}.", "Choose another prefix."
            )
        return location

    def query_for(self, partition: str | None) -> str:
        """The SELECT of one slot, with its placeholders rendered."""
        try:
            return statement.render_query(statement.check_query(self.query), self.values(partition))
        except statement.InvalidStatement as error:
            raise self.invalid("query", error.problem, error.next_step) from error

    def publish_settings(self, partition: str | None) -> PublishSettings:
        """What an attempt records for whoever publishes its result."""
        return PublishSettings(
            mode=Mode(self.mode),
            keep_previous=self.keep_previous,
            adopt_existing=self.adopt_existing,
            clean_after_failure=self.clean_after_failure,
            empty_fails=self.on_empty is OnEmpty.FAIL,
            glue=self._glue(partition),
            grace_period=float(self.grace_period),
        )

    def _glue(self, partition: str | None) -> GlueTable | None:
        """The table over all slots: above the segment with `${partition}`, whose `name=` names the column."""
        if self.glue_table is None:
            return None
        database, _, name = self.glue_table.partition(".")
        if not self.partitioned:
            return GlueTable(database, name, str(self.location_for(None)), None, None)
        above, _, segment = self.location.rstrip("/").rpartition("/")
        column = segment.partition("=")[0] if "=" in segment.partition("${")[0] else PARTITION
        root = str(parse_location(statement.render_location(above, self.parameters)))
        return GlueTable(database, name, root, column.lower(), partition)

    def invalid(self, field_name: str, problem: str, next_step: str) -> InvalidTarget:
        """The error that names this target and the field at fault."""
        return InvalidTarget(self.name, field_name, problem, next_step)

    def values(self, partition: str | None) -> dict[str, str]:
        """What the placeholders render for one slot. Raises InvalidTarget for a key that does not fit the grain."""
        try:
            return {
                **self.parameters,
                **placeholder_values(None if self.grain is None else Grain(self.grain), partition, self.dimensions),
            }
        except ValueError as error:
            if self.dimensions:
                form = "|".join(sorted(self.dimensions))
                time = "" if self.grain is None else f", with {self.dimensions[0]} as {Grain(self.grain).key_format}"
                raise self.invalid(
                    "dimensions",
                    f"the partition key {partition!r} is not one of {form}: {error}.",
                    f"Write it as {form}{time}.",
                ) from error
            assert self.grain is not None
            raise self.invalid(
                "grain",
                f"the partition key {partition!r} is not one of a {self.grain}: {error}.",
                f"Write it as {Grain(self.grain).key_format}.",
            ) from error

    def _checked_output(self) -> OutputFormat:
        if isinstance(self.output, OutputFormat):
            return self.output
        try:
            return OutputFormat(self.output)
        except InvalidOutput as error:
            raise self.invalid(error.field, error.problem, error.next_step) from error

    def _choice(self, name: str, kind: type[StrEnum]) -> StrEnum:
        value = getattr(self, name)
        try:
            return kind(value)
        except ValueError:
            choices = ", ".join(kind)
            raise self.invalid(name, f"{value!r} is unknown.", f"Use one of {choices}.") from None

    def _check_types(self) -> None:
        for name in ("name", "query", "location", "database", "catalog"):
            if not isinstance(getattr(self, name), str):
                raise self.invalid(name, f"{getattr(self, name)!r} is not a string.", "Give a string.")
        for name in ("workgroup", "glue_table"):
            if not isinstance(getattr(self, name), str | None):
                raise self.invalid(name, f"{getattr(self, name)!r} is not a string.", "Give a string or None.")
        for name in ("adopt_existing", "clean_after_failure"):
            if not isinstance(getattr(self, name), bool):
                raise self.invalid(name, f"{getattr(self, name)!r} is not a boolean.", "Give True or False.")
        if not isinstance(self.output, OutputFormat | str):
            raise self.invalid("output", f"{self.output!r} is no output format.", "Give an OutputFormat or a name.")
        upstreams: object = self.upstreams
        if upstreams is not None:
            values = tuple(upstreams) if isinstance(upstreams, tuple | list) else (upstreams,)
            if not all(isinstance(each, UpstreamTable) for each in values):
                raise self.invalid("upstreams", "they are not UpstreamTable values.", "Give a tuple of UpstreamTable.")
        dimensions: object = self.dimensions
        if not isinstance(dimensions, tuple | list) or not all(isinstance(each, str) for each in dimensions):
            raise self.invalid("dimensions", f"{dimensions!r} is no tuple of names.", "Give a tuple of strings.")
        if not isinstance(self.parameters, Mapping):
            raise self.invalid("parameters", "they are not a mapping.", "Give names and strings.")
        for name in ("timeout", "wait_timeout", "grace_period"):
            if not isinstance(getattr(self, name), int | float) or isinstance(getattr(self, name), bool):
                raise self.invalid(name, f"{getattr(self, name)!r} is not a number.", "Give seconds.")
        for name in ("retries", "keep_previous"):
            if not isinstance(getattr(self, name), int) or isinstance(getattr(self, name), bool):
                raise self.invalid(name, f"{getattr(self, name)!r} is not a whole number.", "Give zero or more.")

    def _check_query(self) -> None:
        try:
            statement.check_query(self.query)
            used = statement.query_placeholders(self.query)
            # Without the label and the staging path, which are shorter than this allowance.
            statement.check_size(self.query + " " * 2_048)
        except statement.InvalidStatement as error:
            raise self.invalid("query", error.problem, error.next_step) from error
        self._check_names("query", used)

    def _check_dimensions(self) -> None:
        if len(self.dimensions) == 1:
            raise self.invalid("dimensions", "there is one only.", "Leave dimensions out and use ${partition}.")
        for name in self.dimensions:
            if not _DIMENSION.fullmatch(name) or name in (PARTITION, START, END):
                raise self.invalid(
                    "dimensions",
                    f"{name!r} can't be a placeholder of its own.",
                    f"Use letters, digits and _, and none of {PARTITION}, {START}, {END}.",
                )
            if name in self.parameters or self.dimensions.count(name) > 1:
                raise self.invalid("dimensions", f"{name!r} is named twice, or a parameter too.", "Rename one.")
        if self.dimensions and self.glue_table is not None:
            raise self.invalid(
                "glue_table",
                "it can't be kept for a target with dimensions: its partition is one column.",
                "Leave it out, and create that table yourself, with partition projection or a crawler.",
            )

    def _check_names(self, field_name: str, used: frozenset[str]) -> None:
        known = self.key_placeholders
        for name in sorted(used & {START, END} - known):
            raise self.invalid(field_name, f"${{{name}}} needs a grain.", "Set grain to hour, day, week or month.")
        if PARTITION in used - known:
            names = " and ".join(f"${{{name}}}" for name in self.dimensions)
            raise self.invalid(field_name, "a target with dimensions has no ${partition}.", f"Use {names}.")
        for name in sorted(used - self.parameters.keys() - known):
            raise self.invalid(
                field_name, f"the placeholder ${{{name}}} has no value.", "Add it to parameters or remove it."
            )

    def _check_parameters(self) -> None:
        for name, value in self.parameters.items():
            if name in (PARTITION, START, END):
                raise self.invalid("parameters", f"{name!r} is set by the partition key.", "Choose another name.")
            if not isinstance(value, str):
                raise self.invalid("parameters", f"{name!r} is not a string.", "Give a string and cast it in SQL.")
            try:
                statement.quoted_literal(value)
            except statement.InvalidStatement as error:
                raise self.invalid("parameters", f"{name!r}: {error.problem}", error.next_step) from error

    def _check_location(self) -> None:
        try:
            used = statement.location_placeholders(self.location)
        except statement.InvalidStatement as error:
            raise self.invalid("location", error.problem, error.next_step) from error
        self._check_names("location", used)
        for name in self.dimensions:
            if name not in used:
                raise self.invalid(
                    "location",
                    f"it has no ${{{name}}}: each {name} would replace the one before.",
                    f"Put ${{{name}}} into the location.",
                )
        for segment in self.location.split("/"):
            # Else 1 and 23 would share a slot with 12 and 3.
            if len(statement.location_placeholders(segment) & set(self.dimensions)) > 1:
                raise self.invalid(
                    "location",
                    f"the segment {segment!r} has several dimensions: different keys could share a slot.",
                    "Give each dimension a segment of its own.",
                )
        used = statement.query_placeholders(self.query) & {PARTITION, START, END}
        if (used or self.grain is not None) and not self.partitioned:
            raise self.invalid(
                "location",
                "the target is partitioned and the location has no ${partition}: each would replace the one before.",
                "Put ${partition} into the location.",
            )
        if self.glue_table is not None and self.partitioned:
            above, _, segment = self.location.rstrip("/").rpartition("/")
            if "${" + PARTITION + "}" in above or not segment.endswith("${" + PARTITION + "}"):
                raise self.invalid(
                    "glue_table",
                    "the location must end in the partition's segment, ${partition} or name=${partition}.",
                    "Write it so, or leave glue_table out.",
                )
        self.location_for(self.sample_partition)
