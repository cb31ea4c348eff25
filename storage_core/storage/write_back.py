"""Syncs files; after a failed fsync their pages are dropped, so that the next read asks the disk."""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sparklog.storage_core.storage.open_regular import open_folder, open_to_read

__all__ = ["drop_cached", "sync_filesystems", "sync_path"]


def drop_cached(paths: Iterable[Path]) -> None:
    """Drop these files from the page cache, except unwritten pages, so that the next read asks the disk."""
    for path in paths:
        with contextlib.suppress(OSError):
            descriptor = open_to_read(path)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def sync_filesystems(folders: Iterable[Path]) -> None:
    """Sync the filesystem of each folder; Linux reports write-back errors here since 5.8."""
    roots = {path.stat().st_dev: path for path in folders}
    for root in roots.values():
        sync_path(root, open_folder, _syncfs_of)


def _syncfs_of(descriptor: int) -> None:
    if _LIBC.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sync_path(path: Path, opened: Callable[[Path], int], sync: Callable[[int], None]) -> None:
    """Open a path and sync it; errors name the path.

    After a failed fsync Linux counts the lost pages as written, and the next fsync succeeds. They are dropped from the
    page cache, so that the next reader sees the disk and does not take a lost commit for durable.
    """
    descriptor = opened(path)
    try:
        sync(descriptor)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


_LIBC = ctypes.CDLL(None, use_errno=True)
