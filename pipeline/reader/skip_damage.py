"""Where reading can go on behind what can't be read.

A damaged batch costs its own records, as long as its header tells where it ends, or the offset index knows a sound
batch behind it. Otherwise the rest of its segment is lost.

Reading from an offset starts at the index entry in front of it, which is amid the damage. So the sound batch that the
index leads to is handed out as it is, and reading goes on behind it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from storage_core.errors import CorruptBatchError, LogStorageError
from storage_core.index.offset_index import OffsetIndex
from storage_core.log.segment_reader import BatchChunk, SegmentReader, announced_size, scan_up_to_damage
from storage_core.log.segments import floor_segment, list_readable_segments
from storage_core.record.batch_header import LOG_OVERHEAD_BYTES, MAGIC_V2
from storage_core.record.batch_scan import BatchScan, check_crcs
from storage_core.storage.local import storage_errors

__all__ = ["Resumption", "SoundBatch", "skip_batch", "skip_to_index"]


@dataclass(frozen=True, slots=True)
class SoundBatch:
    """One batch that is what was written.

    Attributes:
        base_offset, last_offset: of it.
        data: its bytes.
        scan: its header.
    """

    base_offset: int
    last_offset: int
    data: bytes
    scan: BatchScan


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where reading goes on.

    Attributes:
        next_offset: what lies in front of it is skipped.
        batch: but for this one, if there is one.
    """

    next_offset: int
    batch: SoundBatch | None = None


_Finder = Callable[[SegmentReader, int, int], Resumption | None]
_UP_TO_MAGIC_BYTES = 17


def skip_batch(directory: Path, offset: int, end_offset: int) -> Resumption:
    """Return to go on behind the batch that holds `offset`, as far as its header can be believed.

    Otherwise the same as `skip_to_index`.

    Args:
        directory: of the log.
        offset: the first that could not be read.
        end_offset: behind the last that is wanted.

    Returns:
        an offset above `offset`, `end_offset` at most; a batch that ends in front of it, and above `offset`.
    """
    return _find(directory, offset, end_offset, [_behind_batch, _behind_indexed_batch])


def skip_to_index(directory: Path, offset: int, end_offset: int) -> Resumption:
    """Return to go on behind the next sound batch that the offset index leads to, or with the next segment.

    A reader that starts there does not meet what lies in front. Arguments and result as of `skip_batch`.
    """
    return _find(directory, offset, end_offset, [_behind_indexed_batch])


def _find(directory: Path, offset: int, end_offset: int, finders: Sequence[_Finder]) -> Resumption:
    try:
        segments = list_readable_segments(directory)
    except LogStorageError:
        return Resumption(end_offset)
    following = next((each.base_offset for each in segments if each.base_offset > offset), end_offset)
    limit = min(following, end_offset)
    number = floor_segment(segments, offset)
    if number is None:
        return Resumption(limit)
    try:
        with SegmentReader(segments[number]) as reader:
            found = (find(reader, offset, limit) for find in finders)
            return next((each for each in found if each is not None), Resumption(limit))
    except LogStorageError:
        return Resumption(limit)


def _behind_batch(reader: SegmentReader, offset: int, limit: int) -> Resumption | None:
    """Return to go on behind the batch that holds `offset`, if headers up to there, and its own, make sense."""
    try:
        for chunk in reader.chunks(reader.position_before(offset)):
            holders = np.flatnonzero(chunk.scan.last_offset >= offset)
            if len(holders):
                following = _following(reader, chunk, int(holders[0]))
                return Resumption(following) if offset < following <= limit else None
    except CorruptBatchError:
        pass
    return None


def _following(reader: SegmentReader, chunk: BatchChunk, number: int) -> int:
    """Return the offset behind a batch of a chunk; its header is not trusted beyond the next one's base offset."""
    following = int(chunk.scan.last_offset[number]) + 1
    position = chunk.position + int(chunk.scan.position[number] + chunk.scan.size[number])
    head = reader.read(position, _UP_TO_MAGIC_BYTES)
    if len(head) < _UP_TO_MAGIC_BYTES or announced_size(head) <= LOG_OVERHEAD_BYTES:
        return following  # nothing follows, or zeros
    return min(following, int.from_bytes(head[:8], "big", signed=True))


def _behind_indexed_batch(reader: SegmentReader, offset: int, limit: int) -> Resumption | None:
    """Return to go on behind the first sound batch that ends above `offset` and that the offset index leads to.

    Base offsets are outside the CRC. So the batch itself counts only if the index knows its last offset, too; an entry
    may also stand for several batches that were appended at once.
    """
    path = reader.files.index_path
    with storage_errors(path):
        index = OffsetIndex.from_bytes(path.read_bytes() if path.exists() else b"", reader.files.base_offset)
    above = (index.offsets > offset) & (index.offsets < limit)
    for last_offset, position in zip(index.offsets[above].tolist(), index.positions[above].tolist(), strict=True):
        batch = _sound_batch(reader, position)
        if batch is not None:
            is_known = int(batch.scan.magic[0]) >= MAGIC_V2 and batch.last_offset == last_offset
            return Resumption(int(last_offset) + 1, batch if is_known else None)
    return None


def _sound_batch(reader: SegmentReader, position: int) -> SoundBatch | None:
    if not 0 <= position < reader.size_bytes:
        return None
    size = announced_size(reader.read(position, LOG_OVERHEAD_BYTES))
    if not LOG_OVERHEAD_BYTES < size <= reader.size_bytes - position:
        return None
    data = reader.read(position, size)
    scan, error = scan_up_to_damage(data)
    if error is not None or len(scan.position) != 1 or len(check_crcs(data, scan)):
        return None
    return SoundBatch(int(scan.base_offset[0]), int(scan.last_offset[0]), data, scan)
