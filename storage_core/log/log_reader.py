"""Reads the records of one log.

A store knows where its logs start and end and says so; of a plain folder the end is found by a scan from the last
segment's last index entry. What lies behind the end is never looked at: it belongs to a micro-batch that is not
committed.

Source: Kafka UnifiedLog.read, LogSegment.read, LocalLog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from storage_core.errors import CorruptBatchError, CorruptFileError, OffsetOutOfRangeError, StorageError
from storage_core.log.segment_reader import BatchChunk, SegmentReader
from storage_core.log.segments import SegmentFiles, floor_segment, list_segments
from storage_core.log.time_lookup import first_record_at, latest_record
from storage_core.record.batch_decode import iter_decoded
from storage_core.record.batch_scan import BatchScan

__all__ = ["LogReader"]

_RELISTINGS: Final = 3

_Found = tuple[int, int] | None


class LogReader:
    """The committed records of one log directory.

    Attributes:
        directory: of the log.
        log_start_offset: first offset that may be read.
        log_end_offset: the offset behind the last record.

    Args:
        directory: of the log.
        log_start_offset: given by a store; otherwise the first segment's base offset.
        log_end_offset: given by a store; otherwise found by a scan, which ignores a torn batch or zeros at the end.

    Raises:
        StorageError: the directory can't be read.
        CorruptBatchError: the end is asked for, and the last segment ends in bytes that are no batch.
    """

    def __init__(
        self, directory: Path, *, log_start_offset: int | None = None, log_end_offset: int | None = None
    ) -> None:
        self.directory = directory
        segments = list_segments(directory) if log_start_offset is None or log_end_offset is None else []
        if log_start_offset is None:
            log_start_offset = segments[0].base_offset if segments else 0
        if log_end_offset is None:
            log_end_offset = max(_scan_end(segments[-1]) if segments else 0, log_start_offset)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def read(self, start_offset: int, max_records: int | None = None) -> Iterator[pa.RecordBatch]:
        """Return the records from `start_offset` on, in batches of a few thousand.

        One batch at a time is in memory: about 1 MiB of the log, or one larger batch, decompressed. Control batches and
        offsets that compaction removed are passed over. Every CRC is checked.

        Args:
            start_offset: from log start to log end; the end gives nothing.
            max_records: stop after so many.

        Raises:
            OffsetOutOfRangeError: `start_offset` is outside log start and log end.
            CorruptBatchError: while iterating: damage; the records before it were yielded.
            CorruptFileError: while iterating: the files end before `log_end_offset`.
            OffsetOutOfRangeError: while iterating, too: retention removed what was to be read.
        """
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} is outside {self.log_start_offset}..{self.log_end_offset}: log={self.directory}"
            )
        records = self._read_segments(start_offset)
        return records if max_records is None else _limit(records, max_records)

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record, in offset order, that is not earlier than `timestamp_ms`.

        Timestamps may go back and forth; the record is not always the one closest in time. Transaction markers count,
        as in Kafka. None if every record is earlier.
        """
        return self._look_up(lambda found: first_record_at(found, timestamp_ms, *self._range))

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the record with the largest timestamp, the first of several, or None."""
        return self._look_up(lambda found: latest_record(found, *self._range))

    @property
    def _range(self) -> tuple[int, int]:
        return self.log_start_offset, self.log_end_offset

    def _look_up(self, look: Callable[[list[SegmentFiles]], _Found]) -> _Found:
        """Look at the segments; again if a cleaner merged some of them meanwhile."""
        for _ in range(_RELISTINGS):
            try:
                return look(self._segments())
            except StorageError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
        return look(self._segments())

    def _segments(self) -> list[SegmentFiles]:
        """The segments that may hold committed records."""
        return [each for each in list_segments(self.directory) if each.base_offset < self.log_end_offset]

    def _read_segments(self, offset: int) -> Iterator[pa.RecordBatch]:
        """Follow the segments from `offset` on.

        A cleaner may merge a listed segment into the one before it while that one is read. The next segment is then
        gone under its name, and the directory is listed again.
        """
        segments, number, relistings = *self._segments_from(offset), 0
        while offset < self.log_end_offset:
            if number == len(segments):
                self._check_complete(offset)
                return
            try:
                reader = SegmentReader(segments[number])
            except StorageError as error:
                if not isinstance(error.__cause__, FileNotFoundError) or relistings == _RELISTINGS:
                    raise
                segments, number, relistings = *self._segments_from(offset), relistings + 1
                continue
            with reader:
                segment = _SegmentRecords(reader, offset, self.log_end_offset)
                yield from segment.read(is_last=number == len(segments) - 1)
                offset = segment.next_offset
            number += 1

    def _segments_from(self, offset: int) -> tuple[list[SegmentFiles], int]:
        """Return the segments and the number of the one to start with.

        Raises:
            OffsetOutOfRangeError: the first segment starts behind the offset: retention removed it, or it was lost.
        """
        segments = self._segments()
        number = floor_segment(segments, offset)
        if number is None and segments and offset < self.log_end_offset:
            first = segments[0].base_offset
            raise OffsetOutOfRangeError(
                f"offset {offset} is gone, the first segment starts at {first}: log={self.directory}"
            )
        return segments, number or 0

    def _check_complete(self, next_offset: int) -> None:
        """Refuse an early end, unless a segment follows: cleaning may have emptied the end of the one before it."""
        if not any(each.base_offset >= self.log_end_offset for each in list_segments(self.directory)):
            raise CorruptFileError(
                f"log ends at offset {next_offset}, its committed end is {self.log_end_offset}: log={self.directory}"
            )


class _SegmentRecords:
    """One pass over a segment's records; `next_offset` moves behind each batch."""

    def __init__(self, reader: SegmentReader, start_offset: int, end_offset: int) -> None:
        self._reader = reader
        self._end_offset = end_offset
        self.next_offset = start_offset

    def read(self, is_last: bool) -> Iterator[pa.RecordBatch]:
        for chunk in self._reader.chunks(self._reader.position_before(self.next_offset)):
            first = int(np.argmax(chunk.scan.last_offset >= self.next_offset))
            if chunk.scan.last_offset[first] < self.next_offset:
                continue
            at_end = chunk.scan.last_offset >= self._end_offset - 1
            stop = int(np.argmax(at_end)) + 1 if at_end.any() else len(at_end)
            yield from self._decode(chunk, first, max(stop, first + 1))
            if self.next_offset >= self._end_offset:
                return
        if not is_last and self._reader.valid_bytes < self._reader.size_bytes:
            raise self._reader.corrupt_batch("closed segment ends inside a batch", self._reader.valid_bytes)

    def _decode(self, chunk: BatchChunk, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        scan = chunk.scan.take(slice(first, stop))
        self._check_offsets(chunk.position, scan)
        self._reader.check_crcs(chunk, scan)
        try:
            for records in iter_decoded(chunk.data, scan):
                offsets = records.column("offset").to_numpy()
                start, end = np.searchsorted(offsets, [self.next_offset, self._end_offset])
                if start < end:
                    yield records.slice(int(start), int(end - start))
        except CorruptBatchError as error:
            raise self._reader.corrupt_batch(str(error.args[0]), chunk.position + error.position) from error
        self.next_offset = int(scan.last_offset[-1]) + 1

    def _check_offsets(self, position: int, scan: BatchScan) -> None:
        """Base offsets are outside the CRC: refuse one that goes back, or lies behind the end that was not yet met."""
        base, last = scan.base_offset, scan.last_offset
        bad = (base > last) | (base >= self._end_offset) | (base < self._reader.files.base_offset)
        bad[1:] |= base[1:] <= last[:-1]
        if bad.any():
            number = int(np.argmax(bad))
            what = f"batch has a wrong base offset: base_offset={base[number]}"
            raise self._reader.corrupt_batch(what, position + int(scan.position[number]))


def _scan_end(segment: SegmentFiles) -> int:
    """Return the offset behind the last complete batch of the last segment."""
    with SegmentReader(segment) as reader:
        next_offset = segment.base_offset
        try:
            for chunk in reader.chunks(reader.position_before(2**63 - 1)):
                next_offset = int(chunk.scan.last_offset[-1]) + 1
        except CorruptBatchError as error:
            if not reader.ends_in_zeros(error.position):
                raise
        return next_offset


def _limit(batches: Iterator[pa.RecordBatch], max_records: int) -> Iterator[pa.RecordBatch]:
    while max_records > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, min(max_records, batch.num_rows))
        max_records -= batch.num_rows
