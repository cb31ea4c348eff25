"""On an executor: encodes rows into batches in one staging file per task attempt.

Tasks are independent, and each attempt has its own file name. After a crash only orphans in `staging/` remain: only the
driver writes logs.
"""

import gc
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.sink.stage.diverted_file import DivertedFile
from sparklog.sink.stage.group_rows import LogGroups, group_rows
from sparklog.sink.stage.invalid_rows import InvalidReason, InvalidRow
from sparklog.sink.stage.partitioner import Routed, Router, StageTopic, topic_name
from sparklog.sink.stage.refused_rows import backward_rows, offset_column, payload_sizes, too_large_rows
from sparklog.sink.stage.report import BATCHES_SCHEMA, StageReport
from sparklog.sink.stage.staged_output import StagedFile, StagedObject, StagedOutput
from sparklog.storage_core.errors import LogStorageError, RecordTooLargeError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.record.v2.batch_encode import EncodedBatches, RecordColumns, encode_batches

__all__ = ["StagePlan", "freeze_garbage", "stage"]

_FLUSH_BATCHES_PER_LOG = 4
_FREEZE_TASKS = 2
_tasks_done = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """Input of a staging task.

    Attributes:
        topics: every topic; a log's id is its topic's `first_log` plus its partition.
        fixed_topic: index of the topic of all rows, None if a column names it.
        preserved: whether offsets come from the `offset` column.
        quarantine: whether invalid rows are diverted.
        now_ms: timestamp of rows without one, and append time.
        last_offsets: (logs,) newest preserved offset of each log.
        split_floors: by task, by log: the newest preserved offset of earlier tasks, if needed.
        objects: storage of a store of objects, `directory` is a folder in it; None for a folder of this machine.
    """

    directory: str
    topics: tuple[StageTopic, ...]
    fixed_topic: int | None
    preserved: bool
    quarantine: bool
    now_ms: int
    buffer_bytes: int
    batch_id: int = 0
    last_offsets: tuple[int, ...] = ()
    split_floors: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    objects: StoragePlace | None = None

    @property
    def logs(self) -> int:
        """Number of logs."""
        return sum(each.partitions for each in self.topics)


def stage(plan: StagePlan, task: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Encode the rows of one task; yield its report as one row of `REPORT_DDL`.

    The input is drained even after a problem: Spark kills a worker that leaves input unread, and the next task pays for
    a new one.
    """
    run = _StageTask(plan, task)
    rows = iter(batches)
    try:
        for batch in rows:
            run.add(batch)
            if run.has_failed:
                break
        run.finish()
    except OSError as error:
        run.failure = f"{error.strerror or error}: path={error.filename or plan.directory}"
    except LogStorageError as error:
        run.failure = str(error)
    for _ in rows:
        pass
    run.close()
    reach("stage.reported")
    yield run.report()
    freeze_garbage()


class _StageTask:
    """State of one task attempt: rows in memory, batches on the disk."""

    def __init__(self, plan: StagePlan, task: int) -> None:
        self._plan = plan
        self._task = task
        self._router = Router(plan.topics, plan.fixed_topic, plan.now_ms, plan.batch_id + task)
        self._name = f"{task:05}-{uuid.uuid4().hex}"
        self._output: StagedOutput | None = None
        self._position = 0
        self._rows_seen = 0
        self._records = 0
        self._held: list[tuple[pa.RecordBatch, Routed, int]] = []
        self._held_bytes = 0
        self._seen_logs = np.zeros(plan.logs, np.bool_)
        self._last_offset = np.array(plan.last_offsets, np.int64)
        for log, floor in plan.split_floors.get(task, {}).items():
            self._last_offset[log] = max(self._last_offset[log], floor)
        self._reported: list[pa.RecordBatch] = []
        self._quarantine: DivertedFile | None = None
        self._quarantined = 0
        self._problem: InvalidRow | None = None
        self.failure: str | None = None

    @property
    def has_failed(self) -> bool:
        """Whether an invalid row stopped the task."""
        return self._problem is not None

    def add(self, batch: pa.RecordBatch) -> None:
        """Route and hold a batch of rows; encode the held ones if they are enough."""
        if not batch.num_rows:
            return
        routed = self._router.route(batch)
        if routed.reason.any():
            if not self._plan.quarantine:
                self._stop_at_problem(batch, routed)
                return
            self._divert(batch, routed, self._rows_seen)
        self._held.append((batch, routed, self._rows_seen))
        self._rows_seen += batch.num_rows
        self._held_bytes += batch.nbytes
        self._seen_logs[routed.log[routed.log >= 0]] = True
        largest_batch = max(each.options.batch_size_bytes for each in self._plan.topics)
        enough = int(self._seen_logs.sum()) * largest_batch * _FLUSH_BATCHES_PER_LOG
        if self._plan.objects is not None:
            enough = self._plan.buffer_bytes  # each flush of a log is a range that its readers ask for
        if self._held_bytes >= min(enough, self._plan.buffer_bytes):
            self._flush()

    def finish(self) -> None:
        """Encode the rest and close the files."""
        if self._held and not self.has_failed:
            self._flush()
        if self._output is not None and not self.has_failed:
            self._output.finish()
        reach("stage.written")
        if self._quarantine is not None:
            self._quarantine.finish()

    def close(self) -> None:
        """Close the files; a failed task leaves none."""
        if not self.has_failed and not self.failure:
            return
        if self._output is not None:
            self._output.discard()
        if self._quarantine is not None:
            self._quarantine.discard()

    def report(self) -> pa.RecordBatch:
        """Return the task's one row."""
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, BATCHES_SCHEMA) as writer:
            for each in self._reported:
                writer.write_batch(each)
        report = StageReport(
            task=self._task,
            file=self._path.name if self._output is not None else None,
            batches=stream.getvalue().to_pybytes(),
            records=self._records,
            quarantine=self._quarantine_path.name if self._quarantined else None,
            quarantined=self._quarantined,
            invalid=self._problem,
            failure=self.failure,
        )
        return report.to_batch()

    @property
    def _path(self) -> Path:
        return Path(self._plan.directory) / f"{self._name}.batches"

    @property
    def _quarantine_path(self) -> Path:
        return Path(self._plan.directory) / f"{self._name}.parquet"

    def _stop_at_problem(self, batch: pa.RecordBatch, routed: Routed) -> None:
        """Note the first invalid row; the encoding of earlier rows may find one before it."""
        first = int(np.argmax(routed.reason != 0))
        before = Routed(routed.log[:first], routed.timestamp[:first], routed.reason[:first])
        if first:
            self._held.append((batch.slice(0, first), before, self._rows_seen))
        if self._held:
            self._flush()
        if not self.has_failed:
            self._note(batch, routed, first, self._rows_seen)

    def _divert(self, batch: pa.RecordBatch, routed: Routed, first_row: int) -> None:
        """Write the invalid rows to the quarantine file."""
        rows = np.flatnonzero(routed.reason)
        reasons = [f"{each.column} {each.problem}" for each in map(InvalidReason, routed.reason[rows].tolist())]
        columns = [
            *batch.take(pa.array(rows)).columns,
            pa.array(reasons, pa.string()),
            pa.array(rows + first_row, pa.int64()),
            pa.array(np.full(len(rows), self._plan.batch_id), pa.int64()),
        ]
        names = [*batch.schema.names, "reason", "row", "batch_id"]
        table = pa.Table.from_arrays(columns, names=names)
        if self._quarantine is None:
            self._quarantine = DivertedFile(self._quarantine_path, self._plan.objects, table.schema)
        self._quarantine.write(table)
        self._quarantined += len(rows)

    def _note(self, batch: pa.RecordBatch, routed: Routed, row: int, first_row: int) -> None:
        topic = self._plan.topics[self._plan.fixed_topic].name if self._plan.fixed_topic is not None else None
        if topic is None:
            topic = topic_name(batch.column("topic"), row)
        log = int(routed.log[row])
        owners = (each.first_log for each in reversed(self._plan.topics) if 0 <= each.first_log <= log)
        partition = next((log - first_log for first_log in owners), None)
        if partition is None:
            partition = self._router.partition_of(batch.slice(row, 1))
        self._problem = InvalidRow(
            row=first_row + row, reason=InvalidReason(routed.reason[row]), topic=topic, partition=partition
        )

    def _flush(self) -> None:
        """Encode all held rows, except those that are too large or out of order."""
        batch, routed, first_row = self._combine_held()
        while True:
            groups = group_rows(routed.log, self._plan.logs)
            bad, reason = self._backward_rows(batch, groups), InvalidReason.OFFSET_BACKWARD
            if not len(bad):
                try:
                    encoded = self._encode(batch, routed, groups)
                    break
                except RecordTooLargeError as error:
                    bad, reason = self._too_large_rows(batch, routed, error.row), InvalidReason.RECORD_TOO_LARGE
            routed = Routed(routed.log.copy(), routed.timestamp, np.zeros_like(routed.reason))
            routed.reason[bad] = reason
            if not self._plan.quarantine:
                self._note(batch, routed, int(bad[0]), first_row)
                return
            self._divert(batch, routed, first_row)
            routed.log[bad] = -1
        for each, numbers in encoded:
            self._write(each, numbers)
        if self._plan.preserved:
            self._last_offset[groups.logs] = offset_column(batch)[groups.rows[groups.starts[1:] - 1]]

    def _combine_held(self) -> tuple[pa.RecordBatch, Routed, int]:
        held, self._held, self._held_bytes = self._held, [], 0
        if len(held) == 1:
            return held[0]
        table = pa.Table.from_batches([batch for batch, _, _ in held]).combine_chunks()
        routed = Routed(*(np.concatenate([getattr(each, name) for _, each, _ in held]) for name in Routed.__slots__))
        return table.to_batches()[0], routed, held[0][2]

    def _backward_rows(self, batch: pa.RecordBatch, groups: LogGroups) -> npt.NDArray[np.int64]:
        if not self._plan.preserved:
            return groups.rows[:0]
        return backward_rows(offset_column(batch), groups, self._last_offset)

    def _too_large_rows(self, batch: pa.RecordBatch, routed: Routed, known: int) -> npt.NDArray[np.int64]:
        columns = _record_columns(batch, routed.timestamp, self._plan.preserved)
        sizes, bad = payload_sizes(batch), [np.array([known])]
        for topic in self._plan.topics:
            mine = np.flatnonzero((routed.log >= topic.first_log) & (routed.log < topic.first_log + topic.partitions))
            bad.append(too_large_rows(columns, mine, sizes, topic.options))
        return np.unique(np.concatenate(bad))

    def _encode(
        self, batch: pa.RecordBatch, routed: Routed, groups: LogGroups
    ) -> list[tuple[EncodedBatches, npt.NDArray[np.int64]]]:
        """Encode topic by topic: the logs of a topic share their settings, and their rows are adjacent."""
        columns = _record_columns(batch, routed.timestamp, self._plan.preserved)
        encoded = []
        for topic in self._plan.topics:
            low, high = np.searchsorted(groups.logs, [topic.first_log, topic.first_log + topic.partitions])
            if low == high:
                continue
            begin, end = groups.starts[low], groups.starts[high]
            starts = groups.starts[low : high + 1] - begin
            result = encode_batches(columns, groups.rows[begin:end], starts, topic.options)
            encoded.append((result, groups.logs[low:high]))
        return encoded

    def _write(self, encoded: EncodedBatches, logs: npt.NDArray[np.int64]) -> None:
        if self._output is None:
            objects = self._plan.objects
            self._output = StagedFile(self._path) if objects is None else StagedObject(objects, str(self._path))
        self._output.write(memoryview(encoded.data.data))
        columns = [
            logs[encoded.group],
            encoded.position + self._position,
            encoded.size,
            encoded.records_count,
            encoded.last_offset_delta,
            encoded.base_offset,
            encoded.max_timestamp,
        ]
        arrays = [
            pa.array(np.asarray(column, field.type.to_pandas_dtype()), field.type)
            for column, field in zip(columns, BATCHES_SCHEMA, strict=True)
        ]
        self._reported.append(pa.RecordBatch.from_arrays(arrays, schema=BATCHES_SCHEMA))
        self._position += len(encoded.data)
        self._records += int(encoded.records_count.sum())


def _record_columns(batch: pa.RecordBatch, timestamp: npt.NDArray[np.int64], preserved: bool) -> RecordColumns:
    names = batch.schema.names
    return RecordColumns(
        key=batch.column("key") if "key" in names else None,
        value=batch.column("value"),
        timestamp=timestamp,
        headers=batch.column("headers") if "headers" in names else None,
        offset=offset_column(batch) if preserved else None,
    )


def freeze_garbage() -> None:
    """Hide all imported objects from the garbage collector, at the end of a worker's first two tasks.

    PySpark's worker runs a full collection after each task: 35 ms with pandas, numpy and pyarrow loaded.
    """
    global _tasks_done  # noqa: PLW0603
    if _tasks_done < _FREEZE_TASKS:
        _tasks_done += 1
        gc.collect()
        gc.freeze()
