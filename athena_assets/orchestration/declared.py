"""What the components of one project declare: no upstream table twice, and no two targets in one place."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import dagster as dg

from athena_assets.core.disjoint import check_disjoint
from athena_assets.core.target import Target
from athena_assets.errors import InvalidTarget
from athena_assets.orchestration.lineage import check_filled


@dataclass(frozen=True, slots=True)
class Declared:
    """What one component declares, and the file that says so."""

    source: Path
    resource_key: str
    targets: Sequence[Target]
    upstream: AbstractSet[dg.AssetKey] = frozenset()


# By tree, then by the component's place in it. A tree is a tuple, to which there are no weak references: its tracker
# lives as long as the tree.
_TREES: WeakKeyDictionary[object, dict[object, Declared]] = WeakKeyDictionary()


def declared_by_others(context: dg.ComponentLoadContext) -> list[Declared]:
    """What the other components of the tree have declared so far: Dagster builds them by path, or one alone.

    Not what this one declared when it was built before: it declares that again.
    """
    every = _TREES.get(context.component_tree.state_tracker, {})
    return [declared for place, declared in every.items() if place != context.component_loc]


def remember(context: dg.ComponentLoadContext, declared: Declared) -> None:
    """For the components of the tree that are built later."""
    _TREES.setdefault(context.component_tree.state_tracker, {})[context.component_loc] = declared


def check_against(declared: Declared, others: Iterable[Declared]) -> None:
    """Refuses a target that has the name, the place or the `glue_table` of another component's.

    Components with different resources may fill tables of one name: those may be of different accounts or regions.

    Raises:
        InvalidTarget: names both targets and both files.
    """
    for other in others:
        for theirs in other.targets:
            for ours in declared.targets:
                try:
                    if _near(ours, theirs) or ours.name == theirs.name:
                        check_disjoint([theirs, ours])
                    if declared.resource_key == other.resource_key:
                        check_filled([theirs, ours])
                except InvalidTarget as error:
                    raise InvalidTarget(
                        ours.name,
                        f"{error.field} in {declared.source}",
                        f"{error.what} Target {theirs.name!r} is in {other.source}.",
                        error.next_step,
                    ) from error


def _near(one: Target, other: Target) -> bool:
    """Whether the locations may overlap, by what is before their placeholders: most pairs need no closer look."""
    head, other_head = _head(one), _head(other)
    return head.startswith(other_head) or other_head.startswith(head)


def _head(target: Target) -> str:
    head, placeholder, _ = target.location.partition("${")
    return head if placeholder else f"{head.rstrip('/')}/"
