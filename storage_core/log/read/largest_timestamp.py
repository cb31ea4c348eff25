"""The largest timestamp of a segment: the last time entry's, or one of a batch above that entry.

A closed segment's last entry is mostly its last batch, so little is read after it. Where records are deleted by
it, all that is read has to be sound; to show it, what can be read is enough.

Source: Kafka LogSegment.largestTimestamp, LogSegment.maxTimestampSoFar.
"""

from __future__ import annotations

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader, find_time
from sparklog.storage_core.log_config import INT64_MAX

__all__ = ["largest_timestamp", "proven_largest_timestamp"]


def largest_timestamp(reader: SegmentReader, next_offset: int) -> int:
    """Return the largest timestamp of a segment's batches before damage, -1 if none has one.

    To be shown, not to delete by: see `proven_largest_timestamp`.

    Args:
        reader: of the segment; bytes past its `size_bytes` do not count.
        next_offset: where the next segment starts, or the log ends.
    """
    latest, offset = find_time(reader.files, INT64_MAX)
    if latest >= 0 and offset >= next_offset - 1:
        return latest
    try:
        for chunk in reader.chunks_from(offset):
            latest = max(latest, _largest_of(chunk, next_offset))
    except CorruptBatchError:
        pass  # verify reports what is wrong
    return latest


def proven_largest_timestamp(reader: SegmentReader, next_offset: int) -> int:
    """Return the largest timestamp of a segment's batches, -1 if none has one.

    Args:
        reader: of the segment; bytes past its `size_bytes` do not count.
        next_offset: where the next segment starts, or the log ends.

    Raises:
        CorruptBatchError: a batch that had to be read is damaged, or the last bytes are no whole batch: what they
            were may have been younger than all the rest.
    """
    latest, offset = find_time(reader.files, INT64_MAX)
    if latest >= 0 and offset >= next_offset - 1:
        return latest
    for chunk in reader.chunks_from(offset):
        reader.check_crcs(chunk, chunk.scan)
        latest = max(latest, _largest_of(chunk, next_offset))
    if reader.valid_bytes < reader.size_bytes:
        raise reader.corrupt_batch("the last bytes are no whole batch", reader.valid_bytes)
    return latest


def _largest_of(chunk: BatchChunk, next_offset: int) -> int:
    return int(chunk.scan.max_timestamp[chunk.scan.base_offset < next_offset].max(initial=-1))
