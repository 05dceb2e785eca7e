"""What the step of an asset does: one publication, or those of several partitions at once."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import dagster as dg

from athena_assets.aws.result_files import Sample, Unreadable
from athena_assets.core.request import Published, Reused, Skipped
from athena_assets.core.target import Target
from athena_assets.errors import AthenaAssetsError, InvalidTarget
from athena_assets.orchestration.console import execution_link, query_link, s3_link, with_link
from athena_assets.orchestration.failures import failure, failures, query_of
from athena_assets.orchestration.metadata import Metadata, outcome_metadata, skipped_metadata
from athena_assets.orchestration.partitions import check_key
from athena_assets.orchestration.request import forced, is_first_try, request_id
from athena_assets.orchestration.resource import AthenaUnloadResource

logger = logging.getLogger("athena_assets")

Events = Iterator[dg.AssetMaterialization | dg.AssetObservation | dg.MaterializeResult[None]]


class _ToRun(logging.Handler):
    def __init__(self, log: dg.DagsterLogManager) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, record.getMessage())


@contextmanager
def warnings_in(log: dg.DagsterLogManager) -> Iterator[None]:
    """Shows in the run what the library warns of: an upstream version that is unknown, a slot that was not freed."""
    handler = _ToRun(log)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class Step:
    """One step of a run: the target of its asset, and the publisher of its resource."""

    def __init__(
        self, context: dg.AssetExecutionContext, resource: AthenaUnloadResource, target: Target, *, force: bool
    ) -> None:
        """Raises dg.Failure if the resource's settings can't be used."""
        self._context = context
        self._resource = resource
        self._target = target
        self._force = force
        try:
            self._publisher = resource.publisher()
        except AthenaAssetsError as error:
            raise failure(error, None) from error

    def publish(self, partition: str | None) -> Events:
        """One publication; nothing but an observation if another caller holds the slot and the target skips then.

        Raises:
            dg.Failure: nothing was published.
        """
        context = self._context
        try:
            outcome = self._publisher.unload(
                self._target,
                partition=partition,
                request_id=self._wish(partition),
                force=forced(context.run, self._force, self._target),
                run=context.run.run_id,
                observe=lambda line: context.log.info(with_link(self._publisher, line)),
                first_try=self._first_try,
            )
        except AthenaAssetsError as error:
            query_id = query_of(error)
            raise failure(error, None if query_id is None else query_link(self._publisher, query_id)) from error
        if isinstance(outcome, Skipped):
            yield self._skipped(outcome, partition)
        else:
            context.log.info(ending(outcome))
            context.add_asset_metadata(self._metadata(outcome, partition), partition_key=partition)
            yield dg.MaterializeResult()

    def publish_all(self, partitions_def: dg.PartitionsDefinition) -> Events:
        """The publications of all partitions of the run.

        Raises:
            dg.Failure: see `publish` and `publish_several`; and for a key that does not go with the target.
        """
        try:
            if not (self._context.has_partition_key or self._context.has_partition_key_range):
                raise self._target.invalid(
                    "location", "it has partitions, and the run names none.", "Choose the partitions to publish."
                )
            keys = self._context.partition_keys
            for key in keys:
                check_key(self._target, partitions_def, key)
        except InvalidTarget as error:
            raise failure(error, None) from error
        yield from self.publish(keys[0]) if len(keys) == 1 else self.publish_several(keys)

    def publish_several(self, partitions: Sequence[str]) -> Events:
        """All of them at once, each recorded as soon as its readers can read it; one's failure ends no other.

        Raises:
            dg.Failure: names the partitions that were not published; the others are, and are recorded.
        """
        context = self._context
        failed: dict[str, AthenaAssetsError] = {}
        skipped, done = False, 0
        for partition, outcome in self._outcomes(partitions):
            if isinstance(outcome, AthenaAssetsError):
                context.log.error("%s: %s: %s", partition, type(outcome).__name__, outcome)
                failed[partition] = outcome
            elif isinstance(outcome, Skipped):
                skipped = True
                yield self._skipped(outcome, partition)
            else:
                context.log.info("%s: %s", partition, ending(outcome))
                metadata = self._metadata(outcome, partition)
                context.add_asset_metadata(metadata, partition_key=partition)
                # Yielded, it is stored at once; context.log_event would keep it to the end.
                yield dg.AssetMaterialization(context.asset_key, partition=partition, metadata=metadata)
                done += 1
                context.log.info("%d of %d published", done, len(partitions))
        if failed:
            raise failures(failed, of=len(partitions))
        if not skipped:
            # Needed for what follows in the run. With it Dagster records each partition once more.
            yield dg.MaterializeResult()

    def _outcomes(
        self, partitions: Sequence[str]
    ) -> Iterator[tuple[str, Published | Reused | Skipped | AthenaAssetsError]]:
        context = self._context
        try:
            outcomes = self._publisher.unload_partitions(
                self._target,
                partitions,
                request_id=self._wish,
                force=forced(context.run, self._force, self._target),
                run=context.run.run_id,
                observe=lambda partition, line: context.log.info("%s: %s", partition, with_link(self._publisher, line)),
                first_try=self._first_try,
            )
            # Interrupted while it stores what we yielded, Dagster drops our generator without closing it.
            with self._resource.closing(outcomes):
                yield from outcomes
        except AthenaAssetsError as error:
            raise failure(error, None) from error  # of no single partition: nothing was started

    @property
    def _first_try(self) -> bool:
        return is_first_try(self._context.run, self._context.retry_number)

    def _wish(self, partition: str | None) -> str:
        return request_id(self._context.run, self._context.instance, self._context.asset_key, partition)

    def _skipped(self, outcome: Skipped, partition: str | None) -> dg.AssetObservation:
        context, link = self._context, None
        if outcome.query_id is not None:
            link = query_link(self._publisher, outcome.query_id)
        which = "" if partition is None else f"{partition}: "
        query = "" if outcome.query_id is None else f", query {outcome.query_id}"
        context.log.warning("%sskipped, not materialized: the slot is held by %s%s", which, outcome.owner, query)
        return dg.AssetObservation(
            context.asset_key,
            partition=partition,
            description="Skipped: another caller holds the slot.",
            metadata=skipped_metadata(outcome, request_id=self._wish(partition), console_url=link),
        )

    def _metadata(self, outcome: Published | Reused, partition: str | None) -> Metadata:
        return outcome_metadata(
            outcome,
            target=self._target,
            request_id=self._wish(partition),
            partition=partition,
            query_console=query_link(self._publisher, outcome.publication.query_id),
            s3_console=s3_link(self._publisher, self._target.location_for(partition)),
            sample=self._sample(outcome, partition),
            execution_console=None if outcome.execution is None else execution_link(self._publisher, outcome.execution),
        )

    def _sample(self, outcome: Published | Reused, partition: str | None) -> Sample | None:
        """The result is published, so that a file that can't be looked into fails nothing."""
        try:
            return self._publisher.sample(self._target, outcome, partition=partition, rows=self._resource.preview_rows)
        except (AthenaAssetsError, Unreadable) as error:
            self._context.log.warning("The column schema and the preview are left out: %s", error)
            return None


def ending(outcome: Published | Reused) -> str:
    """The last line of a publication's story: what readers now read, and whose query made it."""
    publication = outcome.publication
    result = f"{publication.files} file(s), {publication.bytes} bytes"
    if publication.rows is not None:
        result += f", {publication.rows} rows"
    whose = f"query {publication.query_id} of {f'run {publication.run}' if publication.run else publication.request}"
    when = datetime.fromtimestamp(publication.at, UTC).isoformat(timespec="seconds")
    if isinstance(outcome, Reused):
        how = f"waited {outcome.waited:.1f} s for" if outcome.joined else "nothing has changed since"
        told = f"reused, no query was started: {how} {whose}, published {when}: {result}"
    elif outcome.adopted:
        told = f"published {result}; the query had been started by an earlier owner of the slot"
    else:
        told = f"published {result}; {outcome.attempts} query(s) started"
    return told + ("; another result has been published over it since" if outcome.superseded else "")
