"""Runs queries: one thread each, the states of Athena, and the race of Athena.

An UNLOAD looks once whether its destination is empty, then real time passes, then it writes file after file with
unconditional PUTs. Two UNLOADs to one place that start close together both pass the look and both write.
"""

from __future__ import annotations

import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from athena_assets.local import glue_tables, hive_partitions, moto_seams, result_files
from athena_assets.local.athena_errors import SYSTEM, QueryFailed, QueryStopped, not_supported
from athena_assets.local.athena_history import CANCELLED, FAILED, FINAL, QUEUED, RUNNING, SUCCEEDED, Execution, History
from athena_assets.local.object_cache import ObjectCache
from athena_assets.local.query_faults import QueryFaults
from athena_assets.local.sql_translation import Translation, translate
from athena_assets.local.state_folder import StateFolder
from athena_assets.local.statements import Select, Statement, Unload, Unsupported
from athena_assets.local.unload_format import FileFormat, read_format

CONCURRENT_COMPUTATIONS = 2
INTERRUPT_SECONDS = 0.05
PATH_ALREADY_EXISTS = 1101


class Runner:
    """Starts and stops queries."""

    def __init__(
        self, faults: QueryFaults, cache_folder: Path, history: History, state: StateFolder | None = None
    ) -> None:
        self._faults = faults
        self._history = history
        self._state = state
        self._cache = ObjectCache(cache_folder)
        # Only computing and rendering are bounded: a query that waits or is held takes no slot.
        self._slots = threading.BoundedSemaphore(CONCURRENT_COMPUTATIONS)

    def start(self, execution: Execution, statement: Statement) -> None:
        """Returns at once."""
        name = f"query-{execution.query_id}"
        threading.Thread(target=self._run, args=(execution, statement), name=name, daemon=True).start()

    def stop(self, execution: Execution) -> None:
        """Asks the query to stop; the files that it wrote stay. Nothing happens to a finished one."""
        with execution.lock:
            if execution.state in FINAL:
                return
            execution.stopped.set()
            if execution.state == QUEUED:
                self._finish_locked(execution, CANCELLED, "Query cancelled by user", None)
        self._faults.wake()

    def _run(self, execution: Execution, statement: Statement) -> None:
        try:
            self._begin(execution)
            if isinstance(statement, Unsupported):
                raise not_supported(f"{statement.word} statements")
            if execution.submission.parameters:
                raise not_supported("execution parameters")
            if isinstance(statement, Unload):
                self._unload(execution, statement)
            else:
                self._select(execution, statement)
            self._finish(execution, SUCCEEDED)
        except QueryStopped:
            self._finish(execution, CANCELLED, "Query cancelled by user")
        except QueryFailed as error:
            self._finish(execution, FAILED, error.reason, error)
        except duckdb.InterruptException:
            self._finish(execution, CANCELLED, "Query cancelled by user")
        except duckdb.Error as error:
            failure = _from_duckdb(error)
            self._finish(execution, FAILED, failure.reason, failure)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not leave a query running for ever
            traceback.print_exc()
            failure = QueryFailed(f"GENERIC_INTERNAL_ERROR: embedded Athena: {error!r}", SYSTEM, 1)
            self._finish(execution, FAILED, failure.reason, failure)

    def _finish(
        self, execution: Execution, state: str, reason: str | None = None, error: QueryFailed | None = None
    ) -> None:
        with execution.lock:
            self._finish_locked(execution, state, reason, error)

    def _finish_locked(self, execution: Execution, state: str, reason: str | None, error: QueryFailed | None) -> None:
        if execution.state in FINAL:
            return
        execution.state, execution.reason, execution.error = state, reason, error
        execution.completed_at = time.time()
        self._history.keep(execution)

    @contextmanager
    def _slot(self, execution: Execution) -> Iterator[None]:
        """One of the few places to compute; a query that is stopped while it waits for one does not wait on."""
        while not self._slots.acquire(timeout=0.05):
            if execution.stopped.is_set():
                raise QueryStopped
        try:
            yield
        finally:
            self._slots.release()

    def _stand(self, execution: Execution, at: str) -> None:
        self._faults.stand(execution.query_id, execution.submission.sql, at, execution.stopped)

    def _unload(self, execution: Execution, statement: Unload) -> None:
        form = read_format(statement)
        bucket, prefix = _destination(statement.location)
        translation = self._translate(execution, statement.select)
        result_files.check_names(translation.names)
        hive_partitions.check_columns(translation.names, form.partitioned_by)
        if not form.partitioned_by and moto_seams.list_objects(bucket, prefix):
            raise QueryFailed(
                f"HIVE_PATH_ALREADY_EXISTS: Target directory already exists: {statement.location}",
                error_type=PATH_ALREADY_EXISTS,
            )
        self._stand(execution, "checked")
        if execution.stopped.wait(self._faults.delay):
            raise QueryStopped
        failure = self._faults.take_failure(execution.submission.sql)
        table = self._compute(execution, translation)
        if (requeue := self._faults.take_requeue(execution.submission.sql)) is not None:
            self._write(execution, table, form, f"{bucket}/{prefix}", requeue.after_files)
            self._back_to_the_queue(execution)
        limit = None if failure is None else failure.after_files
        written = self._write(execution, table, form, f"{bucket}/{prefix}", limit)
        if failure is not None:
            raise failure.as_exception()
        self._stand(execution, "written")
        self._report(execution, table, written)

    def _write(
        self, execution: Execution, table: pa.Table, form: FileFormat, destination: str, limit: int | None
    ) -> list[str]:
        """Puts one file after the other, under new names; returns their URIs. At most `limit` of them."""
        bucket, _, prefix = destination.partition("/")
        stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(execution.submitted_at))
        stem = f"{stamp}_{execution.number:05d}_{execution.query_id[:5]}"
        written: list[str] = []
        execution.output_bytes = 0
        files = result_files.render_files(table, form, self._faults.rows_per_file)
        while limit is None or len(written) < limit:
            with self._slot(execution):
                found = next(files, None)
            if found is None:
                break
            folder, body = found
            key = f"{prefix}{folder}{stem}_{uuid.uuid4()}{form.suffix}"
            self._put(execution, bucket, key, body)
            written.append(f"s3://{bucket}/{key}")
            execution.output_bytes += len(body)
        return written

    def _back_to_the_queue(self, execution: Execution) -> None:
        """What Athena does after a transient error; the second run starts like the first."""
        with execution.lock:
            execution.state, execution.started_at = QUEUED, None
        self._begin(execution)

    def _begin(self, execution: Execution) -> None:
        self._stand(execution, "queued")
        with execution.lock:
            if execution.stopped.is_set():
                raise QueryStopped
            execution.state, execution.started_at = RUNNING, time.time()

    def _report(self, execution: Execution, table: pa.Table, written: list[str]) -> None:
        """The data manifest and the metadata object, beside the query's result. No files: no manifest."""
        execution.output_rows = table.num_rows
        bucket, prefix = _split(execution.submission.result_location)
        self._put(execution, bucket, f"{prefix}{execution.query_id}.metadata", result_files.render_metadata(table))
        if written:
            key = f"{prefix}{execution.query_id}-manifest.csv"
            if not self._faults.take_manifest_loss():
                self._put(execution, bucket, key, "".join(f"{uri}\n" for uri in written).encode())
            execution.manifest = f"s3://{bucket}/{key}"

    def _select(self, execution: Execution, statement: Select) -> None:
        translation = self._translate(execution, statement.sql)
        self._stand(execution, "checked")
        if (failure := self._faults.take_failure(execution.submission.sql)) is not None:
            raise failure.as_exception()
        table = self._compute(execution, translation)
        columns = [column.to_pylist() for column in table.columns]
        rows = [tuple(result_files.csv_text(value) for value in row) for row in zip(*columns, strict=True)]
        body = result_files.render_csv(translation.names, rows)
        self._stand(execution, "written")
        bucket, prefix = _split(execution.submission.result_location)
        self._put(execution, bucket, f"{prefix}{execution.query_id}.csv", body)
        self._put(execution, bucket, f"{prefix}{execution.query_id}.csv.metadata", result_files.render_metadata(table))
        execution.columns = tuple((field.name, result_files.trino_type(field.type)) for field in table.schema)
        execution.rows, execution.output_rows, execution.output_bytes = rows, table.num_rows, len(body)

    def _translate(self, execution: Execution, sql: str) -> Translation:
        asked = execution.submission
        return translate(sql, asked.database, lambda name: glue_tables.load_table(asked.region, name).schema())

    def _compute(self, execution: Execution, translation: Translation) -> pa.Table:
        with self._slot(execution), duckdb.connect() as connection:
            connection.execute(
                "SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;"
                " SET TimeZone = 'UTC'; SET threads = 2; SET enable_progress_bar = false"
            )
            for name, relation in translation.relations.items():
                table = glue_tables.load_table(execution.submission.region, name)
                sql, scanned = glue_tables.scan(table, self._cache)
                connection.execute(f"CREATE TEMP VIEW {relation} AS {sql}")
                execution.scanned_bytes += scanned
            # No file but the copies of the tables' objects can be opened, whatever the query's text names.
            connection.execute(f"SET allowed_directories = ['{self._cache.folder}']")
            connection.execute("SET enable_external_access = false; SET lock_configuration = true")
            with _interruptible(execution, connection):
                result = connection.sql(translation.sql).to_arrow_table()
            return result_files.storable(result.rename_columns(list(translation.names)))

    def _put(self, execution: Execution, bucket: str, key: str, body: bytes) -> None:
        stopped: Callable[[], bool] = execution.stopped.is_set
        with moto_seams.LOCK:
            if not moto_seams.put_object(bucket, key, body, unless=stopped):
                raise QueryStopped
            if self._state is not None:
                self._state.keep_object(bucket, key)


@contextmanager
def _interruptible(execution: Execution, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupts the connection when the query is stopped: again and again, for DuckDB forgets one that comes early."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(INTERRUPT_SECONDS):
            if execution.stopped.is_set():
                connection.interrupt()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _from_duckdb(error: duckdb.Error) -> QueryFailed:
    message = str(error).splitlines()[0]
    known = ("INVALID_CAST_ARGUMENT", "Division by zero", "Overflow", "overflow")
    if "Division by zero" in message:
        return QueryFailed("DIVISION_BY_ZERO: Division by zero")
    if "NOT_SUPPORTED: " in message:
        return QueryFailed(message[message.index("NOT_SUPPORTED: ") :])
    if isinstance(error, duckdb.ConversionException) and "INVALID_CAST_ARGUMENT" not in message:
        return QueryFailed(f"INVALID_CAST_ARGUMENT: {message}")
    if any(word in message for word in known) or isinstance(
        error, duckdb.ConversionException | duckdb.OutOfRangeException
    ):
        return QueryFailed(message.partition("Error: ")[2] or message)
    return QueryFailed(f"NOT_SUPPORTED: embedded Athena could not run the query: {message}")


def _split(location: str) -> tuple[str, str]:
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    return bucket, prefix


def _destination(location: str) -> tuple[str, str]:
    bucket, prefix = _split(location)
    if not location.startswith("s3://") or not bucket or not prefix:
        raise QueryFailed(f"SYNTAX_ERROR: UNLOAD needs a location s3://bucket/prefix/, not {location!r}")
    if moto_seams.bucket_owner(bucket) is None:
        raise QueryFailed(f"HIVE_FILESYSTEM_ERROR: The specified bucket does not exist: {bucket}")
    return bucket, prefix if prefix.endswith("/") else f"{prefix}/"
