"""Durability of local files: the fsync order.

Rules, each seen to matter after a power cut:
- a replaced file is written under another name, fsynced, renamed, and its folder fsynced: without the first fsync the
  new name may hold zeros, without the second the old content may come back;
- a truncation is fsynced before the next append, or the truncated tail may come back;
- log before index before ledger: the ledger may only name bytes that survive.
"""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.storage.open_regular import open_folder, open_to_change, open_to_read
from sparklog.storage_core.storage.write_back import drop_cached, sync_filesystems, sync_path

__all__ = [
    "make_directory",
    "storage_errors",
    "sync_directories",
    "sync_directory",
    "sync_file",
    "sync_files",
    "write_all",
    "write_file",
]

_SYNCFS_FILE_COUNT = 64
"""For this many files one `syncfs` costs less than an fsync per file (docs/benchmarks.md)."""

_SYNC_THREADS = 8


@contextlib.contextmanager
def storage_errors(path: Path | str) -> Iterator[None]:
    """Turn an `OSError` into a `StorageError` that names the path and the reason."""
    try:
        yield
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else path
        reason = "no space left on the disk" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise StorageError(f"{reason}: path={name}") from error


def write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write every byte at `position`, also after partial writes."""
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


def write_file(path: Path, data: bytes) -> None:
    """Make or overwrite a file that has no reader yet, without a sync."""
    descriptor = open_to_change(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(descriptor, data, 0)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a folder and its missing parents, durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Sync the names in a folder."""
    sync_path(path, open_folder, os.fsync)


def sync_directories(paths: Iterable[Path]) -> None:
    """Sync the names in several folders: one call per folder, or one per filesystem for many."""
    folders = list(paths)
    if len(folders) >= _SYNCFS_FILE_COUNT:
        sync_filesystems(folders)
        return
    for path in folders:
        sync_directory(path)


def sync_file(path: Path) -> None:
    """Sync the content of a file."""
    sync_path(path, open_to_read, os.fdatasync)


def sync_files(paths: list[Path]) -> None:
    """Sync the content of these files: one call per file, or one per filesystem for many."""
    if len(paths) >= _SYNCFS_FILE_COUNT:
        try:
            sync_filesystems({each.parent for each in paths})
        except OSError:
            drop_cached(paths)
            raise
        return
    if len(paths) <= 1:
        for path in paths:
            sync_file(path)
        return
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        list(pool.map(sync_file, paths))
