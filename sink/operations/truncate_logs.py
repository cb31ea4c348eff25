"""Truncates logs of a store to offsets, as a follower whose leader lost records: all of them, or none.

The steps; after a crash the next opening does the rest (`finish_truncation.py`):
- the ledger, one commit for all logs: each ends with its last whole batch, or begins anew, and has its next leader
  epoch; cleaner checkpoints are limited to the offset; the row's intent has the later steps (`truncate.committed`);
- lost ranges above the offset are dropped, as new records will have these offsets; the records below it that go with a
  batch across it are recorded as lost; files are truncated (`undo.deleted`, `undo.cut`);
- if the log's last batch ends below the offset, an empty batch fills the gap (`truncate.filled`); the new leader epoch
  begins (`truncate.epochs`);
- the ledger again, one commit: the logs end at their offsets, the intents are cleared (`truncate.finished`).

Source: Kafka UnifiedLog.truncateTo, UnifiedLog.truncateFullyAndStartAt, LogSegment.truncateTo.
"""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.intents import Truncation, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import WrittenStore, writing
from sparklog.sink.opening.finish_cleanings import finish_cleaning
from sparklog.sink.opening.finish_truncation import carry_out
from sparklog.sink.past.write_cuts import write_due_cut
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import check_log_dirs, find_unreadable, require_online
from sparklog.sink.store.map_logs import map_logs
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import OffsetOutOfRangeError, UnknownTopicError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.names import SNAPSHOT, TXNINDEX
from sparklog.storage_core.log.files.segments import SegmentFiles, floor_segment, list_segments
from sparklog.storage_core.log.producers.transactions import find_last_stable_offset
from sparklog.storage_core.log.read.largest_timestamp import largest_timestamp
from sparklog.storage_core.log.scan.log_walk import SegmentList
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LogTruncation", "plan_truncations", "truncate_fully_and_start_at", "truncate_logs"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncation:
    """What a truncation makes of one log.

    Attributes:
        state: its ledger row before.
        offset: its new end.
        lost_from: first offset below the new end that is lost with a batch across it; the new end if none is.
        is_emptied: whether no batch stays: the log then starts at its new end.
        dropped_bytes: of `.log` files.
        values: of its ledger row, until the files are cut.
    """

    state: LogState
    offset: int
    lost_from: int
    is_emptied: bool
    dropped_bytes: int
    values: Mapping[str, int]

    @property
    def log_start_offset(self) -> int:
        """Its new start; one above the new end is lowered to it."""
        return self.offset if self.is_emptied else min(self.state.log_start_offset, self.offset)


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


def plan_truncations(
    store: Store, states: Mapping[TopicPartition, LogState], offsets: Mapping[TopicPartition, int]
) -> list[LogTruncation]:
    """Return what truncations would make of these logs; those that end at or below their offsets are left out.

    Reads the segments that hold the offsets, and changes nothing.

    Args:
        offsets: new end of each log. Without a batch below it, the log is emptied and starts there. A batch across
            it is dropped as a whole: its records below the offset are lost.

    Raises:
        OffsetOutOfRangeError: an offset is negative.
        UnknownTopicError: there is no such log.
        LogDirOfflineError: a log's disk is offline.
        CorruptBatchError: damage hides the truncation position.
    """
    for log, offset in offsets.items():
        if log not in states:
            raise UnknownTopicError(f"no such log in the ledger: log={log}")
        if offset < 0:
            raise OffsetOutOfRangeError(f"can't truncate to a negative offset: log={log} offset={offset}")
    named = {log: states[log] for log in offsets}
    require_online(store, named.values(), find_unreadable(store, named.values()))
    shortened = [state for log, state in sorted(named.items()) if offsets[log] < state.log_end_offset]
    return map_logs(lambda state: _plan(store, state, offsets[state.log]), shortened)


def truncate_logs(
    root: Path, choose: Callable[[Ledger], Mapping[TopicPartition, int]], clock: Clock
) -> list[LogTruncation]:
    """Drop logs' records from offsets on, on all logs at once; the next record of each gets its offset.

    Args:
        choose: returns the new end of each log, or refuses; called once no process can change the store.

    Returns:
        what was truncated: the logs that ended above their offsets.

    Raises:
        As `plan_truncations`; then nothing was changed.
        StoreLockedError: a sink or a maintenance run holds the store, or a task of a dead run holds a log.
        CorruptFileError: a damaged replacement of segments hides a position; nothing was changed.
    """
    with writing(root) as written:
        states = written.ledger.states()
        offsets = choose(written.ledger)
        _prepare(written, [state for log, state in states.items() if offsets.get(log, math.inf) < state.log_end_offset])
        planned = plan_truncations(written.store, states, offsets)
        if planned:
            _truncate(written, planned, clock)
    for each in planned:
        logger.info("Truncated log=%s offset=%d", each.state.log, each.offset)
    return planned


def truncate_fully_and_start_at(root: Path, log: TopicPartition, offset: int, clock: Clock) -> None:
    """Drop all records of a log; it then starts and ends at the offset, which may be above its old end.

    Raises:
        As `truncate_logs`.
    """
    with writing(root) as written:
        if log not in written.ledger.rows:
            raise UnknownTopicError(f"no such log in the ledger: log={log}")
        if offset < 0:
            raise OffsetOutOfRangeError(f"can't truncate to a negative offset: log={log} offset={offset}")
        state = written.ledger.state(written.ledger.rows[log])
        _prepare(written, [state])
        _truncate(written, [_emptied(state, offset, _committed(written.store, state))], clock)
    logger.info("Truncated fully log=%s log_start_offset=%d", log, offset)


def _prepare(written: WrittenStore, states: Sequence[LogState]) -> None:
    """Refuse logs that can't be written, and finish swaps: a `.swap` segment would come back after the truncation."""
    require_online(written.store, states, check_log_dirs(written.store, states))
    map_logs(lambda state: finish_cleaning(written.store, state, written.lock), states)


def _plan(store: Store, state: LogState, offset: int) -> LogTruncation:
    segments = _committed(store, state)
    number = floor_segment(segments, offset)
    cut = _find_cut(segments[number], offset, state) if number is not None else None
    if number is None or cut is None or (number == 0 and cut.size_bytes == 0):
        return _emptied(state, offset, segments)
    start = min(state.log_start_offset, offset)
    return LogTruncation(
        state=state,
        offset=offset,
        lost_from=max(cut.first_lost, start),
        is_emptied=False,
        dropped_bytes=_size(segments[number:], state) - cut.size_bytes,
        values={
            "log_end_offset": cut.next_offset,
            "active_base_offset": cut.segment.base_offset,
            "active_size_bytes": cut.size_bytes,
            "max_timestamp_ms": _largest_timestamp(segments[:number], cut),
            "first_unstable_offset": _first_unstable(store.log_path(state), start, cut.next_offset),
        },
    )


def _emptied(state: LogState, offset: int, segments: Sequence[SegmentFiles]) -> LogTruncation:
    return LogTruncation(
        state=state,
        offset=offset,
        lost_from=offset,
        is_emptied=True,
        dropped_bytes=_size(segments, state),
        values={
            "log_end_offset": offset,
            "active_base_offset": offset,
            "active_size_bytes": 0,
            "max_timestamp_ms": -1,
            "first_unstable_offset": -1,
        },
    )


def _committed(store: Store, state: LogState) -> list[SegmentFiles]:
    segments = list_segments(store.log_path(state))
    return [each for each in segments if each.base_offset <= state.active_base_offset]


def _size(segments: Sequence[SegmentFiles], state: LogState) -> int:
    """Return the committed bytes of segments."""
    found = 0
    for each in segments:
        with storage_errors(each.log_path):
            is_active = each.base_offset == state.active_base_offset
            found += state.active_size_bytes if is_active else each.log_path.stat().st_size
    return found


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


def _largest_timestamp(segments: Sequence[SegmentFiles], cut: _Cut) -> int:
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


def _first_unstable(directory: Path, log_start_offset: int, end_offset: int) -> int:
    """Return the first offset of a transaction that is open below a new end, -1 without one.

    A truncation may take a transaction's marker. Only imported logs have transactions, and then files of these kinds.
    """
    with storage_errors(directory):
        names = os.listdir(directory)
    if end_offset <= log_start_offset or not any(name.endswith((SNAPSHOT, TXNINDEX)) for name in names):
        return -1
    stable = find_last_stable_offset(SegmentList(directory, end_offset), log_start_offset)
    return stable if stable < end_offset else -1


def _truncate(written: WrittenStore, planned: Sequence[LogTruncation], clock: Clock) -> None:
    """Commit new ends and intents, and carry them out."""
    ledger, now_ms = written.ledger, clock.now_ms()
    rows = [ledger.rows[each.state.log] for each in planned]
    values = [_new_values(each, now_ms) for each in planned]
    intents = [
        Truncation(
            offset=each.offset, log_start_offset=each.log_start_offset, lost_from=each.lost_from, began_ms=now_ms
        )
        for each in planned
    ]
    texts = [render_intents((*each.state.intents, intent)) for each, intent in zip(planned, intents, strict=True)]
    written.lock.check()
    write_due_cut(written.store.root, ledger, written.lock, now_ms)
    integers = {name: np.array([each[name] for each in values], np.int64) for name in values[0]}
    ledger.correct(np.array(rows, np.int64), {**integers, "intent": texts}, now_ms)
    reach("truncate.committed")
    carry_out(written.store, ledger, written.lock, rows)
    DerivedFiles(written.store, ledger, written.lock).write()


def _new_values(each: LogTruncation, now_ms: int) -> dict[str, int]:
    state, end = each.state, each.values["log_end_offset"]
    limits = [limit for limit in (state.cleaner_limit_offset, each.offset) if limit >= 0]
    return {
        **each.values,
        # Until the empty batch is there, the log must not start above its last batch.
        "log_start_offset": min(each.log_start_offset, end),
        "recovery_point": end,  # the opening has synced every log
        "updated_ms": now_ms,
        "leader_epoch": state.leader_epoch + 1,
        "cleaner_limit_offset": min(limits),
        "compacted_offset": min(state.compacted_offset, each.offset),
    }
