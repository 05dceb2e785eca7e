"""Whether the targets of one set keep out of each other's way."""

from __future__ import annotations

from athena_assets.core import statement
from athena_assets.core.target import Target


def check_disjoint(targets: tuple[Target, ...] | list[Target]) -> None:
    """Refuses a set of targets in which two could write to one place: the same, an ancestor's or a descendant's.

    Locations with placeholders are compared segment by segment; a segment with a placeholder may become any text that
    begins as it does.

    Raises:
        InvalidTarget: names the second target of the pair, and the first in the text.
    """
    for index, target in enumerate(targets):
        for other in targets[:index]:
            if target.name == other.name:
                raise target.invalid("name", "two targets of this set have it.", "Rename one.")
            if _may_overlap(_with_parameters(target), _with_parameters(other)):
                raise target.invalid(
                    "location",
                    f"{target.location} overlaps {other.location} of target {other.name!r}.",
                    "Give each target a prefix that is neither the same nor inside another's.",
                )


def _with_parameters(target: Target) -> str:
    """The location with its constants put in and only the parts of the partition's key open."""
    open_ = {name: f"${{{name}}}" for name in target.key_placeholders}
    return statement.render_location(target.location, {**target.parameters, **open_})


def _may_overlap(one: str, other: str) -> bool:
    segments = zip(one.rstrip("/").split("/"), other.rstrip("/").split("/"), strict=False)
    return all(_may_be_equal(left, right) for left, right in segments)


def _may_be_equal(one: str, other: str) -> bool:
    head, placeholder, _ = one.partition("${")
    other_head, other_placeholder, _ = other.partition("${")
    if placeholder and other_placeholder:
        return head.startswith(other_head) or other_head.startswith(head)
    if placeholder:
        return other.startswith(head)
    return one.startswith(other_head) if other_placeholder else one == other
