"""Finds records by timestamp: segment, time index, offset index, batch headers, then the records of one batch.

A closed segment's largest timestamp is the last entry of its time index. It is kept, so that only the first look-up
reads all of them: a cleaner can only make it smaller, and where one merged segments, a listed file is gone, which makes
the reader list and look again.

Source: Kafka UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp, FileRecords.searchForTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.scan.log_walk import SegmentList
from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import CHUNK_BYTES, SEEK_BYTES, BatchChunk, SegmentReader, find_time
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.record.schema import int64s

__all__ = ["TimeLookup"]

_NONE: Final = -1


class TimeLookup:
    """Looks for timestamps among the records of [start, end), transaction markers included, as Kafka does.

    Args:
        segments: of the log.
        start_offset: first offset that counts.
        end_offset: one above the last offset that counts.
    """

    def __init__(self, segments: SegmentList, start_offset: int, end_offset: int) -> None:
        self._segments = segments
        self._range = start_offset, end_offset
        self._listed: list[SegmentFiles] | None = None
        self._largest = np.empty(0, np.int64)
        self._is_known = np.empty(0, np.bool_)

    def first_record_at(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record, in offset order, that is not earlier, or None.

        Raises:
            StorageError: the disk refused; its cause is a `FileNotFoundError` if a listed segment is gone.
            CorruptBatchError: a batch that is looked at is damaged.
        """
        files = self._current_files()
        for number in np.flatnonzero(self._largest >= timestamp).tolist():
            if self._largest_timestamp(number) < timestamp:
                continue
            with SegmentReader(files[number]) as reader:
                found = self._first_in_segment(reader, timestamp)
            if found:
                return found
            self._largest[number] = max(timestamp, -INT64_MAX) - 1  # of the records that count
        return None

    def latest_record(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record with the largest timestamp, or None.

        Raises:
            StorageError: the disk refused; its cause is a `FileNotFoundError` if a listed segment is gone.
            CorruptBatchError: a batch that is looked at is damaged.
        """
        files = self._current_files()
        for number in np.flatnonzero(~self._is_known).tolist():
            self._largest_timestamp(number)
        best: tuple[int, int] | None = None
        for number in np.argsort(-self._largest, kind="stable").tolist():
            if best and self._largest[number] < best[1]:
                break
            if best and self._largest[number] == best[1] and files[number].base_offset > best[0]:
                continue
            with SegmentReader(files[number]) as reader:
                found = self._latest_in_segment(reader)
            if found and (best is None or (found[1], -found[0]) > (best[1], -best[0])):
                best = found
        return best

    def _current_files(self) -> list[SegmentFiles]:
        """Return the listed segments; what is known of others is forgotten."""
        files = self._segments.files
        if self._listed is not files:
            self._listed = files
            self._largest = np.full(len(files), INT64_MAX)
            self._is_known = np.arange(len(files)) == len(files) - 1  # the last one may grow
        return files

    def _largest_timestamp(self, number: int) -> int:
        """Return the largest timestamp that a segment may hold; `INT64_MAX` where it is not known."""
        if not self._is_known[number]:
            self._is_known[number] = True
            files = self._segments.files[number]
            found = _NONE if files.is_swap else find_time(files, INT64_MAX)[0]  # the index may be the old segment's
            self._largest[number] = INT64_MAX if found == _NONE else found
        return int(self._largest[number])

    def _first_in_segment(self, reader: SegmentReader, timestamp: int) -> tuple[int, int] | None:
        """Look from the last entry not above the timestamp on: every later record has a larger offset."""
        first_offset = max(find_time(reader.files, timestamp)[1], self._range[0])
        for chunk, wanted in _batches_from(reader, first_offset, self._end_of(reader)):
            for batch in np.flatnonzero(wanted & (chunk.scan.max_timestamp >= timestamp)).tolist():
                for offsets, timestamps in self._records(reader, chunk, batch):
                    hits = timestamps >= timestamp
                    if hits.any():
                        return int(offsets[np.argmax(hits)]), int(timestamps[np.argmax(hits)])
        return None

    def _latest_in_segment(self, reader: SegmentReader) -> tuple[int, int] | None:
        """Look from the last time entry on: every record with a larger timestamp has a larger offset.

        Unless that batch is partly outside the range: what was the largest timestamp may not count, so look at all.
        """
        start_offset, end_offset = self._range
        timestamp, first_offset = find_time(reader.files, INT64_MAX)
        if timestamp == _NONE or not start_offset < first_offset < end_offset:
            first_offset = start_offset
        best: tuple[int, int] | None = None
        for chunk, wanted in _batches_from(reader, first_offset, self._end_of(reader)):
            headers = np.where(wanted, chunk.scan.max_timestamp, _NONE)
            while headers.max() > (best[1] if best else _NONE):
                batch = int(np.argmax(headers))
                for offsets, timestamps in self._records(reader, chunk, batch):
                    if len(offsets) and timestamps.max() > (best[1] if best else _NONE):
                        best = int(offsets[np.argmax(timestamps)]), int(timestamps.max())
                headers[batch] = _NONE
        return best

    def _end_of(self, reader: SegmentReader) -> int:
        """Return where the next segment begins, or the log ends: what a segment's batches can't reach."""
        files = self._segments.files
        number = next((number for number, each in enumerate(files) if each is reader.files), len(files))
        for following in files[number + 1 : number + 2]:
            if not reader.files.is_swap and following.log_path.exists():
                return following.base_offset
        return self._range[1]

    def _records(
        self, reader: SegmentReader, chunk: BatchChunk, batch: int
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield offsets and timestamps of those records of one batch that count, some at a time."""
        scan = chunk.scan.take(slice(batch, batch + 1))
        reader.check_crcs(chunk, scan)
        for records in iter_decoded(chunk.data, scan, include_control=True):
            offsets, timestamps = int64s(records.column("offset")), int64s(records.column("timestamp"))
            counts = (offsets >= self._range[0]) & (offsets < self._range[1])
            yield offsets[counts], timestamps[counts]


def _batches_from(
    reader: SegmentReader, first_offset: int, end_offset: int
) -> Iterator[tuple[BatchChunk, npt.NDArray[np.bool_]]]:
    """Yield chunks, and which of their batches may hold offsets of [first, end).

    Args:
        reader: of the segment.
        first_offset: that may count.
        end_offset: of the log, or where the next segment begins.

    Raises:
        CorruptBatchError: a batch can't be where it is; those before it were yielded, but for the last, which may
            be what is wrong.
    """
    order = SegmentOrder(reader)
    for chunk in reader.chunks_from(first_offset, CHUNK_BYTES, SEEK_BYTES):
        scan = chunk.scan
        at_end = scan.last_offset >= end_offset - 1
        stop = int(np.argmax(at_end)) + 1 if at_end.any() else len(at_end)
        bad = order.first_wrong(scan, stop, end_offset)
        follower = None if at_end.any() or bad is not None else reader.base_offset_at(chunk.end_of(stop - 1))
        wanted = scan.last_offset >= first_offset
        wanted[stop if bad is None else max(bad - 1, 0) :] = False
        if follower is not None and follower <= scan.last_offset[stop - 1]:
            bad, wanted[stop - 1] = stop - 1, False
        yield chunk, wanted
        if bad is not None:
            raise order.error(chunk, bad)
        if at_end.any():
            return
        order.previous = int(scan.last_offset[-1])
