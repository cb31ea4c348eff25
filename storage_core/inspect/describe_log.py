"""What a log consists of: offsets, segments, sizes, timestamps.

Cheap for any size: names, file sizes and ends of indexes are enough; only what the last segment holds after its last
index entry is read. So counts are of offsets, not of records: compaction may have removed some.

Source: Kafka's log-dirs tool; LogSegment.largestTimestamp.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparklog.storage_core.inspect.verify.findings import ExpectedLog
from sparklog.storage_core.log.files.segments import SegmentFiles, list_segments, segments_from
from sparklog.storage_core.log.read.largest_timestamp import largest_timestamp
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.scan.segment_reader import SegmentReader

__all__ = ["LogDescription", "SegmentDescription", "describe_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescription:
    """One segment.

    Attributes:
        next_offset: where the next segment starts, or the log ends.
        size_bytes: of its `.log`, committed bytes only where they are known.
        index_bytes: of its offset and time index together.
        max_timestamp_ms: -1 none.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDescription:
    """One log; sizes are sums over its segments."""

    log: str
    directory: str
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    index_bytes: int
    max_timestamp_ms: int
    segments: tuple[SegmentDescription, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


def describe_log(directory: Path, expected: ExpectedLog | None = None) -> LogDescription:
    """Return what a log directory holds.

    Args:
        directory: of the log.
        expected: what a ledger holds of it; only committed bytes count then.

    Raises:
        StorageError: the directory can't be read.
        CorruptBatchError: there is no ledger, and the log's end is damaged.
    """
    start, end = (expected.log_start_offset, expected.log_end_offset) if expected else (None, None)
    log = LogReader(directory, log_start_offset=start, log_end_offset=end)
    last_base = expected.active_base_offset if expected else log.log_end_offset
    listed = [each for each in list_segments(directory) if each.base_offset <= last_base]
    files = segments_from(listed, log.log_start_offset)
    ends = [each.base_offset for each in files[1:]] + [log.log_end_offset]
    sizes = [None] * (len(files) - 1) + [expected.active_size_bytes if expected else None]
    segments = tuple(_describe_segment(*each) for each in zip(files, ends, sizes, strict=False))
    return LogDescription(
        log=directory.name,
        directory=str(directory),
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        size_bytes=sum(each.size_bytes for each in segments),
        index_bytes=sum(each.index_bytes for each in segments),
        max_timestamp_ms=max((each.max_timestamp_ms for each in segments), default=-1),
        segments=segments,
    )


def _describe_segment(files: SegmentFiles, next_offset: int, size_limit: int | None) -> SegmentDescription:
    paths = (files.index_path, files.time_index_path)
    with SegmentReader(files) as reader:
        if size_limit is not None:
            reader.size_bytes = min(reader.size_bytes, size_limit)
        return SegmentDescription(
            base_offset=files.base_offset,
            next_offset=next_offset,
            size_bytes=reader.size_bytes,
            index_bytes=sum(path.stat().st_size for path in paths if path.exists()),
            max_timestamp_ms=largest_timestamp(reader, next_offset),
        )
