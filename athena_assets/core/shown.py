"""Whether Athena users find a result that lies at its location: asked again before anybody is told of it.

Whoever rolls a publication forward keeps the table, then frees the slot even if Glue refused: nobody has to wait for
the table. That caller gets the error; every later one would be answered from the register, which knows nothing of it.
"""

from __future__ import annotations

from athena_assets.core.contents import read_manifest
from athena_assets.core.effects import Effects, KeepGlueTable, ReadClock, Unanswered, perform
from athena_assets.core.register import GlueTable, Publication
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import send_again


def show(slot: Slot, publication: Publication, table: GlueTable | None = None) -> Effects[None]:
    """Adds what is missing of the table, or of its partition. `table`: None for the one that it was published with.

    Nothing to do in mode pointer: there the slot is not freed before Glue shows the result.

    Raises:
        AccessDenied, OutcomeUnknown: the result is in place, and Athena users do not find it.
    """
    if publication.directory is not None:
        return
    manifest = yield from read_manifest(slot, publication)
    if table is None and manifest is not None:
        table = manifest.settings.glue
    if table is None:
        return
    effect = KeepGlueTable(table, str(slot), manifest.files[0].key if manifest is not None and manifest.files else None)
    started = yield from perform(ReadClock())
    tries = 0
    while isinstance(answer := (yield from perform(effect)), Unanswered):
        yield from send_again(slot, f"updating the table {table}", answer, started, tries)
        tries += 1
