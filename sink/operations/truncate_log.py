"""Truncates a log of a store, as a follower whose leader lost records does: what lies behind an offset is gone.

The order, and what each step leaves if it is the last one:
- cleaner checkpoints count no further than the offset from here on (`truncated_offsets.py`);
- a note in `control/pending-truncations.json` (`truncate.noted`): the next opening drops it, nothing has happened;
- the ledger: the log ends with its last whole batch, or begins anew (`truncate.committed`): from here on the next
  opening does the rest (`finish_truncation.py`);
- losses behind the cut are forgotten, for other records will have those offsets, and those are written down that go
  with a batch which reaches across it; what lies behind is cut (`undo.deleted`, `undo.cut`);
- where the log's last batch ends before the offset, a batch without records that stands for those between, and once
  more the ledger, which lets the log end there (`truncate.finished`);
- the note goes.

No verb calls it yet; every opening finishes what it left (`finish_truncation.py`).

Source: Kafka UnifiedLog.truncateTo, UnifiedLog.truncateFullyAndStartAt, LogSegment.truncateTo.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import WrittenStore, writing
from sparklog.sink.opening.finish_cleanings import finish_cleaning
from sparklog.sink.opening.finish_truncation import carry_out
from sparklog.sink.opening.pending_truncations import PendingTruncation, read_truncations, write_truncations
from sparklog.sink.opening.truncated_offsets import note_truncated_offset
from sparklog.sink.store.cleaner_checkpoint_files import lower_cleaner_checkpoint
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
        LogDirOfflineError: the log's disk is; nothing was changed.
        StoreLockedError: a sink or a maintenance runs, or a task of a dead one is still at work on the log.
        CorruptBatchError: damage hides where the cut would be; nothing was changed.
        CorruptFileError: so does a damaged replacement of segments; nothing was changed.
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
            _truncate(written, _emptying(state, offset, clock), -1)
        else:
            _truncate(written, _cutting(state, offset, cut, clock), _largest_timestamp(segments[:number], cut))
    logger.info("Truncated log=%s offset=%d", log, offset)
    return True


def truncate_fully_and_start_at(root: Path, log: TopicPartition, offset: int, clock: Clock) -> None:
    """Drop all records of a log, which then starts and ends at an offset, above or below where it was.

    Raises:
        As `truncate_to`.
    """
    with writing(root) as written:
        _truncate(written, _emptying(_state(written, log, offset), offset, clock), -1)
    logger.info("Truncated fully log=%s log_start_offset=%d", log, offset)


def _state(written: WrittenStore, log: TopicPartition, offset: int) -> LogState:
    if log not in written.ledger.rows:
        raise UnknownTopicError(f"no such log in the ledger: log={log}")
    if offset < 0:
        raise OffsetOutOfRangeError(f"can't truncate to a negative offset: log={log} offset={offset}")
    state = written.ledger.state(written.ledger.rows[log])
    require_online(written.store, [state], check_log_dirs(written.store, [state]))
    finish_cleaning(written.store, state, written.lock)  # a segment without its name would come back behind the cut
    return state


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


def _emptying(state: LogState, offset: int, clock: Clock) -> PendingTruncation:
    """Return what drops every segment: the log goes on at an offset."""
    return PendingTruncation(
        topic=state.topic,
        partition=state.partition,
        topic_id=state.topic_id,
        offset=offset,
        log_start_offset=offset,
        next_offset=offset,
        segment_base=offset,
        size_bytes=0,
        lost_from=offset,
        began_ms=clock.now_ms(),
    )


def _cutting(state: LogState, offset: int, cut: _Cut, clock: Clock) -> PendingTruncation:
    """Return what keeps the batches before an offset; the log's start moves only if it lay behind that."""
    start = min(state.log_start_offset, offset)
    return PendingTruncation(
        topic=state.topic,
        partition=state.partition,
        topic_id=state.topic_id,
        offset=offset,
        log_start_offset=start,
        next_offset=cut.next_offset,
        segment_base=cut.segment.base_offset,
        size_bytes=cut.size_bytes,
        lost_from=max(cut.first_lost, start),
        began_ms=clock.now_ms(),
    )


def _truncate(written: WrittenStore, truncation: PendingTruncation, max_timestamp_ms: int) -> None:
    """Write down what is about to happen, commit it, and carry it out."""
    store, ledger, row = written.store, written.ledger, written.ledger.rows[truncation.log]
    written.lock.check()
    state = ledger.state(row)
    note_truncated_offset(store, state, truncation.offset, written.lock)
    lower_cleaner_checkpoint(store.log_dir(state.log_dir), truncation.log, truncation.offset, written.lock)
    write_truncations(store, [*read_truncations(store), truncation], written.lock)
    reach("truncate.noted")
    values = {
        "log_start_offset": truncation.first_start,
        "log_end_offset": truncation.next_offset,
        "recovery_point": truncation.next_offset,  # whoever opens the store for writing has flushed every log
        "active_base_offset": truncation.segment_base,
        "active_size_bytes": truncation.size_bytes,
        "max_timestamp_ms": max_timestamp_ms,
        "updated_ms": truncation.began_ms,
    }
    ledger.correct(np.array([row]), {name: np.array([value], np.int64) for name, value in values.items()})
    reach("truncate.committed")
    carry_out(store, ledger, written.lock, truncation)
    DerivedFiles(store, ledger, written.lock).write()  # before the note goes: `verify` holds them against the ledger
    write_truncations(store, [each for each in read_truncations(store) if each != truncation], written.lock)
