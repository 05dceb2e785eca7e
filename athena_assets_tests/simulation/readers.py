"""Who reads what is published, as each way of publishing means it to be read."""

from __future__ import annotations

from athena_assets.core.effects import Effects, ListObjects, ObjectRead, Pointer, ReadObject, ReadPointer, perform
from athena_assets.core.location import parse_location
from athena_assets.core.reading import read_published
from athena_assets.core.register import GlueTable
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import answered
from athena_assets_tests.simulation.world import STRANGERS, World


def read_location(slot: Slot) -> Effects[list[bytes]]:
    """What whoever lists a fixed path finds there, less what strangers wrote and what it was not told."""
    listing = yield from perform(ListObjects(slot.location.prefix))
    found = []
    for each in listing if isinstance(listing, tuple) else ():
        answer = yield from perform(ReadObject(each.key))
        if isinstance(answer, ObjectRead) and not _is_a_strangers(each.key):
            found.append(answer.body)
    return found


def read_by_manifest(slot: Slot) -> Effects[tuple[str, list[bytes]]]:
    """The query that is published, and what is read of its files."""
    published = yield from read_published(slot)
    keys = [file.uri.removeprefix(f"s3://{slot.bucket}/") for file in published.files]
    return published.query_id, (yield from _read(slot, keys))


def read_by_glue(slot: Slot, table: GlueTable, world: World) -> Effects[tuple[str, list[bytes]] | None]:
    """The query to whose result Glue sends readers, and what they read there; None if it sends them nowhere yet."""
    pointer = yield from answered(ReadPointer(table), slot)
    if not isinstance(pointer, Pointer) or pointer.location is None:
        return None
    directory = parse_location(pointer.location).prefix
    query = next(each.id for each in world.queries.values() if each.parameters.staging == directory)
    listing = yield from answered(ListObjects(directory), slot)
    return query, (yield from _read(slot, [each.key for each in listing if not _is_a_strangers(each.key)]))


def _read(slot: Slot, keys: list[str]) -> Effects[list[bytes]]:
    found = []
    for key in keys:
        answer = yield from answered(ReadObject(key), slot)
        if isinstance(answer, ObjectRead):
            found.append(answer.body)
    return found


def _is_a_strangers(key: str) -> bool:
    """Also if he has taken it away while the reader read it."""
    return key.rpartition("/")[2].startswith(STRANGERS)
