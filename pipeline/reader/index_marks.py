"""Reads offset index entries of the segments that hold a range of offsets, to plan splits.

Finds the entries by bisection in the file, so that micro-batches over a large active segment are planned fast.
"""

import os
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sparklog.storage_core.index.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex
from sparklog.storage_core.log.files.segments import SegmentFiles, floor_segment
from sparklog.storage_core.log.read.split_plan import SegmentMarks
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import open_to_read

__all__ = ["read_marks"]

_MOST_MARKS = 4096
_ABOVE_ALL = 2**63 - 1


def read_marks(
    segments: Sequence[SegmentFiles], start_offset: int, end_offset: int, range_bytes: int
) -> list[SegmentMarks]:
    """Return sizes and index entries of the segments that hold offsets of [start, end).

    Args:
        segments: of one log, in order.
        end_offset: above the last.
        range_bytes: a segment of at most this size that lies wholly in the range gets no index entries.

    Raises:
        StorageError: an index can't be read. A missing file is no error: the segment may have been deleted meanwhile.
    """
    first = floor_segment(segments, start_offset) or 0
    marks = []
    for number, segment in enumerate(segments[first:], first):
        if segment.base_offset >= end_offset:
            break
        following = segments[number + 1].base_offset if number + 1 < len(segments) else _ABOVE_ALL
        is_whole = start_offset <= segment.base_offset and following <= end_offset
        size_bytes = _size(segment.log_path)
        if is_whole and size_bytes <= range_bytes:
            none = np.empty(0, np.int64)
            marks.append(SegmentMarks(segment.base_offset, size_bytes, none, none))
            continue
        index = _read_entries(segment, start_offset, end_offset)
        step = slice(None, None, max(len(index) // _MOST_MARKS, 1))
        marks.append(SegmentMarks(segment.base_offset, size_bytes, index.offsets[step], index.positions[step]))
    return marks


class _IndexFile(Sequence[int]):
    """The offsets of an index file's entries, read one at a time; padding is above every offset."""

    def __init__(self, descriptor: int, base_offset: int) -> None:
        self._descriptor = descriptor
        self._base_offset = base_offset
        self._count = os.fstat(descriptor).st_size // OFFSET_ENTRY_BYTES

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, slot: int) -> int:  # type: ignore[override]
        data = os.pread(self._descriptor, OFFSET_ENTRY_BYTES, slot * OFFSET_ENTRY_BYTES)
        if slot and data == bytes(OFFSET_ENTRY_BYTES):
            return _ABOVE_ALL
        return self._base_offset + int.from_bytes(data[:4], "big")


def _read_entries(segment: SegmentFiles, start_offset: int, end_offset: int) -> OffsetIndex:
    """Return the entries from the last one below the start to the first one at or above the end."""
    path = segment.index_path
    with storage_errors(path):
        try:
            descriptor = open_to_read(path)
        except FileNotFoundError:
            return OffsetIndex(b"", segment.base_offset)
        try:
            file = _IndexFile(descriptor, segment.base_offset)
            low = max(bisect_left(file, start_offset) - 1, 0)
            high = min(bisect_left(file, end_offset, lo=low) + 1, len(file))
            data = os.pread(descriptor, (high - low) * OFFSET_ENTRY_BYTES, low * OFFSET_ENTRY_BYTES)
        finally:
            os.close(descriptor)
    return OffsetIndex(data, segment.base_offset)


def _size(path: Path) -> int:
    with storage_errors(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0
