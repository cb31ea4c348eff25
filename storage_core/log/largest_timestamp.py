"""The largest timestamp of a segment: the last time entry's, or one of a batch behind that entry.

A closed segment's last entry is mostly its last batch, so that next to nothing is read behind it.

Source: Kafka LogSegment.largestTimestamp, LogSegment.maxTimestampSoFar.
"""

from __future__ import annotations

from storage_core.errors import CorruptBatchError
from storage_core.log.segment_reader import SegmentReader, find_time
from storage_core.log_config import INT64_MAX

__all__ = ["largest_timestamp"]


def largest_timestamp(reader: SegmentReader, next_offset: int) -> int:
    """Return the largest timestamp of a segment's batches, -1 if none has one.

    Args:
        reader: of the segment; bytes behind its `size_bytes` do not count.
        next_offset: where the next segment starts, or the log ends.
    """
    latest, offset = find_time(reader.files, INT64_MAX)
    if latest >= 0 and offset >= next_offset - 1:
        return latest
    try:
        for chunk in reader.chunks(reader.position_before(offset)):
            committed = chunk.scan.max_timestamp[chunk.scan.base_offset < next_offset]
            latest = max(latest, int(committed.max(initial=-1)))
    except CorruptBatchError:
        pass  # verifying says what is wrong
    return latest
