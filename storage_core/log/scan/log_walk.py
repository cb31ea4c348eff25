"""Follows the batches of a log from an offset on, over its segments.

Files change under a reader: a segment is rolled, a cleaner merges some into one, retention removes the oldest. Open
files stay readable, closed segments change only together with their file, and a listed file that is gone is the sign to
list the directory again and to continue from the same offset.

Base offsets are outside a batch's CRC. So every batch that is passed must begin above the one before it, also across
chunks and segments, end below the log's end, and lie within the offsets that a segment may hold: otherwise one
flipped bit would make a reader pass over records in silence.

Source: Kafka UnifiedLog.read, LocalLog.read, LogSegment.read.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Final

import numpy as np

from sparklog.storage_core.errors import CorruptFileError, OffsetOutOfRangeError, StorageError
from sparklog.storage_core.log.files.segments import SegmentFiles, floor_segment, list_readable_segments
from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import CHUNK_BYTES, BatchChunk, SegmentReader
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.attributes import CODEC_MASK
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan

__all__ = ["RELISTINGS", "LogWalk", "SegmentList", "is_gone"]

RELISTINGS: Final = 20
"""How often in a row a listed file may be gone before that is an error: a cleaner at work renames one after another."""


class SegmentList:
    """The segments of a log that may hold committed records, as they were listed last.

    Attributes:
        directory: of the log.
        end_offset: of the log; segments that start there or later are left out.
        files: in order of their base offsets.
    """

    def __init__(self, directory: Path, end_offset: int, files: list[SegmentFiles] | None = None) -> None:
        self.directory = directory
        self.end_offset = end_offset
        self._first_base: int | None = None
        self._files = None if files is None else self._committed(files)

    @property
    def files(self) -> list[SegmentFiles]:
        """The segments; listed when first asked for. The same list until it is listed again."""
        if self._files is None:
            self.list_again()
        return self._files or []

    def list_again(self) -> None:
        """Look at the directory: a listed file is gone."""
        self._files = self._committed(list_readable_segments(self.directory))

    def number_of(self, offset: int) -> int:
        """Return the number of the segment to look for an offset in; 0 if there are none.

        Raises:
            OffsetOutOfRangeError: the first segment starts above the offset: retention removed it, or it was lost.
        """
        number = floor_segment(self.files, offset)
        if number is None and self._first_base is not None and offset < self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is gone, the first segment starts at {self._first_base}: log={self.directory}"
            )
        return number or 0

    def _committed(self, files: list[SegmentFiles]) -> list[SegmentFiles]:
        self._first_base = files[0].base_offset if files else None  # also where that is above the end: all is gone
        return [each for each in files if each.base_offset < self.end_offset]


class LogWalk:
    """One pass over the batches that hold offsets of [start, end).

    Attributes:
        next_offset: after the batches yielded so far.
        before_offset: last offset of the batch before those that were yielded last, as far as it was met.

    Args:
        segments: of the log.
        start_offset: first offset wanted.
        end_offset: one above the last offset wanted, at most the log's end.
        chunk_bytes: most that is read at once, unless a batch is larger.
        first_bytes: what to read first; then more and more up to `chunk_bytes`.
    """

    def __init__(
        self,
        segments: SegmentList,
        start_offset: int,
        end_offset: int,
        chunk_bytes: int = CHUNK_BYTES,
        first_bytes: int = INT32_MAX,
    ) -> None:
        self.next_offset = start_offset
        self.before_offset = -1
        self._segments = segments
        self._end_offset = min(end_offset, segments.end_offset)
        self._sizes = (chunk_bytes, first_bytes)
        self._files: list[SegmentFiles] = []
        self._number: int | None = None

    def chunks(self) -> Generator[tuple[SegmentReader, BatchChunk], None, None]:
        """Yield an open segment and some of its batches, without those that lie outside the range.

        The first batch may begin before the range, and the last one end above it.

        Raises:
            OffsetOutOfRangeError: retention removed what was to be read.
            CorruptBatchError: a batch's length, or its place among the others, can't be right.
            CorruptFileError: the files end before the range does, or segments overlap.
            StorageError: the disk refused.
        """
        while self.next_offset < self._end_offset:
            reader = self._open_next()
            if reader is None:
                self._check_complete()
                return
            with reader:
                yield from self._segment_chunks(reader)

    def _open_next(self) -> SegmentReader | None:
        for tries_left in range(RELISTINGS, -1, -1):
            if self._files is not self._segments.files:  # listed again, perhaps by another caller
                self._files, self._number = self._segments.files, None
            is_first = self._number is None
            number = self._segments.number_of(self.next_offset) if self._number is None else self._number
            if number >= len(self._files):
                return None
            files = self._files[number]
            try:
                reader = SegmentReader(files)
            except StorageError as error:
                if not is_gone(error) or not tries_left:
                    raise
                self._segments.list_again()
                continue
            self._number = number + 1
            if not is_first and files.base_offset < self.next_offset and not self._is_replaced(number):
                reader.close()
                raise _overlap(files, self.next_offset)
            return reader
        return None

    def _is_replaced(self, number: int) -> bool:
        """Whether a segment may be one of those that a swap before it stands for, and which are being renamed."""
        return any(each.is_swap for each in self._files[:number])

    def _segment_chunks(self, reader: SegmentReader) -> Generator[tuple[SegmentReader, BatchChunk], None, None]:
        is_last = self._number == len(self._files)
        order = SegmentOrder(reader)
        for chunk in reader.chunks_from(self.next_offset, *self._sizes):
            last = chunk.scan.last_offset
            at_end = last >= self._end_offset - 1
            has_end = bool(at_end.any())
            stop = int(np.argmax(at_end)) + 1 if has_end else len(at_end)
            bad, before = self._first_wrong(order, chunk.scan, stop), order.previous
            if bad is not None:
                stop = max(bad - 1, 0)  # the one before it may be what is wrong
            elif has_end:
                self._check_follower(reader, chunk, stop - 1)
                stop -= _starts_at_or_behind(self._end_offset, chunk.scan, stop - 1)
            first = int(np.argmax(last[:stop] >= self.next_offset)) if stop else 0
            if stop and last[first] >= self.next_offset:
                self.next_offset = int(last[stop - 1]) + 1
                self.before_offset = int(last[first - 1]) if first else before
                yield reader, chunk.take(slice(first, stop))
            if bad is not None:
                raise order.error(chunk, bad)
            order.previous = int(last[-1])
            if has_end:
                self.next_offset = self._end_offset
                return
        if not is_last:
            reader.check_end()

    def _first_wrong(self, order: SegmentOrder, scan: BatchScan, count: int) -> int | None:
        """Return the first batch that can't be where it is.

        Where the log has grown since its end was taken, a cleaner may have put what came later into this segment, and
        have left nothing before it: a batch wholly above that end is then no more than the end of the range.
        """
        end_offset = self._segments.end_offset
        bad = order.first_wrong(scan, count, end_offset)
        if bad is None or scan.base_offset[bad] < end_offset:
            return bad
        now = list_readable_segments(self._segments.directory)
        has_grown = any(each.base_offset > end_offset for each in now)
        return order.first_wrong(scan, count) if has_grown else bad

    def _check_follower(self, reader: SegmentReader, chunk: BatchChunk, number: int) -> None:
        """Refuse the batch that ends the range if what follows proves that it can't be there.

        Above the log's end lies what is not committed, and may be anything; only a sound batch that belongs below
        that end counts there.
        """
        last_offset = int(chunk.scan.last_offset[number])
        is_log_end = last_offset + 1 >= self._segments.end_offset
        position = chunk.end_of(number)
        base_offset = reader.base_offset_at(position)
        if base_offset is not None:
            if base_offset <= last_offset and (not is_log_end or reader.is_batch_before(position, last_offset)):
                raise reader.corrupt_batch(f"batch has a wrong base offset: base_offset={base_offset}", position)
            return
        for files in self._files[self._number : self._number + 1] if self._number is not None else ():
            if files.base_offset <= last_offset and not reader.files.is_swap and files.log_path.exists():
                raise _overlap(files, last_offset + 1)

    def _check_complete(self) -> None:
        """Refuse an early end, unless a segment follows: cleaning may have emptied the end of the one before it."""
        segments = list_readable_segments(self._segments.directory)
        if not any(each.base_offset >= self._end_offset for each in segments):
            raise CorruptFileError(
                f"log ends at offset {self.next_offset}, its committed end is {self._end_offset}: "
                f"log={self._segments.directory}"
            )


def is_gone(error: StorageError) -> bool:
    """Whether the file was not there: a cleaner or retention may have removed it."""
    return isinstance(error.__cause__, FileNotFoundError)


def _starts_at_or_behind(offset: int, scan: BatchScan, number: int) -> bool:
    """Whether a batch certainly holds nothing below an offset.

    A compressed entry of format v0 or v1 has the offset of its last record, so where it begins is not known.
    """
    is_wrapper = scan.magic[number] < MAGIC_V2 and scan.attributes[number] & CODEC_MASK
    return not is_wrapper and bool(scan.base_offset[number] >= offset)


def _overlap(files: SegmentFiles, next_offset: int) -> CorruptFileError:
    return CorruptFileError(
        f"segment overlaps the one before it, which reaches offset {next_offset}: file={files.log_path}"
    )
