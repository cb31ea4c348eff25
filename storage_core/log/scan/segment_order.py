"""The judge of base offsets: they are outside a batch's CRC, so only the batches around a batch show a wrong one.

A batch begins above the one before it, not below its segment's base, and does not end before it begins; it ends within
2^31 - 1 offsets of that base, which is what an index can hold, and below the end that the caller gives. Kafka does not
look: it skips records, or fails at an index entry.

Readers, recovery, cleaner, conversion and the opening of a store ask here. `PartitionLog` is laxer, see there; and
`inspect/verify/offset_walk` asks which of two batches is the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.batch_scan import BatchScan, check_crcs

__all__ = ["SegmentOrder"]

_Int64s = npt.NDArray[np.int64]


class SegmentOrder:
    """The order of the batches of one segment.

    Attributes:
        previous: last offset before the batches that are judged next; never below the segment's base minus one.

    Args:
        reader: of the segment.
        previous: last offset of the segments before, where it is known.
    """

    def __init__(self, reader: SegmentReader, previous: int = -1) -> None:
        self._reader = reader
        self._base_offset = reader.files.base_offset
        self.previous = max(previous, self._base_offset - 1)

    def first_wrong(self, scan: BatchScan, count: int, end_offset: int = INT64_MAX) -> int | None:
        """Return the first of the leading batches that can't be where it is, or None; `previous` stays.

        Args:
            scan: batches that follow each other.
            count: how many of them to look at.
            end_offset: no batch reaches it: the log's end, or the base of the next segment.
        """
        first = min(self.judge(scan, count, end_offset))
        return first if first < count else None

    def judge(self, scan: BatchScan, count: int, end_offset: int = INT64_MAX) -> tuple[int, int]:
        """Return the first of the leading batches that goes back, and the first that ends too far on; or `count`."""
        limit = min(self._base_offset + INT32_MAX, INT64_MAX, end_offset - 1)
        return _find_misplaced(scan.base_offset[:count], scan.last_offset[:count], self.previous, limit)

    def check(self, chunk: BatchChunk, end_offset: int = INT64_MAX) -> None:
        """Refuse a chunk with a batch that can't be where it is; otherwise continue after it.

        Raises:
            CorruptBatchError: names the batch.
        """
        wrong = self.first_wrong(chunk.scan, len(chunk.scan), end_offset)
        if wrong is not None:
            raise self.error(chunk, wrong)
        self.previous = int(chunk.scan.last_offset[-1])

    def follow(self, chunks: Iterable[BatchChunk], end_offset: int = INT64_MAX) -> CorruptBatchError | None:
        """Continue after the last batch whose CRC and place are right, and return what is wrong there, or None.

        Raises:
            StorageError: the disk refused.
        """
        try:
            for chunk in chunks:
                wrong = check_crcs(chunk.data, chunk.scan)
                count = int(wrong[0]) if len(wrong) else len(chunk.scan)
                good = min(self.judge(chunk.scan, count, end_offset))
                if good:
                    self.previous = int(chunk.scan.last_offset[good - 1])
                if good < len(chunk.scan):
                    return self._reader.wrong_crc(chunk, good) if good == count else self.error(chunk, good)
        except CorruptBatchError as error:
            return error
        return None

    def error(self, chunk: BatchChunk, number: int) -> CorruptBatchError:
        """Return the error that names a batch of a chunk."""
        what = f"batch has a wrong base offset: {self.describe(chunk.scan, number)}"
        return self._reader.corrupt_batch(what, chunk.start_of(number))

    def describe(self, scan: BatchScan, number: int) -> str:
        """Return a batch's offsets, and the last one before it, for an error."""
        after = scan.last_offset[number - 1] if number else self.previous
        return f"base_offset={scan.base_offset[number]} last_offset={scan.last_offset[number]} after={after}"


def _find_misplaced(base_offset: _Int64s, last_offset: _Int64s, previous: int, limit: int) -> tuple[int, int]:
    """Return the first batch that goes back, and the first before it above `limit`; or how many there are."""
    count = len(base_offset)
    goes_back = last_offset < base_offset
    goes_back[:1] |= base_offset[:1] <= previous
    goes_back[1:] |= base_offset[1:] <= last_offset[:-1]
    first = int(np.argmax(goes_back)) if goes_back.any() else count
    is_beyond = last_offset[:first] > limit
    return first, int(np.argmax(is_beyond)) if is_beyond.any() else count
