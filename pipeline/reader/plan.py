"""Plans the Spark tasks of a read: splits large logs inside segments, so that all cores read, and joins small logs.

The driver reads only directories and indexes.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pyspark.sql.datasource import InputPartition

from sparklog.pipeline.places.stored_logs import StoredLog
from sparklog.pipeline.reader.index_marks import read_marks
from sparklog.pipeline.reader.log_bounds import LogBounds
from sparklog.pipeline.reader.options import ReaderOptions
from sparklog.sink.past.past_logs import PastLogs
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.log.files.segments import list_readable_segments
from sparklog.storage_core.log.producers.transactions import Isolation
from sparklog.storage_core.log.read.split_plan import OffsetRange, SegmentMarks, divide_evenly, plan_ranges
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LogSplit", "ReadTask", "plan_tasks"]

logger = logging.getLogger(__name__)

_ANY_BYTES = 1 << 62
_MOST_TASK_BYTES = 32 << 20
_LEAST_TASK_BYTES = 8 << 20
_FEW_TASKS = 8
_MANY_TASKS = 8192
_OPEN_BYTES = 1 << 20
"""Opening a log takes about as long as reading this many bytes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSplit:
    """Offsets of one log.

    Attributes:
        directory: of the log.
        log_start_offset, log_end_offset: of the log when the read was planned.
        last_stable_offset: end of `read_committed`; None for `read_uncommitted`.
        start_offset, end_offset: the range to read, without its end.
        stored: what a store of objects has of the range; the task copies it into a folder.
    """

    directory: str
    log: TopicPartition
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int | None
    start_offset: int
    end_offset: int
    isolation: Isolation
    stored: StoredLog | None = None


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """The splits that one Spark task reads, in order.

    Attributes:
        fail_on_data_loss: whether damaged or missing offsets fail the task, or are skipped and logged.
        past: the rows of an earlier state that the splits are of; None for the newest.
    """

    splits: tuple[LogSplit, ...]
    include_headers: bool
    fail_on_data_loss: bool
    past: PastLogs | None = None

    @property
    def logs(self) -> list[TopicPartition]:
        """The logs of the splits, each once."""
        return sorted({each.log for each in self.splits})


def plan_tasks(
    wanted: Mapping[TopicPartition, tuple[int, int]],
    bounds: Mapping[TopicPartition, LogBounds],
    options: ReaderOptions,
) -> list[ReadTask]:
    """Return the Spark tasks that together read the wanted offsets.

    Args:
        wanted: start and end of each log; empty ranges and offline logs are skipped.

    Returns:
        tasks in order of topic, partition and offset; none if there is nothing to read.

    Raises:
        StorageError: a directory or an index can't be read, and `failOnDataLoss` is true.
    """
    there = {log: each for log, each in wanted.items() if each[0] < each[1] and bounds[log].view.offline is None}
    splits, task_bytes = _plan_splits(there, bounds, options)
    is_packed = options.min_partitions is None and options.max_records_per_partition is None
    groups: list[list[LogSplit]] = []
    room = 0
    for split, size_bytes in splits:
        cost = size_bytes + _OPEN_BYTES
        if not is_packed or not groups or cost > room:
            groups.append([])
            room = task_bytes
        groups[-1].append(split)
        room -= cost
    return [ReadTask(tuple(each), options.include_headers, options.fail_on_data_loss) for each in groups]


def _plan_splits(
    wanted: Mapping[TopicPartition, tuple[int, int]],
    bounds: Mapping[TopicPartition, LogBounds],
    options: ReaderOptions,
) -> tuple[list[tuple[LogSplit, int]], int]:
    """Return splits with their sizes, and the number of bytes of a task."""
    marks = {log: _read_marks(bounds[log], *wanted[log], options) for log in sorted(wanted)}
    whole = [each for log, known in marks.items() for each in plan_ranges(known, *wanted[log], _ANY_BYTES)]
    task_bytes = _task_bytes(sum(each.size_bytes for each in whole), options.min_partitions)
    logs: list[LogBounds] = []
    ranges: list[OffsetRange] = []
    for log, known in marks.items():
        planned = plan_ranges(known, *wanted[log], task_bytes)
        logs += [bounds[log]] * len(planned)
        ranges += planned
    divided = divide_evenly(ranges, options.min_partitions or 0, options.max_records_per_partition)
    splits = [(_split(log, each), each.size_bytes) for log, parts in zip(logs, divided, strict=True) for each in parts]
    return splits, task_bytes


def _read_marks(bounds: LogBounds, start: int, end: int, options: ReaderOptions) -> list[SegmentMarks]:
    stored = bounds.view.stored
    if stored is not None:
        none = np.empty(0, np.int64)
        return [
            SegmentMarks(each.base_offset, each.size_bytes, none, none) for each in stored.between(start, end).extents
        ]
    try:
        return read_marks(list_readable_segments(bounds.view.directory), start, end, _LEAST_TASK_BYTES)
    except LogStorageError as error:
        if options.fail_on_data_loss:
            raise
        logger.warning("indexes can't be read: log=%s (%s)", bounds.view.directory, error)
        return []


def _task_bytes(total_bytes: int, min_partitions: int | None) -> int:
    """Return the number of log bytes of a task, a compromise between overhead of tasks and parallelism."""
    size = min(max(total_bytes // _FEW_TASKS, _LEAST_TASK_BYTES), _MOST_TASK_BYTES)
    size = max(size, total_bytes // _MANY_TASKS)
    return max(min(size, total_bytes // min_partitions), 1) if min_partitions else size


def _split(bounds: LogBounds, part: OffsetRange) -> LogSplit:
    stored = bounds.view.stored
    return LogSplit(
        directory=str(bounds.view.directory),
        log=bounds.log,
        log_start_offset=bounds.start_offset,
        log_end_offset=bounds.log_end_offset,
        last_stable_offset=bounds.last_stable_offset,
        start_offset=part.start_offset,
        end_offset=part.end_offset,
        isolation=bounds.isolation,
        stored=None if stored is None else stored.between(part.start_offset, part.end_offset),
    )
