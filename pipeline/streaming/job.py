"""Runs the query of `sparklog stream`: starts Spark, opens the sink, and stops after the running micro-batch."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.settings.stream_settings import Settings, TriggerSettings
from sparklog.pipeline.spark.session import running_session
from sparklog.pipeline.stop_request import StopRequest
from sparklog.pipeline.streaming.check_objects import check_objects
from sparklog.pipeline.streaming.checkpoint_check import check_checkpoint
from sparklog.pipeline.streaming.checkpoint_sync import CheckpointSync, drop_torn
from sparklog.pipeline.streaming.metrics import StreamMetrics
from sparklog.pipeline.streaming.progress import ProgressLines
from sparklog.pipeline.streaming.source_ends import SourceEnds, find_source_ends
from sparklog.pipeline.streaming.sources import needs_jars, open_source
from sparklog.pipeline.streaming.transforms import select_records
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.log_sink import LogSink
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.opening.finish_truncation import may_have_truncations
from sparklog.sink.spark.errors import SPARK_ERRORS, explain
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import wait_until
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError

__all__ = ["look_at_store", "run_stream", "spark_session"]

logger = logging.getLogger(__name__)

_POLL_S = 0.2
_COMMIT_WAIT_S = 10.0


def run_stream(
    settings: Settings,
    report: Callable[[str], None],
    *,
    take_lock_by_force: bool = False,
    figures: StreamMetrics | None = None,
) -> None:
    """Stream the source into the store until the trigger is done, a signal comes, or the query fails.

    Args:
        report: gets one line per micro-batch and one at the end.
        take_lock_by_force: takes the store from a writer that does not stop.

    Raises:
        LogStorageError: the query failed; no record of the failed micro-batch is visible.
    """
    if settings.objects is None:
        look_at_store(Path(settings.store), take_lock_by_force)
    with StopRequest(report, "micro-batch") as stop, spark_session(settings) as spark:
        stop.install()
        frame = select_records(open_source(spark, settings.source), settings.records)
        lines = ProgressLines(report, figures)
        with _open_sink(settings, lines, take_lock_by_force) as sink:
            if figures is not None:
                figures.begin()
            gate = _Gate(sink, CheckpointSync(settings.checkpoint), find_source_ends(settings))
            if not stop.requested:
                query = _start(frame, gate, settings)
                _run(query, gate, stop, lines)
        ending = "stopped" if stop.requested else "done"
        report(f"{ending}: {lines.records:,} records in {lines.batches:,} micro-batches")


class _Gate:
    """The `foreachBatch` function: passes micro-batches to the sink, one at a time, until it is closed.

    Stopping a query does not end its running Python function, so close the gate before the sink.
    """

    def __init__(self, sink: LogSink, checkpoint: CheckpointSync, source_ends: SourceEnds) -> None:
        self._sink = sink
        self._checkpoint = checkpoint
        self._source_ends = source_ends
        self._lock = threading.Lock()
        self._is_closed = False
        self.last_batch_id: int | None = None
        self.has_refused = False

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._is_closed:
                self.has_refused = True
                raise _StoppedError  # returning would tell Spark that the rows are written
            self._checkpoint.sync()
            frame.sparkSession.sparkContext.setJobDescription(f"sparklog: micro-batch {batch_id}")
            self._sink(frame, batch_id, end_offsets=self._source_ends(frame.sparkSession, batch_id))
            self.last_batch_id = batch_id

    def close(self) -> None:
        """Wait for the running micro-batch; refuse all others."""
        with self._lock:
            self._is_closed = True

    @property
    def error(self) -> Exception | None:
        """The sink's error; Spark passes on only its text."""
        return self._sink.last_error


class _StoppedError(Exception):
    """The query is stopping: this micro-batch runs at the next start."""


def look_at_store(root: Path, take_lock_by_force: bool) -> None:
    """Before Spark starts, refuse a store that another writer holds, or that a newer release wrote.

    The sink's opening checks again, under its lock.
    """
    if (root / "store.properties").exists():
        store = Store.find(root)
        if take_lock_by_force or may_have_truncations(store):
            refuse_leased(root)  # both take the maintenance lock
    if not take_lock_by_force and (root / "writer.lock").exists():
        WriterLock.acquire(root / "writer.lock").release()


@contextmanager
def spark_session(settings: Settings) -> Iterator[SparkSession]:
    """Start Spark with a settings file's settings, and stop it at the end; or join the platform's session."""
    configured = {"spark.app.name": _name(settings), **settings.spark}
    with running_session(configured, with_jars=needs_jars(settings.source)) as spark:
        yield spark


def _open_sink(settings: Settings, lines: ProgressLines, take_lock_by_force: bool) -> LogSink:
    if settings.objects is not None:
        check_objects(settings, settings.objects)  # before another writer is fenced
    elif not (Path(settings.store) / "store.properties").exists():
        check_checkpoint(settings.checkpoint, settings.store, lambda _query_id: None)
    sink = LogSink(
        settings.store,
        topics=settings.topics,
        topic=settings.records.fixed_topic,
        offsets=settings.offsets,
        on_invalid=settings.records.on_invalid,
        quarantine=settings.quarantine,
        log_dirs=settings.log_dirs,
        cuts=settings.cuts,
        storage=settings.storage,
        take_lock_by_force=take_lock_by_force,
        on_commit=lines.add,
    )
    try:
        ledger: Ledger | ObjectLedger
        if settings.objects is None:
            ledger = Ledger.open(Store.find(Path(settings.store)).ledger_path)
        else:
            ledger = ObjectLedger.open(settings.objects)
        drop_torn(settings.checkpoint, ledger.transaction_version)
        check_checkpoint(settings.checkpoint, settings.store, ledger.transaction_version)
    except BaseException:
        sink.close()
        raise
    return sink


def _start(frame: DataFrame, gate: _Gate, settings: Settings) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(gate).option("checkpointLocation", settings.checkpoint)
    writer = writer.queryName(_name(settings))
    try:
        return writer.trigger(**_trigger(settings.trigger)).start()
    except SPARK_ERRORS as error:
        raise InvalidConfigError(f"Spark refuses the query: {explain(error)}") from error


def _name(settings: Settings) -> str:
    """Return the name of the application and its query in Spark's UI."""
    return f"sparklog stream {Path(settings.store).absolute().name}"


def _trigger(trigger: TriggerSettings) -> dict[str, bool | str]:
    return {"availableNow": True} if trigger.available_now else {"processingTime": trigger.processing_time}


def _run(query: StreamingQuery, gate: _Gate, stop: StopRequest, lines: ProgressLines) -> None:
    """Wait for the query's end, and report its progress."""
    try:
        while not query.awaitTermination(_POLL_S) and not stop.requested:
            if lines.are_waiting:
                lines.flush(query.recentProgress)
        if stop.requested:
            _stop(query, gate)
    except SPARK_ERRORS as error:
        if not _is_stopped(gate, stop):
            raise _translate(error, gate) from error
    finally:
        gate.close()
        _flush_rest(lines, query)


def _stop(query: StreamingQuery, gate: _Gate) -> None:
    """Wait until the running micro-batch is done and Spark has recorded it, then stop the query.

    A micro-batch that Spark has not recorded would run again at the next start; the ledger makes that harmless.
    """
    gate.close()

    def is_recorded() -> bool:
        if not query.isActive or not query.status["isTriggerActive"]:
            return True
        progress, last = query.lastProgress, gate.last_batch_id
        return last is not None and progress is not None and bool(progress.batchId >= last)

    wait_until(is_recorded, _COMMIT_WAIT_S, 0.05)
    query.stop()


def _is_stopped(gate: _Gate, stop: StopRequest) -> bool:
    """Whether the query ended because the closed gate refused a micro-batch."""
    return stop.requested and gate.error is None and gate.has_refused


def _translate(error: Exception, gate: _Gate) -> LogStorageError:
    cause = gate.error or error
    if isinstance(cause, LogStorageError):
        return cause
    if gate.error is None and not isinstance(error, PySparkException):
        return LogStorageError(f"Spark was lost: {explain(error)}; uncommitted rows are read again at the next start")
    return LogStorageError(f"the query failed: {explain(cause)}")


def _flush_rest(lines: ProgressLines, query: StreamingQuery) -> None:
    try:
        recent = query.recentProgress if lines.are_waiting else []
    except SPARK_ERRORS as error:
        logger.debug("Spark reports no progress: %s", error)
        recent = []
    lines.flush(recent, is_last=True)
