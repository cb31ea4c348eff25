"""A `foreachBatch` function that appends each micro-batch to Kafka logs, exactly once."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from sparklog.sink.config import SinkConfig
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.place.end_offsets import EndOffsets
from sparklog.sink.spark.worker_python import prepare_workers
from sparklog.sink.stage.frame_schema import select_columns
from sparklog.sink.stage.report import REPORT_DDL, StageReport
from sparklog.sink.stage.stage_rows import StagePlan, stage
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["LogSink"]


class LogSink:
    """Appends frames to the logs of a store.

    Opening takes the store's writer lock, recovers from a crash, and creates the named topics. Use it as
    `df.writeStream.foreachBatch(LogSink(...)).start()`, or `write` for a plain frame; `close` it at the end.

    A frame's columns are those of Spark's Kafka sink: `value`, and optionally `key`, `headers`, `topic`, `partition`
    and `timestamp` (timestamp, or bigint ms; the time of the micro-batch where the column is absent); with preserved
    offsets also `offset`.

    Args:
        store: folder of the store, made if it does not exist; or the address of a store of objects, such as
            `s3://bucket/archive`.
        topics: Kafka's properties by topic, and `partitions`.
        topic: topic of every row, for frames without a `topic` column.
        offsets: `assigned` or `preserved`.
        on_invalid: `fail`, or `quarantine` rows that can't become records.
        quarantine: folder of such rows, `<store>/quarantine` if not given.
        log_dirs: Kafka's `log.dirs`, relative to the store or absolute.
        cuts: `every` and `keep`, when states of the past are written that the store can be read as of, and how long
            they stay: by default an hour and 7 days; `{"every": "never"}` writes none.
        storage: what the storage of such an address needs, as `deltalake` takes it; by default the environment has it.
        take_lock_by_force: takes the store from a writer that can't be stopped; opening a store of objects always does.
        on_commit: called with the metrics of each micro-batch.

    Attributes:
        last_error: the error of the latest micro-batch; Spark passes on only its text.

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
        cuts: Mapping[str, object] | None = None,
        storage: Mapping[str, str] | None = None,
        take_lock_by_force: bool = False,
        on_commit: Callable[[MicroBatchMetrics], None] | None = None,
    ) -> None:
        config = SinkConfig.from_options(
            store,
            topics,
            topic=topic,
            offsets=offsets,
            on_invalid=on_invalid,
            quarantine=quarantine,
            log_dirs=log_dirs,
            cuts=cuts,
            storage=storage,
        )
        self._open(config, take_lock_by_force, on_commit)

    @classmethod
    def from_config(cls, config: SinkConfig, *, take_lock_by_force: bool = False) -> "LogSink":
        """Open the sink of settings that are built; raises as the class does."""
        sink = cls.__new__(cls)
        sink._open(config, take_lock_by_force, None)
        return sink

    def _open(
        self, config: SinkConfig, take_lock_by_force: bool, on_commit: Callable[[MicroBatchMetrics], None] | None
    ) -> None:
        self._config = config
        self._on_commit = on_commit
        self.last_error: Exception | None = None
        self._writer: StoreWriter | ObjectWriter
        if config.objects is None:
            self._writer = StoreWriter(config, SystemClock(), take_lock_by_force=take_lock_by_force)
        else:
            self._writer = ObjectWriter(config, config.objects, SystemClock())

    def __call__(self, frame: DataFrame, batch_id: int, *, end_offsets: EndOffsets | None = None) -> None:
        """Append one micro-batch of a streaming query; see `write` for `end_offsets`.

        Raises:
            LogStorageError: the micro-batch failed as a whole; nothing of it is visible.
        """
        query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query_id is None:
            raise InvalidConfigError("not called by a streaming query: call write() for a plain frame")
        self.write(frame, query_id=query_id, batch_id=batch_id, end_offsets=end_offsets)

    def write(
        self,
        frame: DataFrame,
        *,
        query_id: str,
        batch_id: int = 0,
        end_offsets: EndOffsets | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> MicroBatchMetrics:
        """Append a frame under the caller's ids; a second call with the same ids changes nothing.

        Args:
            frame: any frame with the sink's columns.
            query_id: names the writer of this sequence of frames.
            batch_id: grows by each frame of the sequence.
            end_offsets: with preserved offsets, the logs' ends after this frame: `{(topic, partition): offset}`. Other
                logs end right above their last record. Give the source's end offset where transaction markers, aborted
                or compacted records come last, or the log ends below its source.
            before_commit: called once the frame is read; its error fails the micro-batch, nothing of it is visible.

        Raises:
            LogStorageError: it failed as a whole; nothing of it is visible.
        """

        def run_stage(plan: StagePlan) -> list[StageReport]:
            reports = self._stage(frame, plan)
            if before_commit is not None:
                before_commit()
            return reports

        self.last_error = None
        try:
            metrics = self._writer.append(query_id, batch_id, run_stage, end_offsets)
        except Exception as error:
            self.last_error = error
            raise
        if self._on_commit is not None:
            self._on_commit(metrics)
        return metrics

    @property
    def owner(self) -> Owner:
        """The sink's hold of the store; an error once it is closed."""
        return self._writer.owner

    def close(self) -> None:
        """Complete indexes and checkpoint files, and release the store."""
        self._writer.close()

    def __enter__(self) -> "LogSink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _stage(self, frame: DataFrame, plan: StagePlan) -> list[StageReport]:
        """Run the staging tasks; return their reports in task order."""
        prepare_workers(frame.sparkSession.sparkContext)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return stage(plan, TaskContext.get().partitionId(), batches)

        rows = select_columns(frame, self._config).mapInArrow(run, REPORT_DDL).collect()
        return sorted((StageReport.from_row(row.asDict()) for row in rows), key=lambda report: report.task)
