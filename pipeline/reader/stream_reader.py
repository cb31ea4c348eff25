"""`readStream.format("kafka-log")`: follows logs as Spark's Kafka connector follows a topic.

Offsets are the connector's: `{"topic": {"0": n}}`, where n is the next offset to read. A micro-batch is a range of
offsets, so running it again reads the same records.

Spark does not record the start of a query: if the query fails in its first micro-batch, Spark asks again, and a start
at the end of the logs would be higher. So the first micro-batch of such a query is empty, and Spark records its end.

Source: Spark's Structured Streaming + Kafka Integration Guide; KafkaMicroBatchStream.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sparklog.pipeline.reader.deleted_records import has_deleted_records
from sparklog.pipeline.reader.log_bounds import LogBounds, extend_bounds, find_bounds, report_data_loss, resolve_starts
from sparklog.pipeline.reader.offset_limits import LATEST
from sparklog.pipeline.reader.options import ReaderOptions
from sparklog.pipeline.reader.plan import plan_tasks
from sparklog.pipeline.reader.rate_limit import count_new_offsets, limit_offsets
from sparklog.pipeline.reader.read_task import read_task
from sparklog.pipeline.reader.store_watch import StoredWatch, StoreWatch
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["KafkaLogStreamReader"]

logger = logging.getLogger(__name__)

_Offsets = dict[TopicPartition, int]
_Json = dict[str, dict[str, int]]


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads them on executors.

    Args:
        clock: for the delay of small micro-batches.
    """

    def __init__(self, options: ReaderOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._watch: StoreWatch | StoredWatch
        if isinstance(options.path, StoragePlace):
            self._watch = StoredWatch(options, options.path, self._clock)
        else:
            self._watch = StoreWatch(options, options.path, self._clock)
        self._movable_start: _Json | None = None
        self._was_asked = False
        self._was_replayed = False
        self._target: _Offsets | None = None
        self._latest: _Offsets = {}
        self._last_trigger_ms: int | None = None

    def initialOffset(self) -> _Json:  # noqa: N802
        """Return the start offsets of a new query."""
        starting = self._options.starting
        start = _to_json(resolve_starts(self._bounds(), self._options))
        if starting.has(LATEST) or (starting.is_time and self._options.no_match_starts_latest):
            self._movable_start = start
        logger.info("a new query starts: offsets=%s", start)
        return start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit in the options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the present ends of the logs: the query ends there."""
        bounds = self._bounds()
        self._target = _ends(bounds, {log: each.start_offset for log, each in bounds.items()})

    def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:  # noqa: N802
        """Return the end of the next micro-batch; its start if there is nothing to do yet."""
        is_first, self._was_asked = not self._was_asked, True
        seen = _from_json(start)
        bounds = extend_bounds(self._bounds(), seen, self._options)
        begin, ends = _starts(seen, bounds), _ends(bounds, seen)
        self._latest = ends if self._target is None else _ends_at(self._target, ends, begin)
        if is_first and not self._was_replayed and start == self._movable_start:
            return start
        if isinstance(limit, ReadAllAvailable):
            return _to_json(self._latest)
        if self._is_too_little(begin):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets_per_trigger
        return _to_json(self._latest if most is None else limit_offsets(most, begin, self._latest))

    def reportLatestOffset(self) -> _Json | None:  # noqa: N802
        """Return the last known ends of the logs; their distance to the end of a micro-batch is the lag."""
        return _to_json(self._latest) or None

    def partitions(self, start: _Json, end: _Json) -> list[InputPartition]:
        """Return the Spark tasks of a micro-batch.

        Raises:
            OffsetOutOfRangeError: records of the micro-batch are missing, and `failOnDataLoss` is true.
            LogDirOfflineError: some are in an offline log directory, for both values of `failOnDataLoss`: they are not
                lost, and no later micro-batch would read them.
        """
        if start == end:
            return []
        if start == self._movable_start and not self._was_asked:
            self._was_replayed = True
            return []
        begin, until = _from_json(start), _from_json(end)
        bounds = extend_bounds(self._bounds(), until, self._options)
        for log in sorted(begin.keys() - until.keys()):
            self._report(f"a log is missing: log={log} offset={begin[log]}")
        wanted = {log: self._range(log, begin.get(log), stop, bounds.get(log)) for log, stop in until.items()}
        return [*plan_tasks({log: each for log, each in wanted.items() if each}, bounds, self._options)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_task(partition)

    def _bounds(self) -> dict[TopicPartition, LogBounds]:
        return find_bounds(self._watch.logs(), self._options)

    def _report(self, what: str) -> None:
        report_data_loss(what, self._options)

    def _is_too_little(self, begin: _Offsets) -> bool:
        """Whether to delay the micro-batch: it has few offsets, and the last one was not long ago.

        Never with `availableNow`: no more records would come.
        """
        least = self._options.min_offsets_per_trigger
        monotonic_ms, last_ms = self._clock.monotonic_ms(), self._last_trigger_ms
        if least is None or self._target is not None:
            return False
        is_due = last_ms is None or monotonic_ms - last_ms >= self._options.max_trigger_delay_ms
        if not is_due and count_new_offsets(begin, self._latest) < least:
            return True
        self._last_trigger_ms = monotonic_ms
        return False

    def _range(
        self, log: TopicPartition, begin: int | None, end: int, bounds: LogBounds | None
    ) -> tuple[int, int] | None:
        """Return the range to read of a log, and report missing offsets.

        Args:
            log: to read.
            begin: start of the micro-batch; None for a new log.
            end: end of the micro-batch.
            bounds: of the log; None if it does not exist any more.
        """
        if bounds is None:
            self._report(f"a log is missing: log={log} offset={end}")
            return None
        if (begin or 0) < end:
            bounds.view.require_online()
        if begin is not None and end < begin:
            self._report(f"a log ends below the offsets that were read: log={log} read={begin} end={end}")
        if end > bounds.end_offset:
            self._report(f"the end of a log is missing: log={log} wanted_end={end} end={bounds.end_offset}")
        start = begin or 0
        if start < min(end, bounds.start_offset):
            what = f"records are missing: log={log} offset={start} start={bounds.start_offset}"
            is_store = bounds.view.expected is not None and bounds.view.stored is None  # objects do not tell why
            if start == 0 and is_store and not has_deleted_records(bounds.view.directory, bounds.start_offset):
                # The first record of a store's log sets its start, and may have an offset above 0.
                logger.warning("%s; no record of this log was read yet, reading it from its start", what)
            else:
                self._report(what)
        return max(start, bounds.start_offset), min(end, bounds.end_offset)


def _ends(bounds: Mapping[TopicPartition, LogBounds], seen: _Offsets) -> _Offsets:
    """Return the end of each log; of an offline log the offset read up to, if any."""
    ends = {log: each.end_offset if each.view.offline is None else seen.get(log) for log, each in bounds.items()}
    return {log: end for log, end in ends.items() if end is not None}


def _ends_at(target: _Offsets, ends: _Offsets, begin: _Offsets) -> _Offsets:
    """Return the ends of the logs, at most the target; a query that started above the target ends at its start."""
    return {log: min(end, max(target[log], begin[log])) for log, end in ends.items() if log in target}


def _starts(begin: _Offsets, bounds: Mapping[TopicPartition, LogBounds]) -> _Offsets:
    """Return the start of each log; a new log starts at its first record."""
    return {log: max(begin.get(log, 0), each.start_offset) for log, each in bounds.items()}


def _to_json(offsets: Mapping[TopicPartition, int]) -> _Json:
    """Return offsets in Spark's form, sorted: Spark compares their text."""
    found: _Json = {}
    for log in sorted(offsets):
        found.setdefault(log.topic, {})[str(log.partition)] = offsets[log]
    return found


def _from_json(offsets: _Json) -> _Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
