"""The readable offsets of a log, and the start and end offsets of a query.

In a store the ledger has them, and no file is read. In a plain folder the reader scans the last segment from its last
index entry on, and `read_committed` ends at the last stable offset.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sparklog.pipeline.places.store_view import LogView
from sparklog.pipeline.reader.offset_limits import EARLIEST, LATEST, OffsetLimit
from sparklog.pipeline.reader.options import ReaderOptions
from sparklog.storage_core.errors import CorruptBatchError, InvalidConfigError, LogStorageError, OffsetOutOfRangeError
from sparklog.storage_core.log.files.segments import SegmentFiles, list_readable_segments
from sparklog.storage_core.log.producers.transactions import Isolation
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LogBounds", "extend_bounds", "find_bounds", "report_data_loss", "resolve_ends", "resolve_starts"]

logger = logging.getLogger(__name__)

_ADVICE = "failOnDataLoss=false reads the remaining records"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The readable offsets of one log.

    Attributes:
        start_offset: the first.
        end_offset: above the last that the isolation level allows.
        log_end_offset: above the last of all.
        isolation: level for tasks.
        is_certain: whether the log was readable up to its end; otherwise it may end higher.
    """

    view: LogView
    start_offset: int
    end_offset: int
    log_end_offset: int
    isolation: Isolation
    is_certain: bool = True

    @property
    def log(self) -> TopicPartition:
        """Topic and partition."""
        return self.view.log

    @property
    def last_stable_offset(self) -> int | None:
        """The end for `read_committed`; None for `read_uncommitted`."""
        return self.end_offset if self.isolation == "read_committed" else None

    def offset_for_time(self, time_ms: int) -> tuple[int, int] | None:
        """Return the first offset whose record is not earlier, and its time; None if every record is.

        Raises:
            LogStorageError: the log can't be read.
        """
        if self.view.stored is not None:
            return self.view.stored.offset_for_time(time_ms, self.start_offset, self.end_offset)
        reader = LogReader(
            self.view.directory,
            log_start_offset=self.start_offset,
            log_end_offset=self.log_end_offset,
            last_stable_offset=self.last_stable_offset,
        )
        return reader.offset_for_time(time_ms)


def find_bounds(views: Sequence[LogView], options: ReaderOptions) -> dict[TopicPartition, LogBounds]:
    """Return the readable offsets of each log.

    With `failOnDataLoss=false` a log with a damaged end ends below the damage, and an unreadable log is empty. An
    offline log of a store has its offsets from the ledger: a query can start there, but reads nothing.

    Raises:
        LogStorageError: with `failOnDataLoss=true`: a log can't be read, or its end can't be found.
        CorruptFileError: the checkpoint with the start of a plain folder's log is damaged, for both values: without it
            deleted records would be read.
    """
    return {each.log: _bounds(each, options) for each in views}


def extend_bounds(
    bounds: Mapping[TopicPartition, LogBounds], seen: Mapping[TopicPartition, int], options: ReaderOptions
) -> dict[TopicPartition, LogBounds]:
    """Return bounds that are not below the ends seen before, unless a log certainly ends earlier now.

    A temporary error must not look like a lost end of a log: a stream would read its records twice.

    Args:
        seen: end offset of each log at the last look; new logs are absent.
        options: of the query; with `failOnDataLoss=true` every end is certain.
    """
    found = dict(bounds)
    for log, offset in seen.items():
        each = bounds.get(log)
        if options.fail_on_data_loss or each is None or offset <= each.end_offset or each.view.expected is not None:
            continue
        if not each.is_certain or not _ends_with_a_batch(each.view):
            logger.warning("the end of a log is uncertain: log=%s seen=%d now=%d", log, offset, each.end_offset)
            found[log] = replace(each, end_offset=offset, log_end_offset=max(each.log_end_offset, offset))
    return found


def report_data_loss(what: str, options: ReaderOptions) -> None:
    """Raise an error for missing records, or only log it with `failOnDataLoss=false`.

    Raises:
        OffsetOutOfRangeError: `failOnDataLoss` is true.
    """
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(f"{what} ({_ADVICE})")
    logger.warning("%s; reading the remaining records", what)


def resolve_starts(bounds: Mapping[TopicPartition, LogBounds], options: ReaderOptions) -> dict[TopicPartition, int]:
    """Return the start offset of each log.

    Raises:
        InvalidConfigError: the options name other logs than those read, or a time later than all records.
        OffsetOutOfRangeError: an offset is outside its log, and `failOnDataLoss` is true.
        LogDirOfflineError: a time has to be looked up in an offline log.
    """
    _check_names(options.starting, bounds, "starting")
    return {log: _start(options.starting, each, options) for log, each in bounds.items()}


def resolve_ends(bounds: Mapping[TopicPartition, LogBounds], options: ReaderOptions) -> dict[TopicPartition, int]:
    """Return the end offset of each log, above the last one to read.

    Raises:
        InvalidConfigError: the options name other logs than those read.
        OffsetOutOfRangeError: an offset is outside its log, and `failOnDataLoss` is true.
        LogDirOfflineError: a time has to be looked up in an offline log.
    """
    _check_names(options.ending, bounds, "ending")
    return {log: _end(options.ending, each, options) for log, each in bounds.items()}


def _check_names(limit: OffsetLimit, bounds: Mapping[TopicPartition, LogBounds], which: str) -> None:
    if limit.common is not None or limit.by_log.keys() == bounds.keys():
        return
    lists = {
        "missing": bounds.keys() - limit.by_log.keys(),
        "not read": limit.by_log.keys() - bounds.keys(),
    }
    names = [
        f"{what}: {', '.join(f'{log.topic}:{log.partition}' for log in sorted(logs))}"
        for what, logs in lists.items()
        if logs
    ]
    raise InvalidConfigError(
        f"{which} offsets or times by partition must name exactly the partitions to read; {'; '.join(names)}"
    )


def _start(limit: OffsetLimit, bounds: LogBounds, options: ReaderOptions) -> int:
    value = _value(limit, bounds.log)
    if not limit.is_time:
        return _explicit(value, bounds, options, "startingOffsets")
    bounds.view.require_online()
    found = bounds.offset_for_time(value)
    if found is not None and found[0] < bounds.end_offset:
        return found[0]
    if options.no_match_starts_latest:
        return bounds.end_offset
    raise InvalidConfigError(
        f"all records are earlier than the starting time: log={bounds.log} timestamp={value}"
        " (startingOffsetsByTimestampStrategy=latest starts such a log at its end)"
    )


def _end(limit: OffsetLimit, bounds: LogBounds, options: ReaderOptions) -> int:
    value = _value(limit, bounds.log)
    if not limit.is_time:
        return _explicit(value, bounds, options, "endingOffsets")
    bounds.view.require_online()
    found = bounds.offset_for_time(value)
    return bounds.end_offset if found is None else min(found[0], bounds.end_offset)


def _value(limit: OffsetLimit, log: TopicPartition) -> int:
    return limit.by_log[log] if limit.common is None else limit.common


def _explicit(value: int, bounds: LogBounds, options: ReaderOptions, name: str) -> int:
    if value == EARLIEST:
        return bounds.start_offset
    if value == LATEST:
        return bounds.end_offset
    if not bounds.start_offset <= value <= bounds.end_offset:
        report_data_loss(
            f"{name} has an offset outside the log: log={bounds.log} offset={value}"
            f" start={bounds.start_offset} end={bounds.end_offset}",
            options,
        )
    return min(max(value, bounds.start_offset), bounds.end_offset)


def _bounds(view: LogView, options: ReaderOptions) -> LogBounds:
    if view.offline is not None:
        _skip_offline(view, options)
    if view.expected is not None:
        end, is_committed = view.expected.log_end_offset, options.isolation == "read_committed"
        return LogBounds(
            view=view,
            start_offset=view.expected.log_start_offset,
            end_offset=view.expected.last_stable_offset if is_committed else end,
            log_end_offset=end,
            isolation=options.isolation,
        )
    view.require_start()
    try:
        reader = view.reader()
        return _readable(view, reader, options)
    except LogStorageError as error:
        if options.fail_on_data_loss:
            raise
        logger.warning("the end of a log is damaged: log=%s (%s)", view.directory, error)
        return _bounds_below_damage(view, options)


def _skip_offline(view: LogView, options: ReaderOptions) -> None:
    """Log a warning that an offline log is skipped; a stream continues there when its log directory is back.

    Raises:
        LogDirOfflineError: `failOnDataLoss` is true.
    """
    if options.fail_on_data_loss:
        view.require_online()
    logger.warning("a log directory is offline, skipping the log: log=%s (%s)", view.directory, view.offline)


def _bounds_below_damage(view: LogView, options: ReaderOptions) -> LogBounds:
    try:
        segments = list_readable_segments(view.directory)
        start = max(segments[0].base_offset if segments else 0, view.checkpointed_start or 0)
        end = max(_sound_end(segments[-1]) if segments else 0, start)
        reader = LogReader(view.directory, log_start_offset=start, log_end_offset=end)
        return replace(_readable(view, reader, options), is_certain=False)
    except LogStorageError as error:
        logger.warning("a log can't be read, reading no new records of it: log=%s (%s)", view.directory, error)
        return LogBounds(
            view=view, start_offset=0, end_offset=0, log_end_offset=0, isolation=options.isolation, is_certain=False
        )


def _readable(view: LogView, reader: LogReader, options: ReaderOptions) -> LogBounds:
    end = reader.log_end_offset
    return LogBounds(
        view=view,
        start_offset=reader.log_start_offset,
        end_offset=reader.last_stable_offset if options.isolation == "read_committed" else end,
        log_end_offset=end,
        isolation=options.isolation,
    )


def _sound_end(segment: SegmentFiles) -> int:
    """Return the end offset of the last batch before bytes that are no batch, by headers alone.

    Wrong CRCs and base offsets are left to the reading: batches after them are sound, and count.
    """
    with SegmentReader(segment) as reader:
        with suppress(CorruptBatchError):
            deque(reader.chunks_from(2**63 - 1), maxlen=0)
        return reader.next_offset


def _ends_with_a_batch(view: LogView) -> bool:
    """Whether only zeros follow the last complete batch: part of a batch may be one that is being copied."""
    try:
        segments = list_readable_segments(view.directory)
        if not segments:
            return False
        with SegmentReader(segments[-1]) as reader:
            with suppress(CorruptBatchError):
                deque(reader.chunks_from(2**63 - 1), maxlen=0)
            return reader.ends_in_zeros(reader.valid_bytes)
    except LogStorageError:
        return False
