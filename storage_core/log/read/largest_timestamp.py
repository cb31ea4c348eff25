"""The largest timestamp of a segment: the last time entry's, or one of a batch above that entry.

A closed segment's last entry is mostly its last batch, so little is read after it. Where records are deleted by
it, all that is read has to be sound; to show it, what can be read is enough.

Source: Kafka LogSegment.largestTimestamp, LogSegment.maxTimestampSoFar.
"""

from __future__ import annotations

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log.files.segments import SegmentFiles
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
    latest, offset = _last_entry_below(reader.files, next_offset)
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
    latest, offset = _last_entry_below(reader.files, next_offset)
    if latest >= 0 and offset >= next_offset - 1:
        return latest
    for chunk in reader.chunks_from(offset):
        reader.check_crcs(chunk, chunk.scan)
        latest = max(latest, _largest_of(chunk, next_offset))
    if reader.valid_bytes < reader.size_bytes:
        raise reader.corrupt_batch("the last bytes are no whole batch", reader.valid_bytes)
    return latest


def _last_entry_below(files: SegmentFiles, next_offset: int) -> tuple[int, int]:
    """Return (timestamp, offset) of the last time entry below an offset, or (-1, base offset).

    Entries above are of a micro-batch that is not committed, or came after the state that is looked at.
    """
    latest, offset = find_time(files, INT64_MAX)
    if offset < next_offset:
        return latest, offset
    low, high = -1, latest  # timestamps of entries that are below the offset, and that are not
    while high - low > 1:
        middle = (low + high) // 2
        found, offset = find_time(files, middle)
        if found >= 0 and offset >= next_offset:
            high = found
        else:
            low = middle
    return find_time(files, low)


def _largest_of(chunk: BatchChunk, next_offset: int) -> int:
    return int(chunk.scan.max_timestamp[chunk.scan.base_offset < next_offset].max(initial=-1))
