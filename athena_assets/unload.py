"""Publishing from plain Python, without Dagster."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from athena_assets.aws.driver import Driver, give_up, new_owner, publish
from athena_assets.aws.fleet import Fleet
from athena_assets.aws.glue_table import GlueTables
from athena_assets.aws.result_files import ResultFile, Sample, Unreadable, count_rows, first_rows
from athena_assets.aws.session import AwsClients, AwsSettings
from athena_assets.aws.steps import Pause, Progress, step
from athena_assets.aws.workgroup import KEPT, PATIENCE, Workgroup, read_workgroup, result_location
from athena_assets.core.collect import Garbage, collect
from athena_assets.core.contents import read_manifest as read_manifest_of
from athena_assets.core.effects import Effects, ListedObject
from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.location import Location
from athena_assets.core.policy import LEASE_SECONDS
from athena_assets.core.reading import PublishedFiles, read_published
from athena_assets.core.rebuild import Findings, examine, rebuild
from athena_assets.core.register import GlueTable, Publication, Register
from athena_assets.core.request import Outcome, Published, Request, Reused, Skipped
from athena_assets.core.restore import restore
from athena_assets.core.scrub import ScrubReport, repair, scrub
from athena_assets.core.shown import show
from athena_assets.core.slot import Slot
from athena_assets.core.target import Target
from athena_assets.core.tenure import look
from athena_assets.errors import AthenaAssetsError, InvalidTarget
from athena_assets.sql import QueryFacts, inspect_query

T = TypeVar("T")

SAMPLE_ROWS = 10
SHOWING_SECONDS = 5.0  # for an unanswered look at Glue while other publications' leases wait to be renewed
SHORTEST_LEASE, LONGEST_LEASE = 0.5, 86_400  # seconds
PARTITIONS_AT_ONCE = (
    10  # publications of one call under way at one time; Athena's default quota is 20 active DML queries
)


class Publisher:
    """Publishes targets with one set of AWS settings. Thread-safe: make one and share it.

    Args:
        settings: how to reach AWS; None: boto3's defaults and the workgroup `primary`.
        lease_seconds: how long a silent owner keeps its slot. Longer makes callers wait longer after a crash, shorter
            makes more needless takeovers; neither can publish anything twice.
    """

    def __init__(self, settings: AwsSettings | None = None, *, lease_seconds: float = LEASE_SECONDS) -> None:
        lease: object = lease_seconds
        number = isinstance(lease, int | float) and not isinstance(lease, bool)
        if not number or not SHORTEST_LEASE <= lease_seconds <= LONGEST_LEASE:
            raise InvalidTarget(
                "(any)",
                "lease_seconds",
                f"{lease_seconds!r} is not a number from {SHORTEST_LEASE} to {LONGEST_LEASE}.",
                "Leave it out for 60 seconds.",
            )
        self.settings = settings or AwsSettings()
        self._lease = float(lease_seconds)
        self._clients = AwsClients(self.settings)
        self._lock = threading.Lock()
        self._workgroups: dict[str, tuple[float, Workgroup]] = {}  # and our clock when they were asked for

    @property
    def region(self) -> str | None:
        """The region that calls go to, as far as boto3 knows."""
        return self._clients.region

    def unload(
        self,
        target: Target,
        *,
        partition: str | None = None,
        request_id: str | None = None,
        force: bool = False,
        upstream_versions: Mapping[str, str] | None = None,
        run: str | None = None,
        observe: Callable[[str], None] | None = None,
        take_over: bool = False,
        first_try: bool = False,
    ) -> Published | Reused | Skipped:
        """Publishes the target's result once, and returns when readers can read it.

        Args:
            target: what to publish.
            partition: the partition key, for a target whose location has `${partition}`.
            request_id: identifies this wish; a retry that brings it again finds its own publication. None: a new wish.
            force: run the query anew, whatever is published; joins nobody else's run.
            upstream_versions: versions that the caller knows, by `catalog.database.table` or `database.table`.
            run: recorded with the publication, so that others can name it.
            observe: gets one line at a time of what happens, on this thread.
            take_over: finish the present owner's work at once, without waiting for its lease: for a human who knows
                that it is dead. If it is not, that costs work, never a duplicate.
            first_try: the request id was never used before. Without it, an id that is given is looked for among all
                publications of the slot; beyond the last 33 that takes one read for each 32.

        Returns:
            Published or Reused; Skipped only where the target's on_conflict is `skip`.

        Raises:
            InvalidTarget, WorkgroupConflict: before anything was started.
            LocationNotEmpty: foreign objects lie under the location; they were not touched.
            AccessDenied: AWS refused a call; from Glue, after the query, the result is in place and Athena users do not
                find it: publish again once Glue takes it.
            SlotBusy: another caller holds the slot, and the target's policy is to fail, or its wait_timeout has passed.
            ChainBroken: nothing tells whether this request id has published long ago.
            ForeignQueryRunning: a query that is not ours writes to the location, and the policy is as with SlotBusy.
            QueryFailed: see its subclasses; nothing was published.
            AthenaAssetsError: everything else; the next caller goes on from what the register says.
        """
        request = self.request(
            target,
            partition=partition,
            request_id=request_id,
            force=force,
            upstream_versions=upstream_versions,
            run=run,
            first_try=first_try,
        )
        self._check_table(request)
        outcome = publish(self._clients, request, observe, take_over=take_over)
        self._show(request.slot, outcome, target.publish_settings(partition).glue)
        return outcome

    def request(
        self,
        target: Target,
        *,
        partition: str | None = None,
        request_id: str | None = None,
        force: bool = False,
        upstream_versions: Mapping[str, str] | None = None,
        run: str | None = None,
        first_try: bool = False,
    ) -> Request:
        """What `unload` would publish with these arguments: rendered, and checked against the workgroup.

        Raises:
            InvalidTarget, WorkgroupConflict, AccessDenied: nothing was started.
        """
        facts = inspect_query(target)
        return self._request(target, facts, partition, request_id, force, upstream_versions or {}, run, first_try)

    def step(
        self,
        request: Request,
        *,
        session: str,
        host: str,
        progress: Progress | None,
        until: float,
        observe: Callable[[str], None] | None = None,
    ) -> Published | Reused | Skipped | Pause:
        """A part of what `unload` does, up to its first wait; see `aws/steps.py`. Raises what `unload` raises."""
        if progress is None:
            self._check_table(request)
        found = step(
            self._clients, request, session=session, host=host, progress=progress, until=until, observe=observe
        )
        if not isinstance(found, Pause):
            self._show(request.slot, found, request.target.publish_settings(request.partition).glue)
        return found

    def give_up(self, location: Location, session: str) -> None:
        """Stops what a session has under way in a slot, and frees it; what it has committed is put in place.

        Raises:
            TimeoutError: not within a few seconds; the next caller goes on from what the register says.
        """
        slot = Slot(location, f"session {session}")
        give_up(Driver(self._clients, slot), slot, session)

    def _check_table(self, request: Request) -> None:
        table = request.target.publish_settings(request.partition).glue
        if table is not None:
            GlueTables(self._clients, request.location.bucket).check(request.target, table, at=request.location)

    def unload_partitions(
        self,
        target: Target,
        partitions: Sequence[str],
        *,
        request_id: Callable[[str], str] | None = None,
        force: bool = False,
        upstream_versions: Mapping[str, str] | None = None,
        run: str | None = None,
        observe: Callable[[str, str], None] | None = None,
        limit: int = PARTITIONS_AT_ONCE,
        first_try: bool = False,
    ) -> Generator[tuple[str, Published | Reused | Skipped | AthenaAssetsError]]:
        """Publishes several partitions at once, with one batched poll for all their queries.

        Yields each key with its outcome or error as soon as it has ended; one's error ends no other. Take the steps of
        the iteration quickly: leases are renewed in them. Closing it stops what is under way.

        Args:
            partitions: keys; each is a slot of its own, with a publication of its own.
            request_id: the request id for a key; None: new wishes.
            observe: gets a key and a line of its story.
            limit: publications under way at one time; each has one query.
            first_try: the request ids were never used before; see `unload`.
        """
        keys = list(dict.fromkeys(partitions))
        facts = inspect_query(target)
        requests = [
            self._request(
                target, facts, key, request_id and request_id(key), force, upstream_versions or {}, run, first_try
            )
            for key in keys
        ]
        table = target.publish_settings(keys[0]).glue if keys else None
        if table is not None:
            GlueTables(self._clients, requests[0].location.bucket).check(target, table)
        fleet = Fleet(
            self._clients,
            limit=limit,
            observe=lambda index, line: None if observe is None else observe(keys[index], line),
        )
        for index, result in fleet.publish(requests):
            if isinstance(result, AthenaAssetsError):
                yield keys[index], result
                continue
            try:
                hurried = replace(requests[index].slot, patience=SHOWING_SECONDS)
                self._show(hurried, result, target.publish_settings(keys[index]).glue)
            except AthenaAssetsError as error:
                yield keys[index], error
            else:
                yield keys[index], result

    def _show(self, slot: Slot, outcome: Outcome, table: GlueTable | None) -> None:
        """Nobody is told of a result that Athena users don't find; one that was replaced is its successor's to show."""
        if table is None or isinstance(outcome, Skipped) or outcome.superseded:
            return
        if outcome.publication.directory is not None:
            return  # the slot was not freed before Glue showed it
        if not GlueTables(self._clients, slot.bucket).stands(table, slot.location):
            Driver(self._clients, slot).run(show(slot, outcome.publication, table))

    def _request(
        self,
        target: Target,
        facts: QueryFacts,
        partition: str | None,
        request_id: str | None,
        force: bool,
        upstream_versions: Mapping[str, str],
        run: str | None,
        first_try: bool = False,
    ) -> Request:
        for name, value in (("partition", partition), ("request_id", request_id), ("run", run)):
            if value is not None and not isinstance(value, str):
                raise target.invalid(name, f"{value!r} is not a string.", "Give a string.")
        location = target.location_for(partition)
        workgroup = target.workgroup or self.settings.workgroup
        request = Request(
            id=request_id or uuid.uuid4().hex,
            target=target,
            location=location,
            query=target.query_for(partition),
            partition=partition,
            upstreams=target.upstreams if target.upstreams is not None else facts.tables or (),
            given=_given(target, upstream_versions),
            deterministic=facts.deterministic,
            workgroup=workgroup,
            output_location=result_location(
                target, location, self._workgroup(workgroup), self.settings.output_location
            ),
            guard_workgroups=self.settings.guard_workgroups,
            force=force,
            may_be_retry=request_id is not None and not first_try,
            run=run,
            lease=self._lease,
        )
        request.check()
        return request

    # --- looking and mending -----------------------------------------------------------------------------------------

    def status(self, location: Location) -> Register | None:
        """What the register says of a slot; None if there is none."""
        return self._on(location, "status", lambda slot: look(slot)).register

    def scrub(self, location: Location) -> ScrubReport:
        """Compares what lies under a location with its publication; changes nothing."""
        return self._on(location, "scrub", scrub)

    def read_manifest(self, target: Target, *, partition: str | None = None) -> PublishedFiles:
        """The files of the target's current publication, all of one, for readers that do not go through Glue.

        In mode `pointer` each of them can be read for the target's grace_period at least, counted from the moment of
        this call. In the other modes the next publication may replace them at any time.

        Raises:
            NothingPublished, PublicationLost: there is no result to read.
            SlotBusy: mode `staged`: another result is being copied to the location.
        """
        return self._on(target.location_for(partition), "read_manifest", read_published)

    def collect(self, location: Location, *, delete: bool, grace: float | None = None) -> Garbage:
        """The garbage of a slot: of losers and failed attempts, and replaced results that are not kept.

        Deleted where asked. `grace`: seconds for which replaced results of mode `pointer` stay; None: as recorded with
        each, by its target's grace_period.
        """
        return self._on(location, "collect", lambda slot: collect(slot, delete=delete, grace=grace))

    def restore(self, location: Location, fence: int, *, request_id: str | None = None) -> Publication:
        """Publishes the kept result whose fence was `fence` again; the present one is kept in its stead.

        As with `unload`, nobody is told of it before the `glue_table` that it was published with shows it.
        """
        owner = new_owner(request_id or uuid.uuid4().hex)
        retry = request_id is not None

        def steps(slot: Slot) -> Effects[Publication]:
            publication = yield from restore(slot, fence=fence, owner=owner, lease=self._lease, may_be_retry=retry)
            yield from show(slot, publication)
            return publication

        return self._on(location, "restore", steps)

    def rebuild(self, location: Location, *, write: bool, publication: str | None = None) -> Findings:
        """What is left of a slot whose register is gone or damaged; with `write`, the register is made anew from it.

        Stop whatever publishes the slot first: an old owner can publish nothing afterwards, but its work is lost.

        Args:
            publication: the name of a candidate, where nothing proves which one is current.

        Raises:
            NotRebuilt: there is nothing to rebuild, or, with `write`, it can't be told which publication is current.
            SlotBusy: somebody else wrote the register meanwhile.
            PublicationLost: with `write`: the slot is free again, but files of the publication are gone.
        """
        owner = new_owner(uuid.uuid4().hex)
        if not write:
            return self._on(location, "rebuild", lambda slot: examine(slot, publication))[0]
        return self._on(location, "rebuild", lambda slot: rebuild(slot, owner, self._lease, name=publication))

    def repair(self, location: Location, *, delete: Sequence[ListedObject] = ()) -> tuple[ListedObject, ...]:
        """Frees a blocked slot once its location is empty; returns what lies there.

        `delete` takes what an earlier call returned: those objects, as they were then, are deleted first.
        """
        return self._on(location, "repair", lambda slot: repair(slot, delete=tuple(delete)))

    def _on(self, location: Location, caller: str, steps: Callable[[Slot], Effects[T]]) -> T:
        slot = Slot(location, caller)
        return Driver(self._clients, slot).run(steps(slot))

    def sample(
        self, target: Target, outcome: Published | Reused, *, partition: str | None = None, rows: int = SAMPLE_ROWS
    ) -> Sample | None:
        """The columns of a result and its first rows, read from its first file.

        None where there is nothing to read: an empty result, or one that has been replaced since.

        Raises:
            Unreadable: the file's reader is not installed, or the file can't be read.
            AccessDenied: the published files may not be read.
        """
        if outcome.superseded:
            return None
        publication, location = outcome.publication, target.location_for(partition)
        manifest = self._on(location, "sample", lambda slot: read_manifest_of(slot, publication))
        if manifest is None or not manifest.files:
            return None
        first = manifest.files[0]
        try:
            sample = first_rows(
                self._clients, ResultFile(location.bucket, first.key, first.size), target.format, count=rows
            )
        except Unreadable:
            found = self.status(location)
            if found is None or found.publication != publication:
                return None  # it was replaced while we looked
            raise
        # The columns that name the directories are not in the files.
        return replace(sample, columns=None) if target.format.partitioned_by else sample

    def count_rows(self, target: Target, published: PublishedFiles) -> int:
        """How many rows readers of these files get; see `aws/result_files.py` for what it reads.

        Raises:
            Unreadable: a file is gone or can't be read, or its format's reader is not installed.
            AccessDenied: the published files may not be read.
        """
        bucket = target.location_for(target.sample_partition).bucket
        files = [ResultFile(bucket, each.uri.removeprefix(f"s3://{bucket}/"), each.size) for each in published.files]
        return sum(count_rows(self._clients, each, target.format) for each in files)

    def _workgroup(self, name: str) -> Workgroup:
        """Kept for a while: GetWorkGroup has a small quota. Waiting for another's asking counts as one's own."""
        until = time.monotonic() + PATIENCE
        with self._lock:
            began = time.monotonic()
            asked, found = self._workgroups.get(name, (began, None))
            if found is None or began - asked > KEPT:
                found = read_workgroup(self._clients, name, seconds=until - began)
                self._workgroups[name] = began, found
            return found


def unload(
    target: Target,
    *,
    settings: AwsSettings | None = None,
    partition: str | None = None,
    request_id: str | None = None,
    force: bool = False,
    upstream_versions: Mapping[str, str] | None = None,
    observe: Callable[[str], None] | None = None,
) -> Published | Reused | Skipped:
    """`Publisher.unload` with a publisher of its own; for many targets, make one Publisher and keep it."""
    return Publisher(settings).unload(
        target,
        partition=partition,
        request_id=request_id,
        force=force,
        upstream_versions=upstream_versions,
        observe=observe,
    )


def read_manifest(
    target: Target, *, settings: AwsSettings | None = None, partition: str | None = None
) -> PublishedFiles:
    """`Publisher.read_manifest` with a publisher of its own."""
    return Publisher(settings).read_manifest(target, partition=partition)


def _given(target: Target, versions: Mapping[str, str]) -> tuple[UpstreamVersion, ...]:
    given = []
    for name, version in versions.items():
        parts = name.lower().split(".")
        if not 1 <= len(parts) <= 3:
            raise target.invalid(
                "upstream_versions",
                f"{name!r} is not a table's name.",
                "Write table, database.table or catalog.database.table.",
            )
        defaults = [target.catalog.lower(), target.database.lower()]
        given.append(UpstreamVersion(".".join([*defaults[: 3 - len(parts)], *parts]), version, given=True))
    return tuple(given)
