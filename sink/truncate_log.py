"""Truncates a log of a store, as a follower whose leader lost records does: what lies behind an offset is gone.

The order, and what each step leaves if it is the last one:
- offsets that go with a batch which reaches across the cut are written down as lost, and losses behind the cut are
  forgotten, for other records will have those offsets: the next call does the same;
- the ledger: the log ends with its last whole batch (`truncate.committed`): what lies behind is cut by the next
  opening, as what a crash left (`undo.deleted`, `undo.cut`);
- the files;
- where the log's last batch ends before the offset, a batch without records that stands for those between, and once
  more the ledger: until then it ends with its last batch, and the next opening does this (`finish_truncation.py`).

Source: Kafka UnifiedLog.truncateTo, UnifiedLog.truncateFullyAndStartAt, LogSegment.truncateTo.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sink.derived_files import DerivedFiles
from sink.finish_truncation import begin_anew, fill_up_to
from sink.ledger_rows import LogState
from sink.lost_ranges import LostRange, LostRangeTable
from sink.store_access import WrittenStore, writing
from sink.undo import committed_end
from storage_core.clock import Clock
from storage_core.errors import OffsetOutOfRangeError, UnknownTopicError
from storage_core.fault_points import reach
from storage_core.log.cut_back import cut_back
from storage_core.log.empty_segment import add_empty_segment
from storage_core.log.largest_timestamp import largest_timestamp
from storage_core.log.segment_reader import SegmentReader
from storage_core.log.segments import SegmentFiles, floor_segment, list_segments
from storage_core.topic_partition import TopicPartition

__all__ = ["truncate_fully_and_start_at", "truncate_to"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a log ends once it is cut.

    Attributes:
        segment: that becomes the active one.
        size_bytes: that stay of it.
        next_offset: behind its last batch that stays; the segment's base if none does.
        first_lost: first offset of a batch that reaches across the cut, the cut's offset if none does.
    """

    segment: SegmentFiles
    size_bytes: int
    next_offset: int
    first_lost: int


def truncate_to(root: Path, log: TopicPartition, offset: int, clock: Clock) -> bool:
    """Drop a log's records from an offset on; the next record gets that offset.

    A batch that reaches across the offset goes as a whole: its records below the offset are written down as lost.

    Args:
        root: of the store; nobody else may write it meanwhile.
        log: to truncate.
        offset: the log's new end. Where no batch lies before it, the log is emptied and starts there.
        clock: says when.

    Returns:
        False if the log ends there or before, and nothing was changed.

    Raises:
        OffsetOutOfRangeError: the offset is negative.
        UnknownTopicError: there is no such log.
        StoreLockedError: a sink or a maintenance runs.
        CorruptBatchError: damage hides where the cut would be; nothing was changed.
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
            _empty(written, log, offset, clock)
            return True
        _note_lost(written, log, (cut.first_lost, offset), clock)
        _commit(
            written,
            log,
            clock,
            log_start_offset=min(state.log_start_offset, cut.next_offset),
            log_end_offset=cut.next_offset,
            recovery_point=min(state.recovery_point, cut.next_offset),
            active_base_offset=cut.segment.base_offset,
            active_size_bytes=cut.size_bytes,
            max_timestamp_ms=_largest_timestamp(segments[:number], cut),
        )
        reach("truncate.committed")
        end = committed_end(written.ledger.state(written.ledger.rows[log]))
        cut_back(directory, end, written.lock.check)
        if cut.size_bytes == 0:
            add_empty_segment(directory, cut.segment.base_offset, written.lock.token, written.lock.check)
        if cut.next_offset < offset:
            fill_up_to(written.store, written.ledger, log, offset, written.lock)
        DerivedFiles(written.store, written.ledger).write(clock.now_ms())
    logger.info("Truncated log=%s offset=%d", log, offset)
    return True


def truncate_fully_and_start_at(root: Path, log: TopicPartition, offset: int, clock: Clock) -> None:
    """Drop all records of a log, which then starts and ends at an offset, above or below where it was.

    Raises:
        As `truncate_to`.
    """
    with writing(root) as written:
        _state(written, log, offset)
        _empty(written, log, offset, clock)
    logger.info("Truncated fully log=%s log_start_offset=%d", log, offset)


def _state(written: WrittenStore, log: TopicPartition, offset: int) -> LogState:
    if log not in written.ledger.rows:
        raise UnknownTopicError(f"no such log in the ledger: log={log}")
    if offset < 0:
        raise OffsetOutOfRangeError(f"can't truncate to a negative offset: log={log} offset={offset}")
    return written.ledger.state(written.ledger.rows[log])


def _find_cut(segment: SegmentFiles, offset: int, state: LogState) -> _Cut:
    """Return where the first batch that reaches the offset starts, and where the one before it ends."""
    with SegmentReader(segment) as reader:
        if segment.base_offset == state.active_base_offset:
            reader.size_bytes = min(reader.size_bytes, state.active_size_bytes)
        next_offset = segment.base_offset
        for chunk in reader.chunks_from(offset - 1):  # so that the batch before it is met, too
            reader.check_crcs(chunk, chunk.scan)
            reaching = np.flatnonzero(chunk.scan.last_offset >= offset)
            if not len(reaching):
                next_offset = int(chunk.scan.last_offset[-1]) + 1
                continue
            first = int(reaching[0])
            if first:
                next_offset = int(chunk.scan.last_offset[first - 1]) + 1
            size = chunk.position + int(chunk.scan.position[first])
            return _Cut(segment, size, next_offset, min(int(chunk.scan.base_offset[first]), offset))
        return _Cut(segment, reader.valid_bytes, next_offset, offset)


def _largest_timestamp(segments: list[SegmentFiles], cut: _Cut) -> int:
    """Return the largest timestamp of what stays, -1 if nothing with one does.

    The time index of the segment that is cut may tell of batches that go, so its headers are read.
    """
    latest = -1
    for files in segments:
        with SegmentReader(files) as reader:
            latest = max(latest, largest_timestamp(reader, cut.segment.base_offset))
    with SegmentReader(cut.segment) as reader:
        reader.size_bytes = cut.size_bytes
        return max(latest, *(int(chunk.scan.max_timestamp.max(initial=-1)) for chunk in reader.chunks()), -1)


def _note_lost(written: WrittenStore, log: TopicPartition, lost: tuple[int, int], clock: Clock) -> None:
    """Write down offsets from the first to below the second, and forget what is known of those behind."""
    first, offset = lost
    gap = LostRange(
        topic=log.topic,
        partition=log.partition,
        first_offset=first,
        last_offset=offset - 1,
        file=log.directory_name,
        reason=f"truncated to offset {offset}, with the batch that reaches across it",
        found_ms=clock.now_ms(),
    )
    table = LostRangeTable(written.store.root / "control" / "lost_ranges")
    table.truncate(log.topic, log.partition, offset, gap if first < offset else None)


def _commit(written: WrittenStore, log: TopicPartition, clock: Clock, **values: int) -> None:
    changed = {**values, "updated_ms": clock.now_ms()}
    row = np.array([written.ledger.rows[log]], np.int64)
    written.ledger.correct(row, {name: np.array([value], np.int64) for name, value in changed.items()})


def _empty(written: WrittenStore, log: TopicPartition, offset: int, clock: Clock) -> None:
    """Drop every segment; the log goes on at an offset, under the leader epoch that it has."""
    state = written.ledger.state(written.ledger.rows[log])
    directory = written.store.log_path(state)
    table = LostRangeTable(written.store.root / "control" / "lost_ranges")
    table.truncate(log.topic, log.partition, 0, None)
    _commit(
        written,
        log,
        clock,
        log_start_offset=offset,
        log_end_offset=offset,
        recovery_point=offset,
        active_base_offset=offset,
        active_size_bytes=0,
        max_timestamp_ms=-1,
    )
    reach("truncate.committed")
    begin_anew(directory, written.ledger.state(written.ledger.rows[log]), written.lock)
    DerivedFiles(written.store, written.ledger).write(clock.now_ms())
