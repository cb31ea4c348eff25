"""A `foreachBatch` function that appends each micro-batch to Kafka logs, exactly once."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from sink.config import SinkConfig, TopicConfig
from sink.derived_files import DerivedFiles
from sink.frame_schema import select_columns
from sink.ledger import Ledger
from sink.metrics import MicroBatchMetrics
from sink.partitioner import REASONS, StageTopic
from sink.place import Placement, Placer, StagedBatches
from sink.quarantine import publish_quarantine
from sink.stage import REPORT_DDL, StagePlan, stage
from sink.store import Store
from sink.topics import create_topics
from sink.writer_lock import WriterLock
from storage_core.clock import Clock, SystemClock
from storage_core.errors import (
    CommitStateUnknownError,
    InvalidConfigError,
    InvalidRecordError,
    LogStorageError,
    StorageError,
    WriterFencedError,
)
from storage_core.fault_points import reach
from storage_core.index.index_entries import max_entries
from storage_core.log.cut_back import has_segment_beyond, needs_cut_back, renew_active_segment
from storage_core.log.roll import ROLL_LIMITS, BackwardOffsetError
from storage_core.log_config import LogConfig
from storage_core.record.batch_encode import EncodeOptions
from storage_core.storage.local import storage_errors
from storage_core.topic_partition import TopicPartition

__all__ = ["LogSink"]

logger = logging.getLogger(__name__)


class LogSink:
    """Appends frames to the logs of a store.

    Opening takes the store's writer lock, undoes what a crash left, and creates the topics named. Use it as
    `df.writeStream.foreachBatch(LogSink(...)).start()`, or `write` for a plain frame; `close` it at the end.

    A frame's columns are those of Spark's Kafka sink: `value`, and optionally `key`, `headers`, `topic`, `partition`
    and `timestamp` (timestamp, or bigint ms; the time of the micro-batch where the column is absent); with preserved
    offsets also `offset`.

    Args:
        store: folder of the store, made if it does not exist.
        topics: Kafka's properties by topic, and `partitions`.
        topic: topic of every row, for frames without a `topic` column.
        offsets: `assigned` or `preserved`.
        on_invalid: `fail`, or `quarantine` rows that can't become records.
        quarantine: folder of such rows, `<store>/quarantine` if not given.
        log_dirs: Kafka's `log.dirs`, relative to the store or absolute.
        take_lock_by_force: takes the store from a writer that can't be stopped.
        on_commit: called with the metrics of each micro-batch.

    Attributes:
        last_error: what the latest micro-batch failed with; Spark passes on only its text.

    Raises:
        InvalidConfigError: every problem of the settings.
        StoreLockedError: another writer holds the store.
    """

    def __init__(
        self,
        store: str | Path,
        *,
        topics: Mapping[str, Mapping[str, object]],
        topic: str | None = None,
        offsets: str = "assigned",
        on_invalid: str = "fail",
        quarantine: str | Path | None = None,
        log_dirs: tuple[str, ...] = (),
        take_lock_by_force: bool = False,
        on_commit: Callable[[MicroBatchMetrics], None] | None = None,
    ) -> None:
        self._config = SinkConfig.from_options(
            store, topics, topic=topic, offsets=offsets, on_invalid=on_invalid, quarantine=quarantine, log_dirs=log_dirs
        )
        self._on_commit = on_commit
        self._clock: Clock = SystemClock()
        self.last_error: Exception | None = None
        with storage_errors(self._config.store):
            self._config.store.mkdir(parents=True, exist_ok=True)
        acquire = WriterLock.take_by_force if take_lock_by_force else WriterLock.acquire
        self._lock: WriterLock | None = acquire(self._config.store / "writer.lock")
        try:
            self._open(self._lock, take_lock_by_force)
        except BaseException:
            self._lock.release()
            raise

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Append one micro-batch of a streaming query.

        Raises:
            LogStorageError: the micro-batch failed as a whole; nothing of it is visible.
        """
        query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query_id is None:
            raise InvalidConfigError("no streaming query runs this: call write() for a plain frame")
        self.write(frame, query_id=query_id, batch_id=batch_id)

    def write(self, frame: DataFrame, *, query_id: str, batch_id: int = 0) -> MicroBatchMetrics:
        """Append a frame under an id of the caller's; a second call with the same ids changes nothing.

        Args:
            frame: any frame with the sink's columns.
            query_id: names the writer of this sequence of frames.
            batch_id: grows by each frame of the sequence.

        Raises:
            LogStorageError: it failed as a whole; nothing of it is visible.
        """
        self.last_error = None
        try:
            metrics = self._write(frame, query_id, batch_id)
        except Exception as error:
            self.last_error = error
            raise
        if self._on_commit is not None:
            self._on_commit(metrics)
        return metrics

    def close(self) -> None:
        """Bring indexes and checkpoint files up to date, and give the store back."""
        if self._lock is None:
            return
        try:
            self._lock.check()
            self._placer.close()
            self._derived.write(self._clock.now_ms())
            self._store.sweep_staging()
        except WriterFencedError as error:
            logger.warning("%s", error)
        finally:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> "LogSink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, lock: WriterLock, by_force: bool) -> None:
        config = self._config
        self._store = Store.find_or_create(config.store, config.log_dirs)
        self._ledger = Ledger.open_for_writing(self._store.ledger_path)
        if by_force:
            self._ledger.fence()  # from here on the earlier writer can't commit
        self._store.sweep_staging()
        self._store.prepare_log_dirs(config.log_dirs)
        create_topics(self._store, self._ledger, config, self._clock.now_ms())
        rows = self._ledger.rows
        directories = [self._store.log_path(state) for state in self._ledger.states().values()]
        limits = np.zeros(len(rows), ROLL_LIMITS)
        for log, row in rows.items():
            topic = config.topics.get(log.topic)
            limits[row] = _roll_limits(topic.log if topic else LogConfig())
        self._placer = Placer(self._ledger, lock, self._clock, directories, limits, config.offsets == "preserved")
        self._undo_crash(directories, by_force)
        self._derived = DerivedFiles(self._store, self._ledger)
        self._derived.write(self._clock.now_ms())
        self._stage_topics, self._log_rows = self._number_logs()

    def _undo_crash(self, directories: list[Path], by_force: bool) -> None:
        """Cut every log back to the ledger where anything lies behind its end."""
        preserved = self._config.offsets == "preserved"
        torn = []
        for row, directory in enumerate(directories):
            end = self._placer.committed_end(row)
            if by_force:
                renew_active_segment(directory, end, self._placer.check_owner)
            elif needs_cut_back(directory, end) or (preserved and has_segment_beyond(directory, end)):
                torn.append(row)
        self._placer.undo(np.array(torn, np.int64))

    def _number_logs(self) -> tuple[tuple[StageTopic, ...], npt.NDArray[np.int64]]:
        """Give each log of this sink an id without gaps: topic by topic, partition by partition."""
        topics: list[StageTopic] = []
        rows: list[int] = []
        for topic in self._config.topics.values():
            topics.append(_stage_topic(topic, len(rows)))
            rows.extend(self._ledger.rows[TopicPartition(topic.name, number)] for number in range(topic.partitions))
        return tuple(topics), np.array(rows, np.int64)

    def _write(self, frame: DataFrame, query_id: str, batch_id: int) -> MicroBatchMetrics:
        if self._lock is None:
            raise InvalidConfigError(f"the sink is closed: store={self._config.store}")
        started = time.monotonic()
        known = self._ledger.transaction_version(query_id)
        if known is not None and known >= batch_id:
            logger.info("Micro-batch was committed before query_id=%s batch_id=%d", query_id, batch_id)
            return MicroBatchMetrics(query_id=query_id, batch_id=batch_id, replayed=True)
        directory = self._store.staging_path / query_id / str(batch_id)
        selected = select_columns(frame, self._config)
        try:
            self._lock.check()
            shutil.rmtree(directory, ignore_errors=True)
            reports = self._stage(selected, directory)
            staged_at = time.monotonic()
            staged = self._collect_batches(reports, directory)
            counts = self._commit(staged, reports, directory, query_id, batch_id)
        except WriterFencedError:
            raise  # the store is somebody else's: touch nothing
        except CommitStateUnknownError:
            self._abandon()
            raise
        except Exception:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._derived.write_if_due(self._clock.now_ms())
        reach("clean.derived")
        shutil.rmtree(directory, ignore_errors=True)
        reach("clean.staging")
        now = time.monotonic()
        metrics = MicroBatchMetrics(
            query_id=query_id,
            batch_id=batch_id,
            records=sum(report["records"] for report in reports),
            quarantined=sum(report["quarantined"] for report in reports),
            bytes=int(staged.size.sum()) if staged else 0,
            stage_ms=int((staged_at - started) * 1000),
            total_ms=int((now - started) * 1000),
            logs=counts["logs"],
            rolls=counts["rolls"],
            place_ms=counts["place_ms"],
            sync_ms=counts["sync_ms"],
            commit_ms=counts["commit_ms"],
        )
        logger.info("%s", metrics)
        return metrics

    def _stage(self, frame: DataFrame, directory: Path) -> list[dict[str, Any]]:
        """Run the staging tasks; return their reports in the order of their numbers."""
        config = self._config
        now_ms = self._clock.now_ms()
        names = [topic.name for topic in self._stage_topics]
        plan = StagePlan(
            directory=str(directory),
            topics=tuple(_with_append_time(each, config.topics[each.name].log, now_ms) for each in self._stage_topics),
            fixed_topic=names.index(config.topic) if config.topic is not None else None,
            preserved=config.offsets == "preserved",
            quarantine=config.on_invalid == "quarantine",
            now_ms=now_ms,
            buffer_bytes=config.stage_buffer_bytes,
        )

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return stage(plan, TaskContext.get().partitionId(), batches)

        rows = frame.mapInArrow(run, REPORT_DDL).collect()
        reports = sorted((row.asDict() for row in rows), key=lambda report: report["task"])
        for report in reports:
            if report["failure"]:
                raise StorageError(f"staging failed: {report['failure']} task={report['task']}")
        for report in reports:
            if report["invalid_row"] is not None:
                raise InvalidRecordError(_describe_invalid(report))
        return reports

    def _collect_batches(self, reports: list[dict[str, Any]], directory: Path) -> StagedBatches | None:
        """Put the reports of all tasks into columns, sorted by log, then task, then position."""
        tables = [pa.ipc.open_stream(report["batches"]).read_all() for report in reports]
        files = [directory / report["file"] for report in reports if report["file"]]
        counts = [table.num_rows for table, report in zip(tables, reports, strict=True) if report["file"]]
        if not sum(counts):
            return None
        table = pa.concat_tables(tables)
        row = self._log_rows[table.column("log").to_numpy()]
        order = np.argsort(row, kind="stable")
        names = ("position", "size", "records_count", "last_offset_delta", "base_offset", "max_timestamp")
        columns = {name: table.column(name).to_numpy().astype(np.int64)[order] for name in names}
        file = np.repeat(np.arange(len(files)), counts)[order]
        return StagedBatches(files=files, row=row[order], file=file, **columns)

    def _commit(
        self, staged: StagedBatches | None, reports: list[dict[str, Any]], directory: Path, query_id: str, batch_id: int
    ) -> dict[str, int]:
        """Place what was staged and make it count; a micro-batch without records is recorded all the same."""
        started = time.monotonic()
        quarantined = [directory / report["quarantine"] for report in reports if report["quarantine"]]
        placement: Placement | None = None
        try:
            if staged is not None:
                placement = self._placer.place(staged)
                placed = time.monotonic()
                self._placer.sync(placement.written)
            else:
                placed = started
            if quarantined:
                publish_quarantine(quarantined, self._config.quarantine / query_id / str(batch_id))
            synced = time.monotonic()
            rows = placement.rows if placement else np.zeros(0, np.int64)
            self._ledger.update(rows, placement.values if placement else {}, query_id, batch_id)
        except BackwardOffsetError as error:
            raise InvalidRecordError(self._describe_backward(staged, error.batch)) from error
        except (StorageError, OSError):
            self._undo(staged)
            raise
        if placement is not None:
            self._placer.install(placement)
        return {
            "logs": len(rows),
            "rolls": placement.rolls if placement else 0,
            "place_ms": int((placed - started) * 1000),
            "sync_ms": int((synced - placed) * 1000),
            "commit_ms": int((time.monotonic() - synced) * 1000),
        }

    def _abandon(self) -> None:
        """Give the store up as it is: nobody knows what the ledger says, so only a new start may touch the logs."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _undo(self, staged: StagedBatches | None) -> None:
        """Cut the touched logs back, unless the store is somebody else's by now."""
        if staged is None or self._lock is None:
            return
        try:
            self._lock.check()
            self._placer.undo(np.unique(staged.row))
        except LogStorageError as error:
            logger.error("An unfinished micro-batch was not undone, the next start will: %s", error)

    def _describe_backward(self, staged: StagedBatches | None, batch: int) -> str:
        if staged is None:
            return "a preserved offset goes back or repeats"
        state = self._ledger.state(int(staged.row[batch]))
        return (
            f"invalid row: column 'offset' goes back or repeats: topic={state.topic} partition={state.partition}"
            f" offset={staged.base_offset[batch]} log_end_offset={state.log_end_offset}"
            f" row=first of staged batch {batch}"
        )


def _describe_invalid(report: dict[str, Any]) -> str:
    column, what = REASONS[report["invalid_reason"]]
    topic = "" if report["invalid_topic"] is None else f" topic={report['invalid_topic']}"
    partition = "" if report["invalid_partition"] is None else f" partition={report['invalid_partition']}"
    position = f" row={report['invalid_row']} of input split {report['task']}"
    return f"invalid row: column '{column}' {what}:{topic}{partition}{position}"


def _roll_limits(config: LogConfig) -> tuple[int, ...]:
    return (
        config.segment_bytes,
        min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms,
        config.index_interval_bytes,
        max_entries(config.segment_index_bytes, 8),
        max_entries(config.segment_index_bytes, 12),
        min(config.segment_jitter_ms, config.segment_ms),
    )


def _stage_topic(topic: TopicConfig, first_log: int) -> StageTopic:
    log = topic.log
    options = EncodeOptions(
        codec=log.codec,
        level=log.compression_level,
        batch_size_bytes=log.batch_size,
        max_message_bytes=min(log.max_message_bytes, log.segment_bytes),
    )
    return StageTopic(
        name=topic.name, first_log=first_log, partitions=topic.partitions, options=options, needs_key=log.is_compacted
    )


def _with_append_time(topic: StageTopic, log: LogConfig, now_ms: int) -> StageTopic:
    """Complete a topic with what depends on the time of the micro-batch."""
    if log.message_timestamp_type == "LogAppendTime":
        return replace(topic, options=replace(topic.options, log_append_time_ms=now_ms))
    newest = now_ms + log.message_timestamp_after_max_ms
    return replace(
        topic, oldest_ms=max(0, now_ms - log.message_timestamp_before_max_ms), newest_ms=min(newest, 2**63 - 1)
    )
