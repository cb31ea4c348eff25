"""Where reading can go on behind what can't be read.

A damaged batch costs its own records, as long as its header tells where it ends, or the offset index knows a sound
batch behind it. Otherwise the rest of its segment is lost.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from storage_core.errors import CorruptBatchError, LogStorageError
from storage_core.index.offset_index import OffsetIndex
from storage_core.log.segment_reader import BatchChunk, SegmentReader, announced_size, scan_up_to_damage
from storage_core.log.segments import floor_segment, list_readable_segments
from storage_core.record.batch_header import LOG_OVERHEAD_BYTES
from storage_core.record.batch_scan import check_crcs
from storage_core.storage.local import storage_errors

__all__ = ["next_indexed_offset", "next_offset"]

_Finder = Callable[[SegmentReader, int, int], int | None]


def next_offset(directory: Path, offset: int, end_offset: int) -> int:
    """Return the offset behind the batch that holds `offset`, as far as its header can be believed.

    Otherwise the same as `next_indexed_offset`.

    Args:
        directory: of the log.
        offset: the first that could not be read.
        end_offset: behind the last that is wanted.

    Returns:
        an offset above `offset`, `end_offset` at most.
    """
    return _find(directory, offset, end_offset, [_behind_batch, _behind_indexed_batch])


def next_indexed_offset(directory: Path, offset: int, end_offset: int) -> int:
    """Return the offset behind the next sound batch that the offset index leads to, or the next segment's first.

    A reader that starts there does not meet what lies in front. Arguments and result as of `next_offset`.
    """
    return _find(directory, offset, end_offset, [_behind_indexed_batch])


def _find(directory: Path, offset: int, end_offset: int, finders: Sequence[_Finder]) -> int:
    try:
        segments = list_readable_segments(directory)
    except LogStorageError:
        return end_offset
    following = next((each.base_offset for each in segments if each.base_offset > offset), end_offset)
    limit = min(following, end_offset)
    number = floor_segment(segments, offset)
    if number is None:
        return limit
    try:
        with SegmentReader(segments[number]) as reader:
            found = (find(reader, offset, limit) for find in finders)
            return min(next((each for each in found if each is not None), limit), limit)
    except LogStorageError:
        return limit


def _behind_batch(reader: SegmentReader, offset: int, limit: int) -> int | None:
    """Return the offset behind the batch that holds `offset`, if headers up to there, and its own, make sense."""
    try:
        for chunk in reader.chunks(reader.position_before(offset)):
            holders = np.flatnonzero(chunk.scan.last_offset >= offset)
            if len(holders):
                return _following(chunk, int(holders[0]), offset, limit)
    except CorruptBatchError:
        pass
    return None


def _following(chunk: BatchChunk, number: int, offset: int, limit: int) -> int | None:
    """Return the offset behind a batch of a chunk; its header is not trusted beyond the next one's base offset."""
    following = int(chunk.scan.last_offset[number]) + 1
    if number + 1 < len(chunk.scan):
        following = min(following, int(chunk.scan.base_offset[number + 1]))
    return following if offset < following <= limit else None


def _behind_indexed_batch(reader: SegmentReader, offset: int, limit: int) -> int | None:
    """Return the offset behind the first sound batch that ends above `offset` and that the offset index leads to."""
    path = reader.files.index_path
    with storage_errors(path):
        index = OffsetIndex.from_bytes(path.read_bytes() if path.exists() else b"", reader.files.base_offset)
    above = (index.offsets > offset) & (index.offsets < limit)
    for last_offset, position in zip(index.offsets[above].tolist(), index.positions[above].tolist(), strict=True):
        if _is_sound(reader, position):
            return int(last_offset) + 1
    return None


def _is_sound(reader: SegmentReader, position: int) -> bool:
    if not 0 <= position < reader.size_bytes:
        return False
    size = announced_size(reader.read(position, LOG_OVERHEAD_BYTES))
    if not LOG_OVERHEAD_BYTES < size <= reader.size_bytes - position:
        return False
    batch = reader.read(position, size)
    scan, error = scan_up_to_damage(batch)
    return error is None and len(scan.position) == 1 and not len(check_crcs(batch, scan))
