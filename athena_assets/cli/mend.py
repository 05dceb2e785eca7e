"""`gc`, `restore`, `repair` and `rebuild`: what a person does to a slot."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from athena_assets.cli.exits import Exit
from athena_assets.cli.look import PARTITION, PARTITIONS, SLOT, SLOTS, many_slots, one_slot
from athena_assets.cli.publish import REQUEST_ID
from athena_assets.cli.report import (
    age_text,
    object_lines,
    objects_document,
    plural,
    publication_text,
    size_text,
    table,
)
from athena_assets.cli.session import EPILOG, Session, also_here
from athena_assets.cli.targets import SlotName
from athena_assets.core.collect import Garbage
from athena_assets.core.register import Register, State


@click.command(epilog=EPILOG)
@SLOTS
@PARTITIONS
@click.option("--delete", is_flag=True, help="Delete it. Without this, it is only listed.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long a replaced result of mode pointer stays; without it, as long as its target says.",
)
@also_here
@click.pass_obj
def gc(session: Session, names: Sequence[str], partitions: Sequence[str], delete: bool, grace: float | None) -> int:
    """List the garbage of slots, and delete it where asked.

    Garbage is staging that nobody can publish any more, kept results that no register names, and in mode pointer
    directories of failed attempts, and of replaced results that are not kept and whose grace period is over, unless a
    Glue table names them. While a slot is held nothing in it is garbage. Each object is deleted only as it was listed.
    Without a name: all targets that have no partitions (see --from).
    """
    publisher = session.publisher()
    documents: list[dict[str, Any]] = []
    session.document |= {"deleted": delete, "slots": documents}
    code = Exit.DONE
    for slot in many_slots(session, names, partitions):
        garbage = publisher.collect(slot.location, delete=delete, grace=grace)
        # What a deletion without permission, or an object changed meanwhile, left: S3 says it, not our intention.
        after = publisher.collect(slot.location, delete=False, grace=grace) if delete else None
        left = set() if after is None else {each.key for each in after.objects}
        remaining = [each for each in garbage.objects if each.key in left]
        held = None if garbage.objects else publisher.status(slot.location)
        state = None if held is None else held.state
        documents.append(
            {
                "target": slot.label,
                "location": str(slot.location),
                "held": state not in (None, State.FREE),
                "staging": objects_document(garbage.staging),
                "backups": objects_document(garbage.backups),
                "directories": objects_document(garbage.directories),
                "remaining": objects_document(remaining),
            }
        )
        for line in _garbage_lines(slot, garbage, state, deleted=delete):
            session.say(line)
        if remaining:
            code = Exit.AWS
            session.say(f" {plural(len(remaining), 'object')} could not be deleted; is s3:DeleteObject allowed?")
            for line in object_lines(slot.location.bucket, remaining):
                session.say(line)
    return code


def _garbage_lines(slot: SlotName, garbage: Garbage, state: State | None, *, deleted: bool) -> list[str]:
    if not garbage.objects:
        held = f": the slot is {state}, and while it is, nothing is" if state not in (None, State.FREE) else ""
        return [f"{slot.label}: no garbage{held}"]
    total = size_text(sum(each.size for each in garbage.objects))
    what = "deleted" if deleted else "garbage; --delete deletes it"
    return [
        f"{slot.label}: {plural(len(garbage.objects), 'object')}, {total}: {what}",
        *object_lines(slot.location.bucket, garbage.objects),
    ]


@click.command(epilog=EPILOG)
@SLOT
@PARTITION
@click.option("--fence", type=int, metavar="N", help="Of the result to bring back. Without it: list what is kept.")
@REQUEST_ID
@also_here
@click.pass_obj
def restore(session: Session, name: str, partition: str | None, fence: int | None, request_id: str | None) -> int:
    """Publish a kept result again; the present one is kept in its stead. No query is run."""
    slot = one_slot(session, name, partition)
    publisher = session.publisher()
    session.document |= {"target": slot.label, "location": str(slot.location)}
    if fence is None:
        return _list_kept(session, slot, publisher.status(slot.location))
    publication = publisher.restore(slot.location, fence, request_id=request_id)
    session.document["publication"] = asdict(publication)
    session.say(f"restored   {slot.label}: {publication_text(publication)}, the result of fence {publication.restored}")
    return Exit.DONE


def _list_kept(session: Session, slot: SlotName, found: Register | None) -> int:
    kept = () if found is None else found.kept
    session.document["kept"] = [asdict(each.publication) | {"backup": each.backup} for each in kept]
    if not kept:
        session.say(f"{slot.label}: no replaced result is kept; the target's keep_previous says how many there are.")
        return Exit.DONE
    rows = [
        (
            str(each.publication.fence),
            f"{age_text(time.time() - each.publication.at)} ago",
            publication_text(each.publication),
        )
        for each in kept
    ]
    for line in table(("FENCE", "PUBLISHED", "RESULT"), rows):
        session.say(line)
    return Exit.DONE


@click.command(epilog=EPILOG)
@SLOT
@PARTITION
@click.option("--delete", is_flag=True, help="Delete what lies at the location, after a question.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@also_here
@click.pass_obj
def repair(session: Session, name: str, partition: str | None, delete: bool, yes: bool) -> int:
    """Free a blocked slot once its location is empty; or send a Glue table's readers back to the publication.

    Shows why the slot is blocked and what lies there. If nothing does, the slot is free again. With --delete the
    objects are deleted first, each only as it was listed.
    """
    slot = one_slot(session, name, partition)
    publisher = session.publisher()
    before = publisher.status(slot.location)
    found = publisher.repair(slot.location)
    failure = None if before is None or before.state is not State.BLOCKED else before.failure
    session.document |= {
        "target": slot.label,
        "location": str(slot.location),
        "failure": None if failure is None else asdict(failure),
        "found": objects_document(found),
        "freed": not found,
    }
    if failure is not None:
        session.say(f"{slot.label}: blocked by {failure.kind}, query {failure.query_id}: {failure.reason}")
    if found:
        session.say(f"{plural(len(found), 'object')} at {slot.location}:")
        for line in object_lines(slot.location.bucket, found):
            session.say(line)
        if not delete:
            session.say("Still blocked. Move them away, or delete them with --delete.")
            return Exit.NEGATIVE
        if not yes and not click.confirm(f"Delete {plural(len(found), 'object')} at {slot.location}?", err=True):
            session.say("Still blocked; nothing was deleted.")
            return Exit.NEGATIVE
        remaining = publisher.repair(slot.location, delete=found)
        session.document |= {"remaining": objects_document(remaining), "freed": not remaining}
        if remaining:
            session.say("Still blocked; not deleted, because it changed meanwhile or S3 refused:")
            for line in object_lines(slot.location.bucket, remaining):
                session.say(line)
            return Exit.AWS
    if before is not None and before.state is State.FREE:
        session.say(f"pointed    {slot.label}: Glue sends readers to the publication again")
    else:
        session.say(f"freed      {slot.label}: the next unload publishes")
    return Exit.DONE


@click.command(epilog=EPILOG)
@SLOT
@PARTITION
@click.option("--publication", metavar="NAME", help="The one to name, where nothing proves which is current.")
@click.option("--write", is_flag=True, help="Write the register. Without this, only say what it would be.")
@also_here
@click.pass_obj
def rebuild(session: Session, name: str, partition: str | None, publication: str | None, write: bool) -> int:
    """Make a register anew that is gone or damaged, from the manifests and from what lies at the location.

    Stop whatever publishes the slot first. Without --write it is only said which publication the register would name
    and which replaced results are still kept.
    """
    slot = one_slot(session, name, partition)
    found = session.publisher().rebuild(slot.location, write=write, publication=publication)
    session.document |= {"target": slot.label, "location": str(slot.location), "written": write} | asdict(found)
    session.say(f"{slot.label}: the register: {found.register}")
    for each in found.candidates:
        note = "current: it is proved" if each.proved else "current: chosen" if each == found.chosen else ""
        session.say(f"  {each}{f': {note}' if note else ''}")
    if not found.told:
        session.say("Nothing proves which of these is current: name one with --publication.")
        return Exit.ATTENTION
    if found.chosen is None:
        session.say("  nothing was ever published")
    for kept in found.kept:
        session.say(f"  kept: {publication_text(kept.publication)}")
    for retired in found.retired:
        session.say(f"  to be collected: s3://{slot.location.bucket}/{retired.prefix}")
    for unnamed in found.unnamed:
        session.say(f"  left alone, because no manifest names it: s3://{slot.location.bucket}/{unnamed}")
    done = "rebuilt   " if write else "would be written (--write):"
    session.say(f"{done} {slot.label}: fence {found.fence}, naming {found.chosen or 'no publication'}")
    return Exit.DONE
