"""Publishing from plain Python, without Dagster."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping

from athena_assets.aws.driver import Driver
from athena_assets.aws.parquet import Column, read_columns
from athena_assets.aws.session import AwsClients, AwsSettings
from athena_assets.aws.workgroup import Workgroup, read_workgroup, result_location
from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.policy import LEASE_SECONDS
from athena_assets.core.request import Published, Request, Reused
from athena_assets.core.target import Target
from athena_assets.sql import inspect_query


class Publisher:
    """Publishes targets with one set of AWS settings. Thread-safe: make one and share it.

    Args:
        settings: how to reach AWS; None: boto3's defaults and the workgroup `primary`.
        lease_seconds: how long a silent owner keeps its slot. Longer makes callers wait longer after a crash, shorter
            makes more needless takeovers; neither can publish anything twice.
    """

    def __init__(self, settings: AwsSettings | None = None, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.settings = settings or AwsSettings()
        self._lease = lease_seconds
        self._clients = AwsClients(self.settings)
        self._lock = threading.Lock()
        self._workgroups: dict[str, Workgroup] = {}

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
    ) -> Published | Reused:
        """Publishes the target's result once, and returns when readers can read it.

        Args:
            target: what to publish.
            partition: the partition key, for a target whose location has `${partition}`.
            request_id: identifies this wish; a retry that brings it again finds its own publication. None: a new wish.
            force: run the query anew, whatever is published; joins nobody else's run.
            upstream_versions: versions that the caller knows, by `catalog.database.table` or `database.table`.
            run: recorded with the publication, so that others can name it.
            observe: gets one line at a time of what happens, on this thread.

        Raises:
            InvalidTarget, WorkgroupConflict: before anything was started.
            LocationNotEmpty: foreign objects lie under the location; they were not touched.
            SlotBusy: another caller holds the slot, and the target's policy is to fail, or its wait_timeout has passed.
            QueryFailed: see its subclasses; nothing was published.
            AthenaAssetsError: everything else; the next caller goes on from what the register says.
        """
        facts = inspect_query(target)
        location = target.location_for(partition)
        upstreams = target.upstreams if target.upstreams is not None else facts.tables or ()
        workgroup = target.workgroup or self.settings.workgroup
        request = Request(
            id=request_id or uuid.uuid4().hex,
            target=target,
            location=location,
            query=target.query_for(partition),
            partition=partition,
            upstreams=upstreams,
            given=_given(target, upstream_versions or {}),
            deterministic=facts.deterministic,
            workgroup=workgroup,
            output_location=result_location(
                target, location, self._workgroup(workgroup), self.settings.output_location
            ),
            force=force,
            run=run,
            lease=self._lease,
        )
        request.check()
        return Driver(self._clients, request, observe).publish()

    def columns(
        self, target: Target, outcome: Published | Reused, *, partition: str | None = None
    ) -> tuple[Column, ...] | None:
        """Names and Hive types of a result's columns, read from the footer of its first Parquet file.

        None where nothing tells them: another format, an empty result, a result that has been replaced since, or no
        pyarrow (`pip install athena_assets[schema]`).
        """
        if target.format.format != "PARQUET" or outcome.superseded:
            return None
        return read_columns(self._clients, target.location_for(partition).bucket, outcome.publication.manifest)

    def _workgroup(self, name: str) -> Workgroup:
        """Read once for each publisher: GetWorkGroup has a small quota."""
        with self._lock:
            if name not in self._workgroups:
                self._workgroups[name] = read_workgroup(self._clients, name)
            return self._workgroups[name]


def unload(
    target: Target,
    *,
    settings: AwsSettings | None = None,
    partition: str | None = None,
    request_id: str | None = None,
    force: bool = False,
    upstream_versions: Mapping[str, str] | None = None,
    observe: Callable[[str], None] | None = None,
) -> Published | Reused:
    """`Publisher.unload` with a publisher of its own; for many targets, make one Publisher and keep it."""
    return Publisher(settings).unload(
        target,
        partition=partition,
        request_id=request_id,
        force=force,
        upstream_versions=upstream_versions,
        observe=observe,
    )


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
