"""Which states are equal: those that differ only in what was drawn at random."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from athena_assets.core import effects
from athena_assets_tests.simulation.programs import Local
from athena_assets_tests.simulation.states import Node
from athena_assets_tests.simulation.world import Object, etag


class Names:
    """What was drawn at random: 16 to 64 hex digits. Renamed in the order in which a state mentions them."""

    _PATTERN = re.compile("[0-9a-f]{16,64}")

    def __init__(self, fixed: frozenset[str]) -> None:
        self._fixed = fixed
        self._split: dict[Any, tuple[int, tuple[str, ...]]] = {}
        self._templates: dict[str, int] = {}

    def digest(self, node: Node) -> bytes:
        renamed: dict[str, int] = {}
        parts: list[Any] = [node.left]
        for template, found in self._components(node):
            parts.append(template)
            parts.extend(renamed.setdefault(name, len(renamed)) for name in found)
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()

    def unused(self, node: Node) -> str:
        """The first id that occurs nowhere."""
        used = {name for _, found in self._components(node) for name in found}
        number = 1
        while (name := f"{number:016x}") in used:
            number += 1
        return name

    def _components(self, node: Node) -> Iterator[tuple[int, tuple[str, ...]]]:
        world = node.world
        for local in node.locals:
            yield self._parted(local)
        yield from sorted(self._parted(item) for item in world.objects.items())
        yield from sorted(self._parted(query) for query in world.queries.values())
        yield from sorted(self._parted(effect) for effect in node.pending)
        yield self._parted(node.answered)
        yield self._parted(tuple(world.tokens.items()))
        yield self._parted(tuple(sorted(world.tables.items(), key=repr)))
        yield self._parted((world.upstream, world.commits, world.readable))

    def _parted(self, value: Any) -> tuple[int, tuple[str, ...]]:
        found = self._split.get(value)
        if found is None:
            found = self._split[value] = self._part(_text(value))
        return found

    def _part(self, text: str) -> tuple[int, tuple[str, ...]]:
        names: dict[str, int] = {}

        def take(match: re.Match[str]) -> str:
            if match[0] in self._fixed:
                return match[0]
            return f"#{names.setdefault(match[0], len(names))}"

        template = self._PATTERN.sub(take, text)
        return self._templates.setdefault(template, len(self._templates)), tuple(names)


def _text(value: Any) -> str:
    match value:
        case Local():
            return value.text
        case (str(key), Object() as found):
            return f"{key}\n{found.body!r}\n{found.etag}\n{found.metadata}"
        case effects.WriteObject():
            return f"{value!r} {etag(value.body)}"
    return repr(value)
