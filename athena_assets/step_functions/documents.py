"""What goes into an execution and comes out of it, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from athena_assets import errors
from athena_assets.core.codec import SCHEMA, decode, encode
from athena_assets.core.output import InvalidOutput, OutputFormat
from athena_assets.core.request import Outcome, Published, Reused, Skipped
from athena_assets.core.target import Target, UpstreamTable
from athena_assets.errors import AthenaAssetsError, InvalidTarget

LONGEST = 262_144
"""Bytes of an execution's input, and of what a task is sent (Step Functions, "Service quotas")."""

ALLOWANCE = 32_768
"""Of them, bytes for what a task is sent beside the input: the memory of the step before."""

_SHOWN = 2_000  # characters of each part of an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The input of an execution: the arguments of `Publisher.unload`.

    Args:
        request_id: None: the execution's name, so that an execution is one wish.
        run: None: the execution's ARN.
        output_location: where Athena writes query results; None: what the function's settings say.
        guard_workgroups: as in AwsSettings.
    """

    target: Target
    partition: str | None = None
    request_id: str | None = None
    force: bool = False
    first_try: bool = False
    upstream_versions: Mapping[str, str] = field(default_factory=dict)
    run: str | None = None
    output_location: str | None = None
    guard_workgroups: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """What is left out has its default. The same wish always gives the same text."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "target"}
        defaults = Wish(target=self.target)
        return {
            "target": _target_document(self.target),
            **{name: _plain(value) for name, value in sorted(given.items()) if value != getattr(defaults, name)},
        }

    def text(self) -> str:
        """Raises InvalidTarget for an input that Step Functions would refuse."""
        text = json.dumps(self.document(), separators=(",", ":"))
        if len(text.encode()) > LONGEST - ALLOWANCE:
            raise self.target.invalid(
                "query",
                f"the input of its execution would be {len(text.encode()):,} bytes; {LONGEST - ALLOWANCE:,} go into "
                "Step Functions.",
                "Shorten the query, use a view, or publish it with runner 'process'.",
            )
        return text


def read_wish(document: object) -> Wish:
    """The input of an execution, which a person may have written.

    Raises:
        InvalidTarget: what is missing, superfluous or of a wrong type.
    """
    raw = _object(document, "the input", {each.name for each in fields(Wish)}, needed={"target"})
    for name, value in raw.items():
        if name in ("partition", "request_id", "run", "output_location"):
            _check(value is None or isinstance(value, str), f"{name} {value!r} is not a string")
        if name in ("force", "first_try"):
            _check(isinstance(value, bool), f"{name} {value!r} is not true or false")
    versions = raw.get("upstream_versions", {})
    _check(
        isinstance(versions, dict) and all(isinstance(each, str) for each in versions.values()),
        "upstream_versions is not an object of names and strings",
    )
    workgroups = raw.get("guard_workgroups", [])
    _check(
        isinstance(workgroups, list) and all(isinstance(each, str) for each in workgroups),
        "guard_workgroups is not a list of names",
    )
    return Wish(**{**raw, "target": read_target(raw["target"]), "guard_workgroups": tuple(workgroups)})


def check_length(document: object) -> None:
    """Raises InvalidTarget for an input that leaves no room for the memory of a step.

    Step Functions takes it, and would end the execution at a later step, with an error that nothing catches.
    """
    length = len(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))
    if length > LONGEST - ALLOWANCE:
        raise InvalidTarget(
            "(of an execution)",
            "input",
            f"it has {length:,} bytes; {LONGEST - ALLOWANCE:,} leave room for what goes with it to each step.",
            "Shorten the query, or use a view.",
        )


def read_target(document: object) -> Target:
    """A target from its JSON form. Raises InvalidTarget."""
    needed = {each.name for each in fields(Target) if each.default is MISSING and each.default_factory is MISSING}
    raw = _object(document, "target", {each.name for each in fields(Target)}, needed=needed)
    if isinstance(raw.get("output"), dict):
        try:
            raw["output"] = OutputFormat(**raw["output"])
        except InvalidOutput as error:
            raise _invalid(f"output {error}") from error
        except (TypeError, AttributeError) as error:
            raise _invalid(f"output is no output format: {error}") from error
    if isinstance(raw.get("upstreams"), list):
        raw["upstreams"] = tuple(_table(each) for each in raw["upstreams"])
    return Target(**raw)


def _target_document(target: Target) -> dict[str, Any]:
    least = Target(name=target.name, query="SELECT 1", location="s3://bucket/path/")
    document: dict[str, Any] = {}
    for each in fields(Target):
        value = getattr(target, each.name)
        if each.name in ("name", "query", "location") or value != getattr(least, each.name):
            document[each.name] = _plain(value)
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, OutputFormat):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if getattr(value, each.name)}
    if isinstance(value, StrEnum | UpstreamTable):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _table(name: object) -> UpstreamTable:
    parts = name.lower().split(".") if isinstance(name, str) else []
    _check(len(parts) in (2, 3) and all(parts), f"upstreams: {name!r} is not database.table or catalog.database.table")
    return UpstreamTable(*parts) if len(parts) == 2 else UpstreamTable(parts[1], parts[2], parts[0])


def _object(document: object, what: str, known: set[str], needed: set[str]) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise _invalid(f"{what} is not an object")
    _check(not (missing := needed - document.keys()), f"{what} lacks {', '.join(sorted(missing))}")
    _check(not (other := document.keys() - known), f"{what} has the unknown {', '.join(sorted(map(repr, other)))}")
    return dict(document)


def _check(holds: object, problem: str) -> None:
    if not holds:
        raise _invalid(problem)


def _invalid(problem: str) -> InvalidTarget:
    return InvalidTarget(
        "(of an execution)", "input", f"{problem}.", "Print one with `athena-assets step-functions input`."
    )


# --- what comes out --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Result:
    published: Published | None = None
    reused: Reused | None = None
    skipped: Skipped | None = None
    schema: int = SCHEMA


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """An outcome as the output of an execution has it."""
    result = _Result(
        published=outcome if isinstance(outcome, Published) else None,
        reused=outcome if isinstance(outcome, Reused) else None,
        skipped=outcome if isinstance(outcome, Skipped) else None,
    )
    document: dict[str, Any] = json.loads(encode(result))
    return document


def read_outcome(document: object, execution: str) -> Outcome:
    """Inverse of `outcome_document`; the outcome names its execution. Raises ValueError for anything else."""
    found = decode(json.dumps(document).encode(), _Result)
    outcome = found.published or found.reused or found.skipped
    if outcome is None:
        raise ValueError("it holds no outcome")
    return outcome if isinstance(outcome, Skipped) else replace(outcome, execution=execution)


def raised(error: AthenaAssetsError) -> Exception:
    """What a Lambda function raises for one of our errors, so that Step Functions calls it by its name.

    The message has a second line, from which `read_error` makes the error again. What is long is cut, for Step
    Functions would cut it elsewhere: a cause has 32,768 characters (API reference, "HistoryEvent").
    """
    state = {name: value[:_SHOWN] if isinstance(value, str) else value for name, value in vars(error).items()}
    named: type[Exception] = type(type(error).__name__, (Exception,), {})
    return named(f"{str(error)[:_SHOWN]}\n{json.dumps(state)}")


def read_error(name: str, cause: str) -> AthenaAssetsError | None:
    """The error that a function raised, from what Step Functions says of it; None if it is none of ours."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, AthenaAssetsError)):
        return None
    try:
        message, _, state = json.loads(cause)["errorMessage"].rpartition("\n")
        return errors.rebuild(kind, (message,), json.loads(state))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
