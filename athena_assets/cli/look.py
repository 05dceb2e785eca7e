"""`status`, `show` and `scrub`: looking, without changing anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from athena_assets.aws.driver import Driver
from athena_assets.aws.session import AwsClients
from athena_assets.cli.exits import Exit
from athena_assets.cli.report import age_text, object_lines, objects_document, outline, plural, publication_text, table
from athena_assets.cli.session import EPILOG, Session, also_here
from athena_assets.cli.targets import SlotName, find_slots, targets_of
from athena_assets.core.codec import encode
from athena_assets.core.register import Owner, Publication, Register
from athena_assets.core.scrub import ScrubReport
from athena_assets.core.slot import Slot
from athena_assets.core.tenure import Seen, look

SLOTS = click.argument("names", metavar="[TARGET|S3_LOCATION]...", nargs=-1)
SLOT = click.argument("name", metavar="TARGET|S3_LOCATION")
PARTITION = click.option("--partition", metavar="KEY", help="The partition of a partitioned target.")
PARTITIONS = click.option(
    "--partition", "partitions", metavar="KEY", multiple=True, help="A partition of a partitioned target; repeatable."
)


def one_slot(session: Session, name: str, partition: str | None) -> SlotName:
    slots = find_slots([name], [] if partition is None else [partition], session.source)
    if len(slots) != 1:
        raise click.UsageError(f"{name!r} means {len(slots)} slots; name one.")
    return slots[0]


def many_slots(session: Session, names: Sequence[str], partitions: Sequence[str]) -> list[SlotName]:
    """Those that are named; else those of all targets, which of partitioned ones nobody knows."""
    if names:
        return find_slots(names, partitions, session.source)
    if partitions:
        raise click.UsageError("--partition needs the name of a target.")
    targets = targets_of(session.source)
    left_out = ", ".join(target.name for target in targets if target.partitioned)
    if left_out:
        session.tell(f"Left out, because no --partition is named: {left_out}.")
    return [SlotName(target.name, target.location_for(None)) for target in targets if not target.partitioned]


@click.command(epilog=EPILOG)
@SLOTS
@PARTITIONS
@also_here
@click.pass_obj
def status(session: Session, names: Sequence[str], partitions: Sequence[str]) -> int:
    """Show who holds slots and what is published.

    Without a name: all targets that have no partitions (see --from).

    AGE is the time since the register was last
    written, by S3's own clock: an owner that lives renews it every 20 s.
    """
    slots = many_slots(session, names, partitions)
    clients = AwsClients(session.settings)
    rows, documents, notes = [], [], []
    for slot in slots:
        seen = Driver(clients, Slot(slot.location, "status")).run(look(Slot(slot.location, "status")))
        documents.append(_status_document(slot, seen))
        rows.append(_status_row(slot, seen))
        failure = None if seen.register is None else seen.register.failure
        if failure is not None:
            notes.append(f"{slot.label}: {failure.kind}, query {failure.query_id}: {failure.reason}")
    session.document["slots"] = documents
    if rows:
        for line in table(("TARGET", "STATE", "OWNER", "AGE", "QUERY", "PUBLICATION", "KEPT"), rows):
            session.say(line)
    for note in notes:
        session.say(note)
    return Exit.DONE


def _status_document(slot: SlotName, seen: Seen) -> dict[str, Any]:
    document: dict[str, Any] = {"target": slot.label, "location": str(slot.location), "state": "none"}
    found = seen.register
    if found is None:
        return document
    register = json.loads(encode(found))
    return document | {
        "state": register["state"],
        "fence": found.fence,
        "age_seconds": round(seen.age, 3),
        "lease_seconds": found.lease,
        "owner": register["owner"],
        "query_id": _query(found),
        "publication": register["publication"],
        "kept": [each["publication"] for each in register["kept"]],
        "failure": register["failure"],
    }


def _status_row(slot: SlotName, seen: Seen) -> tuple[str, ...]:
    found = seen.register
    if found is None:
        return (slot.label, "none", "-", "-", "-", "-", "-")
    return (
        slot.label,
        str(found.state),
        "-" if found.owner is None else _owner(found.owner),
        age_text(seen.age),
        _query(found) or "-",
        "-" if found.publication is None else _published(found.publication, seen.date),
        ", ".join(str(each.publication.fence) for each in found.kept) or "-",
    )


def _query(found: Register) -> str | None:
    return None if found.attempt is None else found.attempt.query_id


def _owner(owner: Owner) -> str:
    return f"{owner.host}/{owner.pid}" + (f" run {owner.run}" if owner.run else "")


def _published(publication: Publication, now: float) -> str:
    lost = "LOST, " if publication.lost else ""
    return f"{lost}{age_text(now - publication.at)} ago, {publication_text(publication)}"


@click.command(epilog=EPILOG)
@SLOT
@PARTITION
@also_here
@click.pass_obj
def show(session: Session, name: str, partition: str | None) -> int:
    """Show all that the register of a slot says."""
    slot = one_slot(session, name, partition)
    found = session.publisher().status(slot.location)
    session.document |= {"target": slot.label, "location": str(slot.location), "register": None}
    if found is None:
        session.say(
            f"{slot.label}: {slot.location} has no register: nothing was ever published there, or the register was "
            "lost; `athena-assets rebuild` tells which."
        )
        return Exit.NEGATIVE
    session.document["register"] = json.loads(encode(found))
    for line in outline(session.document["register"]):
        session.say(line)
    return Exit.DONE


@click.command(epilog=EPILOG)
@SLOTS
@PARTITIONS
@also_here
@click.pass_obj
def scrub(session: Session, names: Sequence[str], partitions: Sequence[str]) -> int:
    """Compare what lies at a location with its publication.

    Exit status 1 unless readers see exactly the publication, everywhere. A slot that is held is not clean: it may be
    in the middle of a swap. Without a name: all targets that have no partitions (see --from).
    """
    publisher = session.publisher()
    documents: list[dict[str, Any]] = []
    session.document |= {"clean": False, "slots": documents}
    for slot in many_slots(session, names, partitions):
        report = publisher.scrub(slot.location)
        documents.append(_scrub_document(slot, report))
        for line in _scrub_lines(slot, report):
            session.say(line)
    clean = all(each["clean"] for each in documents)
    session.document["clean"] = clean
    return Exit.DONE if clean else Exit.NEGATIVE


def _scrub_document(slot: SlotName, report: ScrubReport) -> dict[str, Any]:
    publication = None if report.register is None else report.register.publication
    return {
        "target": slot.label,
        "location": str(slot.location),
        "clean": report.clean,
        "settled": report.settled,
        "published": publication is not None,
        "missing": list(report.missing),
        "stray": objects_document(report.stray),
        "foreign": objects_document(report.foreign),
        "staged": objects_document(report.staged),
        "astray": report.astray,
    }


def _scrub_lines(slot: SlotName, report: ScrubReport) -> list[str]:
    found = report.register
    publication = None if found is None else found.publication
    what = "nothing is published" if publication is None else publication_text(publication)
    lines = [f"{'clean' if report.clean else 'NOT CLEAN'}  {slot.label}: {what}"]
    if found is not None and not report.settled:
        lines.append(f" the slot is {found.state}: compare again when it is free")
    if report.missing:
        lines.append(f" {plural(len(report.missing), 'file')} of the publication missing or changed:")
        lines += [f"  {'':>9}  s3://{slot.location.bucket}/{key}" for key in report.missing]
    if report.astray is not None:
        lines.append(f" Glue sends readers elsewhere: {report.astray} (repair sends them back)")
    for objects, meaning in (
        (report.stray, "written by us, of no publication: readers see rows twice"),
        (report.foreign, "not ours"),
        (report.staged, "that nobody reads: garbage unless the slot is held (see gc)"),
    ):
        if objects:
            lines.append(f" {plural(len(objects), 'object')} {meaning}:")
            lines += object_lines(slot.location.bucket, objects)
    return lines
