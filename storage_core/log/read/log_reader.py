"""Reads the records of one log.

A store's ledger has its logs' starts and ends; of a plain folder the end is found by a scan from the last
segment's last index entry. What lies above the end is never looked at: it belongs to a micro-batch that is not
committed.

Source: Kafka UnifiedLog.read, UnifiedLog.fetchOffsetByTimestamp, CompletedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.errors import CorruptBatchError, InvalidConfigError, OffsetOutOfRangeError, StorageError
from sparklog.storage_core.log.files.segments import SegmentFiles, list_readable_segments
from sparklog.storage_core.log.producers.transactions import Isolation, find_last_stable_offset
from sparklog.storage_core.log.read.aborted_batches import AbortedBatches
from sparklog.storage_core.log.read.time_lookup import TimeLookup
from sparklog.storage_core.log.scan.log_walk import (
    RELISTINGS,
    LogWalk,
    SegmentList,
    is_gone,
)
from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import CHUNK_BYTES, SEEK_BYTES, BatchChunk, SegmentReader
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.attributes import CONTROL_BIT
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan, check_crcs
from sparklog.storage_core.record.schema import int64s

__all__ = ["LogReader"]

_Found = tuple[int, int] | None


class LogReader:
    """The committed records of one log directory.

    It may be kept: what it learns of the log's segments makes later look-ups cheaper. Its range does not move.

    Attributes:
        directory: of the log.
        log_start_offset: first offset that may be read.
        log_end_offset: the offset after the last record.

    Args:
        directory: of the log.
        log_start_offset: given by a store; otherwise the first segment's base offset.
        log_end_offset: given by a store; otherwise found by a scan, which ignores a torn batch or zeros at the end.
        last_stable_offset: if it is known, for example from another reader of the same range; otherwise found by
            a scan when it is needed.

    Raises:
        StorageError: the directory can't be read.
        CorruptBatchError: the end is asked for, and the last segment ends in bytes that are no batch, in a damaged one,
            or in one that can't be there.
    """

    def __init__(
        self,
        directory: Path,
        *,
        log_start_offset: int | None = None,
        log_end_offset: int | None = None,
        last_stable_offset: int | None = None,
    ) -> None:
        self.directory = directory
        files: list[SegmentFiles] | None = None
        if log_start_offset is None or log_end_offset is None:
            files = list_readable_segments(directory)
        if log_start_offset is None:
            log_start_offset = files[0].base_offset if files else 0
        if log_end_offset is None:
            log_end_offset = max(_scan_end(files[-1]) if files else 0, log_start_offset)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self._segments = SegmentList(directory, log_end_offset, files)
        self._times = TimeLookup(self._segments, log_start_offset, log_end_offset)
        if last_stable_offset is not None:
            self.last_stable_offset = min(max(last_stable_offset, log_start_offset), log_end_offset)

    @cached_property
    def last_stable_offset(self) -> int:
        """First offset of the oldest transaction that is open at the log's end, or that end.

        Raises:
            CorruptBatchError: a transaction marker, or the batch that begins that transaction, is damaged.
        """
        return find_last_stable_offset(self._segments, self.log_start_offset)

    def read(
        self,
        start_offset: int,
        max_records: int | None = None,
        *,
        end_offset: int | None = None,
        isolation: Isolation = "read_uncommitted",
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Return the records from `start_offset` on, in batches of as many records as a chunk of the log holds.

        One chunk at a time is in memory, or one larger batch, and its records decompressed. Control records and offsets
        that compaction removed are passed over. Every CRC is checked.

        Args:
            start_offset: from log start to log end; the end gives nothing.
            max_records: stop after so many.
            end_offset: stop before this offset; the log's end if None or larger.
            isolation: `read_committed` stops at the last stable offset and passes over aborted transactions.
            chunk_bytes: how much of the log to read at once.

        Raises:
            OffsetOutOfRangeError: `start_offset` is outside log start and log end.
            InvalidConfigError: there is no such isolation level.
            CorruptBatchError: while iterating: damage; the records before it were yielded.
            CorruptFileError: while iterating: the files end before the range does.
            OffsetOutOfRangeError: while iterating, too: retention removed what was to be read.
        """
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} is outside {self.log_start_offset}..{self.log_end_offset}: log={self.directory}"
            )
        end = min(self._end_of(isolation), INT64_MAX if end_offset is None else end_offset)
        first_bytes = INT32_MAX if max_records is None else SEEK_BYTES
        walk = LogWalk(self._segments, start_offset, end, chunk_bytes, first_bytes)
        aborted = AbortedBatches(self._segments) if isolation == "read_committed" else None
        limit = INT64_MAX if max_records is None else min(max_records, INT64_MAX)
        return _Records(walk, (start_offset, end), aborted).take(limit)

    def offset_for_time(self, timestamp_ms: int, isolation: Isolation = "read_uncommitted") -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record, in offset order, that is not earlier than `timestamp_ms`.

        Timestamps may go back and forth; the record is not always the one closest in time. Transaction markers count,
        and so do records of aborted transactions, as in Kafka. None if every record is earlier, or if with
        `read_committed` that record lies at or above the last stable offset.
        """
        return _below(self._end_of(isolation), self._look_up(lambda: self._times.first_record_at(timestamp_ms)))

    def offset_of_max_timestamp(self, isolation: Isolation = "read_uncommitted") -> tuple[int, int] | None:
        """Return (offset, timestamp) of the record with the largest timestamp, the first of several, or None.

        None, too, if with `read_committed` that record lies at or above the last stable offset.
        """
        return _below(self._end_of(isolation), self._look_up(self._times.latest_record))

    def _end_of(self, isolation: Isolation) -> int:
        if isolation not in get_args(Isolation):
            raise InvalidConfigError(f"isolation={isolation} is not one of {', '.join(get_args(Isolation))}")
        return self.log_end_offset if isolation == "read_uncommitted" else self.last_stable_offset

    def _look_up(self, look: Callable[[], _Found]) -> _Found:
        """Look at the segments; again if a cleaner merged some of them meanwhile."""
        for _ in range(RELISTINGS):
            try:
                return look()
            except StorageError as error:
                if not is_gone(error):
                    raise
            self._segments.list_again()
        return look()


class _Records:
    """The records of [start, end) that one pass over a log's batches gives."""

    def __init__(self, walk: LogWalk, offsets: tuple[int, int], aborted: AbortedBatches | None) -> None:
        self._walk = walk
        self._offsets = offsets
        self._aborted = aborted
        self._last_offset = -1

    def take(self, max_records: int) -> Iterator[pa.RecordBatch]:
        """Yield so many records; no batch is decoded that they do not need."""
        if max_records <= 0:
            return
        for reader, chunk in self._walk.chunks():
            self._last_offset = max(self._last_offset, self._walk.before_offset)
            sound, error = _sound_part(reader, chunk)
            for part in self._parts(reader, sound, max_records):
                for records in self._decoded(reader, part):
                    yield records.slice(0, min(max_records, records.num_rows))
                    max_records -= records.num_rows
                    if max_records <= 0:
                        return
            if error is not None:
                raise error

    def _parts(self, reader: SegmentReader, chunk: BatchChunk, max_records: int) -> Iterator[BatchChunk]:
        """Yield the chunk without batches that no consumer sees; in parts where a few batches may be enough."""
        scan = chunk.scan
        hidden = ((scan.attributes & CONTROL_BIT) != 0) & (scan.magic >= MAGIC_V2)
        if self._aborted is not None and len(scan):
            hidden |= self._aborted.mask(reader, chunk)
        if hidden.any():
            chunk = chunk.take(~hidden)
            scan = chunk.scan
        if max_records >= INT32_MAX:
            yield chunk
            return
        # A guess is good enough: of the first batch only what lies in the range counts, of others what they hold.
        counts = np.minimum(
            np.where(scan.records_count < 0, 1, scan.records_count), scan.last_offset - self._offsets[0] + 1
        )
        enough, first, wanted = np.cumsum(counts), 0, max_records
        while first < len(scan):
            stop = int(np.searchsorted(enough, wanted)) + 1
            yield chunk.take(slice(first, stop))
            first, wanted = stop, int(enough[min(stop, len(scan)) - 1]) + max_records

    def _decoded(self, reader: SegmentReader, chunk: BatchChunk) -> Iterator[pa.RecordBatch]:
        first_row = 0
        with reader.errors_in(chunk):
            for records in iter_decoded(chunk.data, chunk.scan):
                offsets = int64s(records.column("offset"))
                bad, rows = _first_misplaced(offsets, chunk.scan, self._last_offset, first_row)
                offsets = offsets[:rows]
                start, end = np.searchsorted(offsets, self._offsets)
                if start < end:
                    yield records.slice(int(start), int(end - start))
                if bad is not None:
                    raise CorruptBatchError("batch has records out of order", int(chunk.scan.position[bad]))
                first_row += len(offsets)
                self._last_offset = int(offsets[-1]) if len(offsets) else self._last_offset


def _first_misplaced(
    offsets: npt.NDArray[np.int64], scan: BatchScan, before: int, first_row: int
) -> tuple[int | None, int]:
    """Return the first batch with a record that can't be there, and how many records are certainly before that batch.

    A record is above the one before it, and in v2 inside of its batch. Without such a batch: None, and all.

    Args:
        offsets: of records of the batches, in order.
        scan: the batches.
        before: last offset before the records.
        first_row: how many records of the batches come before these.
    """
    back = np.flatnonzero(offsets[1:] <= offsets[:-1])[:1] + 1
    row = 0 if len(offsets) and offsets[0] <= before else int(back[0]) if len(back) else len(offsets)
    if (scan.magic < MAGIC_V2).any():
        is_behind = row > 0 and scan.magic[-1] == 0 and offsets[row - 1] > scan.last_offset[-1]
        if row == len(offsets) and not is_behind:
            return None, row
        after = int(offsets[row - 1]) if row else before
        bad = min(int(np.searchsorted(scan.last_offset, after, side="right")), len(scan) - 1)
        in_front = int(scan.last_offset[bad - 1]) if bad else -1
        return bad, int(np.searchsorted(offsets[:row], in_front, side="right"))
    ends = np.cumsum(scan.records_count, dtype=np.int64) - first_row
    starts = ends - scan.records_count
    starts, ends = np.maximum(starts, 0), np.minimum(ends, len(offsets))  # of a large batch only a piece may be there
    whole = np.flatnonzero(starts < ends)
    is_outside = offsets[starts[whole]] < scan.base_offset[whole]
    is_outside |= offsets[ends[whole] - 1] > scan.last_offset[whole]
    if is_outside.any():
        row = min(row, int(starts[whole][np.argmax(is_outside)]))
    if row == len(offsets):
        return None, row
    bad = int(np.searchsorted(ends, row, side="right"))
    return bad, int(starts[bad])


def _below(end_offset: int, found: _Found) -> _Found:
    return found if found and found[0] < end_offset else None


def _sound_part(reader: SegmentReader, chunk: BatchChunk) -> tuple[BatchChunk, CorruptBatchError | None]:
    """Return a chunk up to its first batch with a wrong CRC, and what is wrong with that."""
    bad = check_crcs(chunk.data, chunk.scan)
    if not len(bad):
        return chunk, None
    first = int(bad[0])
    return chunk.take(slice(0, first)), reader.wrong_crc(chunk, first)


def _scan_end(segment: SegmentFiles) -> int:
    """Return the offset after the last complete batch of the last segment.

    Nothing else shows where the log ends, so that batch must be sound, and above the one before it. A wrong CRC before
    it costs a reader that batch, and not the log its end.
    """
    with SegmentReader(segment) as reader:
        order, newest = SegmentOrder(reader), None
        try:
            for chunk in reader.last_chunks():
                order.check(chunk)
                newest = chunk
        except CorruptBatchError as error:
            if not reader.ends_in_zeros(error.position):
                raise
        else:
            if reader.valid_bytes < reader.size_bytes and reader.is_length_damaged(reader.valid_bytes):
                raise reader.corrupt_batch("batch has a wrong length:", reader.valid_bytes)
        if newest is not None:
            reader.check_crcs(newest, newest.scan.take(slice(len(newest.scan) - 1, None)))
        return order.previous + 1
