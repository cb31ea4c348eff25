"""Carries out an append plan for one log: staged bytes into segments, entries into indexes.

What a crash leaves at each step, and what `cut_back.py` does about it at the next start:
- bytes past the committed end of the active segment: truncated;
- entries above it in the active segment's indexes: truncated;
- `<name>.<token>.cleaned`, a segment not yet published: deleted, also by a broker;
- a published segment at or above the committed end: deleted.

Fencing. Existing files are written only through descriptors opened *before* the writer checked that it still owns the
store, and new files appear only by a rename of a `.cleaned` file. A writer that takes the store by force first deletes
every `.cleaned` file and gives every active segment a new inode: an old writer that wakes up writes into unlinked
files, or fails to rename.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.names import CLEANED, INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.storage.copy_range import copy_range
from sparklog.storage_core.storage.local import storage_errors, write_all
from sparklog.storage_core.storage.open_regular import open_to_change, open_to_read
from sparklog.storage_core.storage.owned_names import Owner, remove_unique, rename

__all__ = ["SegmentAppend", "SegmentWriter", "StagedRange", "WrittenFiles"]


@dataclass(frozen=True, slots=True)
class StagedRange:
    """Bytes of a staging file and where they go in the segment's `.log`.

    A path, not a descriptor: a micro-batch may have more staging files than a process may open.
    """

    source: Path
    source_position: int
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentAppend:
    """Everything one micro-batch adds to one segment.

    Attributes:
        base_offset: of the segment.
        is_new: whether the segment starts with this append.
        ranges: staged bytes, in order.
        offset_entries: packed entries, and the byte position in `.index` where they go.
        time_entries: the same for `.timeindex`.
    """

    base_offset: int
    is_new: bool
    ranges: tuple[StagedRange, ...]
    offset_entries: tuple[bytes, int]
    time_entries: tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What must become durable before the ledger may name it."""

    logs: list[Path]
    indexes: list[Path]
    directories: list[Path]


class SegmentWriter:
    """Writes the appends of one log.

    Args:
        directory: of the log.
        token: distinguishes this writer's unpublished files.
        owner: its check raises `WriterFencedError` once another writer owns the store.
    """

    def __init__(self, directory: Path, token: str, owner: Owner) -> None:
        self._directory = directory
        self._token = token
        self._owner = owner

    def append(self, appends: list[SegmentAppend], written: WrittenFiles) -> None:
        """Write the appends of one log in order, and note in `written` what has to be synced.

        Raises:
            StorageError: the disk refused; the caller cuts the log back.
            WriterFencedError: another writer owns the store; nothing of this call is visible.
        """
        for each in appends:
            with storage_errors(self._directory), self._opened(each) as descriptors:
                self._owner.check()
                self._fill(each, descriptors)
                if each.is_new:
                    self._publish(each.base_offset)
                    written.directories.append(self._directory)
            if each.ranges or each.is_new:
                written.logs.append(self._path(each.base_offset, LOG))
            for suffix, (entries, _) in ((INDEX, each.offset_entries), (TIMEINDEX, each.time_entries)):
                if entries or each.is_new:
                    written.indexes.append(self._path(each.base_offset, suffix))

    def _path(self, base_offset: int, suffix: str) -> Path:
        return self._directory / segment_file_name(base_offset, suffix)

    def _unpublished(self, base_offset: int, suffix: str) -> Path:
        return self._directory / f"{segment_file_name(base_offset, suffix)}.{self._token}{CLEANED}"

    @contextlib.contextmanager
    def _opened(self, append: SegmentAppend) -> Iterator[dict[str, int]]:
        flags = os.O_WRONLY | (os.O_CREAT | os.O_EXCL if append.is_new else 0)
        name = self._unpublished if append.is_new else self._path
        wanted = {
            LOG: bool(append.ranges),
            INDEX: bool(append.offset_entries[0]),
            TIMEINDEX: bool(append.time_entries[0]),
        }
        descriptors: dict[str, int] = {}
        try:
            for suffix, needed in wanted.items():
                if needed or append.is_new:
                    descriptors[suffix] = open_to_change(name(append.base_offset, suffix), flags)
            if append.is_new:
                reach("place.created")
            yield descriptors
        except BaseException:
            if append.is_new:
                self._discard(append.base_offset)
            raise
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)

    def _discard(self, base_offset: int) -> None:
        """Remove what was not published: the names are this writer's own, even if another one owns the store by now."""
        for suffix in (LOG, INDEX, TIMEINDEX):
            with contextlib.suppress(OSError):
                remove_unique(self._unpublished(base_offset, suffix))

    def _fill(self, append: SegmentAppend, descriptors: dict[str, int]) -> None:
        for path, ranges in itertools.groupby(append.ranges, key=lambda each: each.source):
            source = open_to_read(path)
            try:
                for each in ranges:
                    copy_range(source, each.source_position, descriptors[LOG], each.position, each.size_bytes)
            finally:
                os.close(source)
        reach("place.copied")
        for suffix, (entries, position) in ((INDEX, append.offset_entries), (TIMEINDEX, append.time_entries)):
            if entries:
                write_all(descriptors[suffix], entries, position)
        reach("place.indexed")

    def _publish(self, base_offset: int) -> None:
        """Give the new segment its names, `.log` first: that is the name by which a start finds it and undoes it."""
        for suffix in (LOG, INDEX, TIMEINDEX):
            rename(self._owner, self._unpublished(base_offset, suffix), self._path(base_offset, suffix))
        reach("place.published")
