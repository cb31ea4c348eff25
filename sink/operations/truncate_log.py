"""Truncates a log of a store to an offset, as a follower whose leader lost records.

The steps; after a crash the next opening does the rest (`finish_truncation.py`):
- the ledger: the log ends with its last whole batch, or begins anew; cleaner checkpoints are limited to the offset; the
  row's intent has the later steps (`truncate.committed`);
- lost ranges above the offset are dropped, as new records will have these offsets; the records below it that go with a
  batch across it are recorded as lost; files are truncated (`undo.deleted`, `undo.cut`);
- if the log's last batch ends below the offset, an empty batch fills the gap (`truncate.filled`);
- the ledger again: the log ends at the offset, the intent is cleared (`truncate.finished`).

No verb calls it yet; every opening finishes a truncation.

Source: Kafka UnifiedLog.truncateTo, UnifiedLog.truncateFullyAndStartAt, LogSegment.truncateTo.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.intents import Truncation, render_intents
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import WrittenStore, writing
from sparklog.sink.opening.finish_cleanings import finish_cleaning
from sparklog.sink.opening.finish_truncation import carry_out
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import check_log_dirs, require_online
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import OffsetOutOfRangeError, UnknownTopicError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.segments import SegmentFiles, floor_segment, list_segments
from sparklog.storage_core.log.read.largest_timestamp import largest_timestamp
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["truncate_fully_and_start_at", "truncate_to"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A log's end after the truncation.

    Attributes:
        segment: the new active one.
        size_bytes: its new size.
        next_offset: above its last kept batch; the segment's base without one.
        first_lost: first offset of a batch across the truncation offset, that offset without one.
    """

    segment: SegmentFiles
    size_bytes: int
    next_offset: int
    first_lost: int


def truncate_to(root: Path, log: TopicPartition, offset: int, clock: Clock) -> bool:
    """Drop a log's records from an offset on; the next record gets that offset.

    A batch across the offset is dropped as a whole: its records below the offset are recorded as lost.

    Args:
        offset: the log's new end. Without a batch below it, the log is emptied and starts there.

    Returns:
        False if the log ends at or below the offset; then nothing was changed.

    Raises:
        OffsetOutOfRangeError: the offset is negative.
        UnknownTopicError: there is no such log.
        LogDirOfflineError: the log's disk is offline; nothing was changed.
        StoreLockedError: a sink or a maintenance run holds the store, or a task of a dead run holds the log.
        CorruptBatchError: damage hides the truncation position; nothing was changed.
        CorruptFileError: a damaged replacement of segments hides it; nothing was changed.
    """
    with writing(root) as written:
        state = _state(written, log, offset)
        if offset >= state.log_end_offset:
            return False
        directory = written.store.log_path(state)
        segments = [each for each in list_segments(directory) if each.base_offset <= state.active_base_offset]
        number = floor_segment(segments, offset)
        cut = _find_cut(segments[number], offset, state) if number is not None else None
        if number is None or cut is None or (number == 0 and cut.size_bytes == 0):
            _empty(written, state, offset, clock)
        else:
            _cut(written, state, cut, offset, _largest_timestamp(segments[:number], cut), clock)
    logger.info("Truncated log=%s offset=%d", log, offset)
    return True


def truncate_fully_and_start_at(root: Path, log: TopicPartition, offset: int, clock: Clock) -> None:
    """Drop all records of a log; it then starts and ends at the offset, which may be above its old end.

    Raises:
        As `truncate_to`.
    """
    with writing(root) as written:
        _empty(written, _state(written, log, offset), offset, clock)
    logger.info("Truncated fully log=%s log_start_offset=%d", log, offset)


def _state(written: WrittenStore, log: TopicPartition, offset: int) -> LogState:
    if log not in written.ledger.rows:
        raise UnknownTopicError(f"no such log in the ledger: log={log}")
    if offset < 0:
        raise OffsetOutOfRangeError(f"can't truncate to a negative offset: log={log} offset={offset}")
    state = written.ledger.state(written.ledger.rows[log])
    require_online(written.store, [state], check_log_dirs(written.store, [state]))
    finish_cleaning(written.store, state, written.lock)  # a `.swap` segment would come back after the truncation
    return state


def _find_cut(segment: SegmentFiles, offset: int, state: LogState) -> _Cut:
    """Return the start of the first batch that reaches the offset, and the end of the batch before it."""
    with SegmentReader(segment) as reader:
        if segment.base_offset == state.active_base_offset:
            reader.size_bytes = min(reader.size_bytes, state.active_size_bytes)
        next_offset = segment.base_offset
        for chunk in reader.chunks_from(offset - 1):  # includes the batch before it
            reader.check_crcs(chunk, chunk.scan)
            first = chunk.first_reaching(offset)
            if first is None:
                next_offset = int(chunk.scan.last_offset[-1]) + 1
                continue
            if first:
                next_offset = int(chunk.scan.last_offset[first - 1]) + 1
            return _Cut(segment, chunk.start_of(first), next_offset, min(int(chunk.scan.base_offset[first]), offset))
        return _Cut(segment, reader.valid_bytes, next_offset, offset)


def _largest_timestamp(segments: list[SegmentFiles], cut: _Cut) -> int:
    """Return the largest timestamp of the kept batches, -1 without any.

    The time index of the truncated segment may have dropped batches, so its headers are read.
    """
    latest = -1
    for files in segments:
        with SegmentReader(files) as reader:
            latest = max(latest, largest_timestamp(reader, cut.segment.base_offset))
    with SegmentReader(cut.segment) as reader:
        reader.size_bytes = cut.size_bytes
        return max(latest, *(int(chunk.scan.max_timestamp.max(initial=-1)) for chunk in reader.chunks()), -1)


def _empty(written: WrittenStore, state: LogState, offset: int, clock: Clock) -> None:
    """Drop every segment: the log continues at an offset."""
    truncation = Truncation(offset=offset, log_start_offset=offset, lost_from=offset, began_ms=clock.now_ms())
    _truncate(written, state, truncation, {"log_end_offset": offset, "active_base_offset": offset})


def _cut(written: WrittenStore, state: LogState, cut: _Cut, offset: int, max_timestamp_ms: int, clock: Clock) -> None:
    """Keep the batches below an offset; a log start above it is lowered to it."""
    start = min(state.log_start_offset, offset)
    truncation = Truncation(
        offset=offset, log_start_offset=start, lost_from=max(cut.first_lost, start), began_ms=clock.now_ms()
    )
    values = {
        "log_end_offset": cut.next_offset,
        "active_base_offset": cut.segment.base_offset,
        "active_size_bytes": cut.size_bytes,
        "max_timestamp_ms": max_timestamp_ms,
    }
    _truncate(written, state, truncation, values)


def _truncate(written: WrittenStore, state: LogState, truncation: Truncation, end: Mapping[str, int]) -> None:
    """Commit the log's new end and its intent, and carry it out."""
    store, ledger, row = written.store, written.ledger, written.ledger.rows[state.log]
    limits = [each for each in (state.cleaner_limit_offset, truncation.offset) if each >= 0]
    written.lock.check()
    values = {
        "active_size_bytes": 0,
        "max_timestamp_ms": -1,
        **end,
        # Until the empty batch is there, the log must not start above its last batch.
        "log_start_offset": min(truncation.log_start_offset, end["log_end_offset"]),
        "recovery_point": end["log_end_offset"],  # the opening has synced every log
        "updated_ms": truncation.began_ms,
        "cleaner_limit_offset": min(limits),
    }
    integers = {name: np.array([value], np.int64) for name, value in values.items()}
    ledger.correct(np.array([row]), {**integers, "intent": [render_intents((*state.intents, truncation))]})
    reach("truncate.committed")
    carry_out(store, ledger, written.lock, row)
    DerivedFiles(store, ledger, written.lock).write()
