"""The segments of a log for a cleaner: one listing, and the files' sizes.

Bytes past the committed end are skipped: a sink may be adding them.

Gaps between segments are normal in a compacted log, so only its indexes show a lost one. A cleaning without it would
remove the last trace of its offsets.

Source: Kafka LogSegments, AbstractIndex.sizeInBytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.index.index_entries import drop_zero_tail, read_entries
from sparklog.storage_core.index.offset_index import OFFSET_ENTRY
from sparklog.storage_core.index.time_index import TIME_ENTRY
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import (
    DELETED,
    INDEX,
    LOG,
    SWAP,
    TIMEINDEX,
    parse_base_offset,
    segment_file_name,
)
from sparklog.storage_core.log.files.segments import SegmentFiles, list_settled_names, readable_segments, segments_from
from sparklog.storage_core.log.load.finish_leftovers import list_files
from sparklog.storage_core.log.load.plan import name_offset, plan_segments
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import open_reader, read_file

__all__ = ["ListedSegment", "list_cleanable_segments", "with_index_sizes"]

_ENTRIES: Final = {INDEX: OFFSET_ENTRY, TIMEINDEX: TIME_ENTRY}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSegment:
    """One segment of a log.

    Attributes:
        next_offset: start of the next segment, or the log's end.
        size_bytes: of its `.log`; of the active one committed bytes.
        modified_ms: time of its `.log`'s last change.
        index_bytes, time_index_bytes: of the entries, without a tail of zeros; 0 until `with_index_sizes`.
        is_swap: whether it is a replacement without its final name, after an interrupted cleaning.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    modified_ms: int
    index_bytes: int = 0
    time_index_bytes: int = 0
    is_swap: bool = False

    def files(self, directory: Path) -> SegmentFiles:
        """Return its files."""
        name = segment_file_name(self.base_offset, LOG + SWAP if self.is_swap else LOG)
        return SegmentFiles(self.base_offset, directory / name)


def list_cleanable_segments(directory: Path, end: CommittedEnd, log_start_offset: int) -> list[ListedSegment]:
    """Return the segments of a log, in order; the last one is active.

    Segments that end at or below the log start are skipped: retention removes them.

    Raises:
        CorruptFileError: the active segment is missing, or another one that has an index.
    """
    names = list_settled_names(directory)
    found = [each for each in readable_segments(directory, names) if each.base_offset <= end.segment_base]
    if not found or found[-1].base_offset != end.segment_base:
        name = segment_file_name(end.segment_base, LOG)
        if end.size_bytes:
            raise CorruptFileError(f"the active segment is missing: {directory / name}: restore it from a copy")
        found.append(SegmentFiles(end.segment_base, directory / name))  # the first append makes it
    kept = segments_from(found, log_start_offset)
    first = kept[0].base_offset if kept[0].base_offset <= log_start_offset else 0  # retention removes lower ones
    _check_indexes(directory, names, range(first, end.segment_base))
    ends = [*(each.base_offset for each in kept[1:]), end.log_end_offset]
    with storage_errors(directory):
        listed = [_listed(each, following) for each, following in zip(kept, ends, strict=True)]
    return [*listed[:-1], replace(listed[-1], size_bytes=end.size_bytes)]


def with_index_sizes(directory: Path, segments: Sequence[ListedSegment]) -> list[ListedSegment]:
    """Return segments with the sizes of their indexes."""
    return [
        replace(
            each,
            index_bytes=_entry_bytes(directory, each.base_offset, INDEX),
            time_index_bytes=_entry_bytes(directory, each.base_offset, TIMEINDEX),
        )
        for each in segments
    ]


def _check_indexes(directory: Path, names: Sequence[str], base_offsets: range) -> None:
    """Check that each index has its `.log`; one that is renamed during a listing may be missed once, not twice."""
    lost = _lost_logs(names, base_offsets)
    if lost and (lost := lost & _lost_logs(list_files(directory), base_offsets)):
        path = directory / min(lost)
        raise CorruptFileError(
            f"a segment is missing, its index is there: file={path}; restore it from a copy,"
            " or repair --execute drops the index"
        )


def _lost_logs(names: Sequence[str], base_offsets: range) -> set[str]:
    """Return the missing `.log` files; unknown, so none, after an interrupted cleaning.

    A `.log` that was renamed to `.deleted` before its indexes is not lost: it was replaced.
    """
    if not base_offsets or any(name.endswith(SWAP) and parse_base_offset(name) in base_offsets for name in names):
        return set()
    bases = {name_offset(name) for name in plan_segments(names).orphans}
    logs = {segment_file_name(base, LOG) for base in bases if base in base_offsets}
    return {log for log in logs if log + DELETED not in names}


def _listed(files: SegmentFiles, next_offset: int) -> ListedSegment:
    try:
        found = os.stat(files.log_path)
    except FileNotFoundError:
        if files.log_path.is_symlink():
            raise CorruptFileError(
                f"a segment is missing, its link has no target: file={files.log_path}; restore it from a copy"
            ) from None
        size, modified_ms = 0, 0
    else:
        size, modified_ms = found.st_size, found.st_mtime_ns // 1_000_000
    return ListedSegment(
        base_offset=files.base_offset,
        next_offset=next_offset,
        size_bytes=size,
        modified_ms=modified_ms,
        is_swap=files.is_swap,
    )


def _entry_bytes(directory: Path, base_offset: int, suffix: str) -> int:
    """Return the size of an index file without its zero tail; a file that ends in zeros is read as a whole."""
    path, entry = directory / segment_file_name(base_offset, suffix), _ENTRIES[suffix]
    with storage_errors(path):
        if not path.exists():
            return 0
        with open_reader(path) as file:
            size = file.seek(0, os.SEEK_END) // entry.itemsize * entry.itemsize
            file.seek(max(size - entry.itemsize, 0))
            if any(file.read(entry.itemsize)):
                return size
    return len(drop_zero_tail(read_entries(read_file(path), entry))) * entry.itemsize
