"""What is in memory comes onto the disk, and what can be believed of it after that failed.

What a failed sync was for is not believed until it was read from the disk again.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sparklog.storage_core.storage.open_regular import open_folder, open_to_read

__all__ = ["drop_cached", "sync_filesystems", "sync_path"]


def drop_cached(paths: Iterable[Path]) -> None:
    """Let the next reading of these files show what the disk has, but for pages that still wait to be written."""
    for path in paths:
        with contextlib.suppress(OSError):
            descriptor = open_to_read(path)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def sync_filesystems(folders: Iterable[Path]) -> None:
    """Write back each filesystem that holds one of these; Linux reports write-back errors here since 5.8."""
    roots = {path.stat().st_dev: path for path in folders}
    for root in roots.values():
        sync_path(root, open_folder, _syncfs_of)


def _syncfs_of(descriptor: int) -> None:
    if _LIBC.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sync_path(path: Path, opened: Callable[[Path], int], sync: Callable[[int], None]) -> None:
    """Open a path and sync it; the kernel's answer does not say which file it is about.

    A sync that fails leaves pages that are not on the disk and count as written, so that the next one succeeds: without
    them in the cache whoever looks next sees what the disk has, and does not take a commit for durable that is not.
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
