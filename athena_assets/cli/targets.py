"""How a target or a slot is named on the command line."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from athena_assets.cli.exits import BadUsage
from athena_assets.core.location import InvalidLocation, Location, parse_location
from athena_assets.core.target import Target


@dataclass(frozen=True, slots=True)
class SlotName:
    """One slot, and what the user calls it."""

    label: str
    location: Location


def find_targets(name: str, source: str) -> list[Target]:
    """The target or targets that `name` means: `MODULE:NAME`, or the name of one of `source`'s targets.

    Raises:
        BadUsage: nothing, or more than one thing, is called so.
    """
    if ":" in name and not name.startswith("s3://"):
        module, _, attribute = name.partition(":")
        return _from_attribute(name, _load(module), attribute)
    if name.startswith("s3://"):
        raise _not_found(name, "a location is no target: it has no query.", "Name the target that publishes there.")
    found = [target for target in targets_of(source) if target.name == name]
    if not found:
        known = ", ".join(sorted({target.name for target in targets_of(source)})) or "none"
        raise _not_found(
            name,
            f"no target of {source} has this name (it has: {known}).",
            "Name one of them, another module with --from, or write MODULE:NAME.",
        )
    if len(found) > 1:
        raise _not_found(
            name,
            f"{len(found)} different targets of {source} have this name.",
            "Write MODULE:NAME, and rename one of them.",
        )
    return found


def targets_of(source: str) -> list[Target]:
    """The targets among the globals of a module, and of all modules below it if it is a package; each once."""
    found: list[Target] = []
    for module in _modules(_load(source)):
        for name, value in sorted(vars(module).items()):
            if not name.startswith("_"):
                found += [target for target in _targets_in(value) if target not in found]
    return found


def find_slots(names: Sequence[str], partitions: Sequence[str], source: str) -> list[SlotName]:
    """The slots of targets, of their partitions if any are given, and of locations.

    Raises:
        BadUsage, InvalidTarget: as `find_targets`; or partitions do not go with what is named.
    """
    slots: list[SlotName] = []
    for name in names:
        if name.startswith("s3://"):
            slots.append(_at(name, partitions))
            continue
        for target in find_targets(name, source):
            slots += [SlotName(label(target, key), target.location_for(key)) for key in partitions or (None,)]
    return slots


def label(target: Target, partition: str | None) -> str:
    return target.name if partition is None else f"{target.name}[{partition}]"


def _at(name: str, partitions: Sequence[str]) -> SlotName:
    if partitions:
        raise _not_found(name, "a location has no partitions.", "Name the partition's own location, or the target.")
    try:
        return SlotName(name, parse_location(name))
    except InvalidLocation as error:
        raise _not_found(name, error.problem, error.next_step) from error


def _from_attribute(name: str, module: ModuleType, attribute: str) -> list[Target]:
    if not hasattr(module, attribute):
        raise _not_found(name, f"module {module.__name__} has no {attribute!r}.", "Check the name.")
    found = list(_targets_in(getattr(module, attribute)))
    if not found:
        raise _not_found(name, "this is neither a Target nor a list of them.", "Name one.")
    return found


def _targets_in(value: object) -> Iterator[Target]:
    if isinstance(value, Target):
        yield value
    elif isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Target))
    elif isinstance(value, Mapping):
        yield from (each for each in value.values() if isinstance(each, Target))


def _modules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        yield importlib.import_module(found.name)


def _load(name: str) -> ModuleType:
    """Imports a module as `python -m` would from here: the present folder counts, installed script or not."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise _not_found(name, "this is no module's name.", "Write MODULE:NAME.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it imports is not: its author needs the trace
        raise _not_found(name, "there is no such module.", "Check the name, and the folder that you are in.") from error


def _not_found(name: str, what: str, next_step: str) -> BadUsage:
    return BadUsage(repr(name), what, not_done="Nothing was sent to AWS.", next_step=next_step)
