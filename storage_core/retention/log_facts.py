"""Reads retention's input of a log: one listing, and only the timestamps that decide.

Bytes past the committed end are skipped: a sink may be adding them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.deleted_files import DeletedFile, deleted_file, is_segment_file
from sparklog.storage_core.log.files.names import LOG, SWAP, parse_base_offset, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.read.largest_timestamp import proven_largest_timestamp
from sparklog.storage_core.log.scan.segment_reader import SegmentReader, find_time
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.retention.plan_retention import LogFacts, SegmentFacts
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["ListedLog", "list_log", "read_log_facts"]


@dataclass(frozen=True, slots=True)
class ListedLog:
    """The listing of a log's directory.

    Attributes:
        segments: committed ones, in order; the last one is active.
        deleted: `.deleted` files.
        has_stray: whether there is a file below the first segment: the rest of a segment that was renamed in part.
    """

    segments: tuple[SegmentFacts, ...]
    deleted: tuple[DeletedFile, ...]
    has_stray: bool


def list_log(directory: Path, end: CommittedEnd) -> ListedLog:
    """List a log's directory.

    Raises:
        CorruptFileError: the active segment is missing, or a segment has not got its name yet: the one before it would
            seem to reach to the next one.
    """
    sizes: dict[int, int] = {}
    deleted: list[DeletedFile] = []
    others: list[int] = []
    with storage_errors(directory), os.scandir(directory) as entries:
        for entry in entries:
            if file := deleted_file(entry):
                deleted.append(file)
                continue
            _refuse_unfinished(directory, entry.name, end.segment_base)
            base = parse_base_offset(entry.name) if is_segment_file(entry.name) else None
            if base is None or base > end.segment_base:
                continue
            if entry.name.endswith(LOG):
                sizes[base] = entry.stat().st_size
            else:
                others.append(base)
    if end.segment_base not in sizes and end.size_bytes:
        name = segment_file_name(end.segment_base, LOG)
        raise CorruptFileError(f"the active segment is missing: {directory / name}: restore it from a copy")
    sizes[end.segment_base] = end.size_bytes
    bases = sorted(sizes)
    ends = [*bases[1:], end.log_end_offset]
    segments = tuple(SegmentFacts(base, after, sizes[base]) for base, after in zip(bases, ends, strict=True))
    return ListedLog(segments, tuple(deleted), has_stray=min(others, default=bases[0]) < bases[0])


def _refuse_unfinished(directory: Path, name: str, active_base: int) -> None:
    base = parse_base_offset(name) if name.endswith(LOG + SWAP) else None
    if base is not None and base < active_base:
        raise CorruptFileError(
            f"a replacement of segments is not finished: {directory / name}: the next maintenance or repair finishes it"
        )


def read_log_facts(
    directory: Path, listed: ListedLog, log_start_offset: int, is_young: Callable[[int], bool]
) -> LogFacts:
    """Return the input of a retention plan; files are read only for a timestamp.

    Args:
        is_young: whether a segment with this timestamp stays, so that no more of it has to be read.
    """
    end_offset = listed.segments[-1].next_offset

    def timestamp_of(number: int) -> int:
        return _timestamp(directory, listed.segments[number], is_young)

    return LogFacts(
        segments=listed.segments,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
        high_watermark=end_offset,
        timestamp_of=timestamp_of,
    )


def _timestamp(directory: Path, segment: SegmentFacts, is_young: Callable[[int], bool]) -> int:
    """Return a segment's largest timestamp; the file's time if no record has one.

    The time index of a segment that was never closed may end too low: enough to keep the segment, not to delete it.

    Raises:
        CorruptBatchError: its batches are damaged.
    """
    files = SegmentFiles(segment.base_offset, directory / segment_file_name(segment.base_offset, LOG))
    indexed, _ = find_time(files, INT64_MAX)
    if is_young(indexed):
        return indexed
    with SegmentReader(files) as reader:
        if reader.size_bytes < segment.size_bytes:
            raise reader.corrupt_batch(f"committed bytes are missing: size={segment.size_bytes}", reader.size_bytes)
        reader.size_bytes = segment.size_bytes
        latest = proven_largest_timestamp(reader, segment.next_offset)
    if latest >= 0:
        return latest
    with storage_errors(files.log_path):
        return files.log_path.stat().st_mtime_ns // 1_000_000
