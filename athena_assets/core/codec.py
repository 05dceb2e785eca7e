"""JSON for the values that are stored in S3: strict both ways, with a schema version."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

SCHEMA = 1

V = TypeVar("V")


class UnreadableRegister(ValueError):
    """The bytes are no register that this version understands."""


class NewerSchema(UnreadableRegister):
    """A newer version wrote them: nothing is damaged."""


def encode(value: object) -> bytes:
    """JSON with a trailing newline; readable with any S3 browser."""
    return (json.dumps(asdict(value), indent=1) + "\n").encode()  # type: ignore[call-overload]


def decode(body: bytes, kind: type[V]) -> V:
    """Reads a value of one of our dataclasses; missing, extra or wrongly typed fields are an error."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableRegister(f"not JSON: {error}") from error
    found = raw.get("schema") if isinstance(raw, dict) else None
    if found != SCHEMA:
        refused = NewerSchema if type(found) is int and found > SCHEMA else UnreadableRegister
        raise refused(f"its schema version is {found!r}; this version of athena_assets reads {SCHEMA}")
    value: V = _read(raw, kind, kind.__name__)
    return value


def _read(raw: Any, kind: Any, path: str) -> Any:
    if get_origin(kind) is UnionType:
        options = [each for each in get_args(kind) if each is not NoneType]
        return None if raw is None else _read(raw, options[0], path)
    if get_origin(kind) is tuple:
        if not isinstance(raw, list):
            raise UnreadableRegister(f"{path} is not a list")
        return tuple(_read(each, get_args(kind)[0], f"{path}[{index}]") for index, each in enumerate(raw))
    if hasattr(kind, "__dataclass_fields__"):
        names = {each.name for each in fields(kind)}
        if not isinstance(raw, dict) or raw.keys() != names:
            raise UnreadableRegister(f"{path} does not have exactly the fields {sorted(names)}")
        hints = _hints(kind)
        return kind(**{name: _read(raw[name], hints[name], f"{path}.{name}") for name in names})
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(raw)
        except ValueError as error:
            raise UnreadableRegister(f"{path}: {error}") from error
    if kind is float and type(raw) in (int, float):
        try:
            return float(raw)
        except OverflowError as error:
            raise UnreadableRegister(f"{path}: {error}") from error
    if type(raw) is not kind:
        raise UnreadableRegister(f"{path} is not a {kind.__name__}")
    return raw


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Resolving them takes longer than all the rest of a read."""
    return get_type_hints(kind)
