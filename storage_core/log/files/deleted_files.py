"""Removal of segments in two steps: a rename to `.deleted`, durable at once, and later the removal of the file.

From the rename on a segment is no part of its log. Whoever listed it before has time to open it until the file goes.
A crash or a power cut may leave a segment renamed in part, not at all, or its `.deleted` files back again; each step
can be done again, and a broker that loads the directory removes what is left.

Source: Kafka LocalLog.deleteSegmentFiles, LogSegment.changeFileSuffixes, ProducerStateManager.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.storage_core.log.files.names import (
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIMEINDEX,
    TXNINDEX,
    parse_base_offset,
    segment_file_name,
)
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.owned_names import Owner, remove_unique, rename

__all__ = [
    "DeletedFile",
    "deleted_file",
    "drop_deleted",
    "drop_listed",
    "is_segment_file",
    "list_deleted",
    "mark_deleted",
    "mark_replaced",
]

_SUFFIXES: Final = (LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT)
"""In the order in which they are renamed: without its `.log` an index is no part of the log either."""


@dataclass(frozen=True, slots=True)
class DeletedFile:
    """A file that waits to be removed.

    Attributes:
        name: in its directory, with `.deleted`.
        renamed_ms: when it got that name.
        inode: distinguishes it from another one of that name.
    """

    name: str
    size_bytes: int
    renamed_ms: int
    inode: int


def mark_deleted(directory: Path, is_gone: Callable[[int], bool], owner: Owner) -> int:
    """Rename the files of some segments to `.deleted`, durably; return how many files were renamed.

    The oldest segment goes first: whatever the last step is, what is left has no hole.

    Args:
        directory: of the log.
        is_gone: whether the segment with a base offset goes.
        owner: its check raises once another one owns the log; asked before each file.

    Raises:
        StorageError: the disk refused; what is renamed is renamed, and the next call continues.
    """
    with storage_errors(directory):
        found = sorted((name for name in os.listdir(directory) if is_segment_file(name)), key=_age)
        names = [name for name in found if is_gone(_age(name)[0])]
        if not names:
            return 0
        for name in names:
            rename(owner, directory / name, directory / (name + DELETED))
        sync_directory(directory)
    return len(names)


def mark_replaced(directory: Path, base_offsets: Sequence[int], owner: Owner) -> int:
    """Rename the files of segments that one new segment stands for, likewise; return how many files were renamed.

    The new one has the first one's base offset, so the producer snapshot there stays.

    Args:
        directory: of the log.
        base_offsets: of the segments, rising.
        owner: its check raises once another one owns the log; asked before each file: a cleaner that wakes up
            late must not rename what has taken that name meanwhile.

    Raises:
        StorageError: the disk refused; loading the log, or the next cleaning, continues.
    """
    names = [segment_file_name(base, suffix) for base in base_offsets for suffix in _SUFFIXES]
    names.remove(segment_file_name(base_offsets[0], SNAPSHOT))
    count = 0
    with storage_errors(directory):
        found = set(os.listdir(directory))
        for name in names:
            if name in found:
                rename(owner, directory / name, directory / (name + DELETED))
                count += 1
        sync_directory(directory)
    return count


def list_deleted(directory: Path) -> list[DeletedFile]:
    """Return the segment files that wait to be removed.

    Raises:
        StorageError: the directory can't be read.
    """
    with storage_errors(directory), os.scandir(directory) as entries:
        return [file for entry in entries if (file := deleted_file(entry))]


def deleted_file(entry: os.DirEntry[str]) -> DeletedFile | None:
    """Return an entry of a directory as a file that waits to be removed, None if it is none."""
    if not entry.name.endswith(DELETED) or not is_segment_file(entry.name.removesuffix(DELETED)):
        return None
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # another process removes it
        return None
    return _deleted_file(entry.name, found)


def _deleted_file(name: str, found: os.stat_result) -> DeletedFile:
    return DeletedFile(name, found.st_size, found.st_ctime_ns // 1_000_000, found.st_ino)


def drop_deleted(directory: Path, names: Iterable[str]) -> None:
    """Remove files that were renamed to `.deleted`; some may be gone already, the whole directory too.

    Raises:
        StorageError: the disk refused.
    """
    with storage_errors(directory):
        for name in names:
            remove_unique(directory / name)


def drop_listed(directory: Path, files: Iterable[DeletedFile]) -> None:
    """Remove files that still are what was listed; another one of that name waits for its own time.

    Raises:
        StorageError: the disk refused.
    """
    with storage_errors(directory):
        for file in files:
            path = directory / file.name
            with contextlib.suppress(FileNotFoundError):  # the whole directory may be gone
                if _deleted_file(file.name, path.lstat()) == file:
                    remove_unique(path)


def is_segment_file(name: str) -> bool:
    """Whether a name is that of a segment's `.log`, index or snapshot, with no further suffix."""
    return name.endswith(_SUFFIXES) and parse_base_offset(name) is not None and name.count(".") == 1


def _age(name: str) -> tuple[int, int]:
    base = parse_base_offset(name)
    return -1 if base is None else base, next(n for n, suffix in enumerate(_SUFFIXES) if name.endswith(suffix))
