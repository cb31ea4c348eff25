"""What of a log lies above its recovery point, and how much of that a crash has left.

A killed process leaves all of it in the page cache. A power cut may leave any of it: nothing, a part, zeros of the
right size. The two look alike from here, so every batch above the recovery point is looked at; the indexes are not.

Source: Kafka LogLoader.recoverLog.
"""

from pathlib import Path

from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.segments import SegmentFiles, floor_segment, list_segments
from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import SegmentReader

__all__ = ["first_lost_offset", "unflushed_segments"]


def unflushed_segments(directory: Path, recovery_point: int, end: CommittedEnd) -> list[SegmentFiles]:
    """Return the committed segments with bytes at or above the recovery point; mostly the active one alone.

    Raises:
        StorageError: the directory can't be read.
    """
    segments = [each for each in list_segments(directory) if each.base_offset <= end.segment_base]
    first = floor_segment(segments, min(recovery_point, end.segment_base)) or 0
    return segments[first:]


def first_lost_offset(directory: Path, recovery_point: int, end: CommittedEnd) -> int | None:
    """Return the first committed offset at or above the recovery point that can't be read any more; None: all can.

    Every CRC is computed, in pieces of a few MiB.

    Raises:
        StorageError: the disk refused.
    """
    segments = unflushed_segments(directory, recovery_point, end)
    if end.size_bytes and (not segments or segments[-1].base_offset != end.segment_base):
        return max(recovery_point, end.segment_base)
    next_offset = 0
    for segment in segments:
        is_active = segment.base_offset == end.segment_base
        next_offset, is_whole = _scan(segment, next_offset, recovery_point, end, is_active)
        if not is_whole:
            return next_offset
    return None


def _scan(
    segment: SegmentFiles, next_offset: int, recovery_point: int, end: CommittedEnd, is_active: bool
) -> tuple[int, bool]:
    """Return the offset after the last sound batch of a segment, and whether that is the last one of all."""
    with SegmentReader(segment) as reader:
        wanted = end.size_bytes if is_active else reader.size_bytes
        reader.size_bytes = min(reader.size_bytes, wanted)
        order = SegmentOrder(reader, next_offset - 1)
        error = order.follow(reader.chunks_from(recovery_point), end.log_end_offset)
        return order.previous + 1, error is None and reader.valid_bytes == wanted
