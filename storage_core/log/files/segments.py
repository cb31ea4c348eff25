"""Which segments a log directory holds.

Source: Kafka LogSegments.
"""

import os
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.storage_core.log.files.names import (
    INDEX,
    LOG,
    SWAP,
    TIMEINDEX,
    TXNINDEX,
    parse_base_offset,
    segment_file_name,
)
from sparklog.storage_core.storage.local import storage_errors

__all__ = [
    "SegmentFiles",
    "floor_segment",
    "list_readable_segments",
    "list_segments",
    "list_settled_names",
    "readable_segments",
    "segments_from",
]

_LISTINGS: Final = 5


@dataclass(frozen=True, slots=True, order=True)
class SegmentFiles:
    """One segment's files; the `.log` exists, its indexes may not.

    Attributes:
        base_offset: first offset it may hold, in its files' names.
        log_path: of its `.log`.
    """

    base_offset: int
    log_path: Path

    @property
    def index_path(self) -> Path:
        """Path of its offset index."""
        return self._sibling(INDEX)

    @property
    def time_index_path(self) -> Path:
        """Path of its time index."""
        return self._sibling(TIMEINDEX)

    @property
    def txn_index_path(self) -> Path:
        """Path of its index of aborted transactions, present only if one was aborted."""
        return self._sibling(TXNINDEX)

    @property
    def is_swap(self) -> bool:
        """Whether it replaces segments whose names it has not taken yet."""
        return self.log_path.name.endswith(SWAP)

    def _sibling(self, suffix: str) -> Path:
        return self.log_path.parent / segment_file_name(self.base_offset, suffix)


def list_segments(directory: Path) -> list[SegmentFiles]:
    """Return the segments of a log in order of their base offsets; files on their way (`.cleaned`, ...) are none.

    Raises:
        StorageError: the directory can't be read.
    """
    with storage_errors(directory):
        names = _names(directory)
    return _segments(directory, [name for name in names if name.endswith(LOG)])


def list_readable_segments(directory: Path) -> list[SegmentFiles]:
    """Return the segments to read while a cleaner may be at work, in order of their base offsets.

    Raises:
        StorageError: the directory can't be read.
    """
    return readable_segments(directory, list_settled_names(directory))


def list_settled_names(directory: Path) -> list[str]:
    """Return the names of all files in a directory, and of links, wherever they lead.

    They are listed again if they changed meanwhile: a listing may miss a file that is renamed under it.

    Raises:
        StorageError: the directory can't be read.
    """
    with storage_errors(directory):
        names: list[str] = []
        for _ in range(_LISTINGS):
            before = os.stat(directory).st_mtime_ns
            names = _names(directory)
            if os.stat(directory).st_mtime_ns == before:
                break
    return names


def readable_segments(directory: Path, names: Collection[str]) -> list[SegmentFiles]:
    """Return the segments among a directory's files, in order of their base offsets.

    A cleaner takes the old segments' names away before its complete `.swap` files get theirs. For that moment the
    `.swap` file is the segment: without it a reader would pass over every record in it.
    """
    published = {name for name in names if name.endswith(LOG)}
    swaps = {name for name in names if name.endswith(LOG + SWAP) and name.removesuffix(SWAP) not in published}
    return _segments(directory, published | swaps)


def floor_segment(segments: Sequence[SegmentFiles], offset: int) -> int | None:
    """Return the number of the segment that holds `offset` if any does: the last one that starts at or before it."""
    number = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    return number if number >= 0 else None


def segments_from(segments: Sequence[SegmentFiles], log_start_offset: int) -> list[SegmentFiles]:
    """Return the segments that a log which starts at an offset consists of.

    Those that end there or before are no part of it: retention is about to rename them, or was killed before it did.
    """
    return list(segments[floor_segment(segments, log_start_offset) or 0 :])


def _names(directory: Path) -> list[str]:
    """Return the names of what is no folder. A link that leads nowhere is a segment that can't be read, not none."""
    with os.scandir(directory) as entries:
        return [each.name for each in entries if not each.is_dir(follow_symlinks=False)]


def _segments(directory: Path, names: Iterable[str]) -> list[SegmentFiles]:
    bases = {name: parse_base_offset(name) for name in names}
    return sorted(SegmentFiles(base, directory / name) for name, base in bases.items() if base is not None)
