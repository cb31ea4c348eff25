"""Finds where an earlier state of a log ends in its files of today.

A segment that was active then may be closed now, and a compaction may have merged it with others.
"""

from pathlib import Path

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.segments import list_readable_segments
from sparklog.storage_core.log.read.log_offsets import find_place

__all__ = ["find_end_in_files"]


def find_end_in_files(directory: Path, end_offset: int) -> tuple[int, int]:
    """Return base offset of the segment in which a log ended, and how many bytes of its `.log` are below that end.

    Raises:
        CorruptFileError: damage hides the end.
        StorageError: the log can't be read.
    """
    segments = [each for each in list_readable_segments(directory) if each.base_offset <= end_offset]
    place = find_place(segments, end_offset)
    if place.segment_base_offset < 0:
        return end_offset, 0
    if place.position < 0:
        raise CorruptFileError(
            f"damage hides the end of an earlier state: offset={end_offset} path={directory}; repair the store"
        )
    return place.segment_base_offset, place.position
