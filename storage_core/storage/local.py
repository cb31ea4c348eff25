"""Files on a local disk: what is durable when, and how bytes move without passing through Python.

Order rules (each was seen to matter after a power cut):
- a replaced file is written under another name, fsynced, renamed, and its folder fsynced: without the first fsync the
  new name can hold zeros, without the second the old content can come back;
- a truncation is fsynced before anything is appended, or the cut tail can come back;
- log before index before ledger: the ledger may only name bytes that survive;
- what a failed sync was for is not believed until it was read from the disk again.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from storage_core.errors import StorageError
from storage_core.fault_points import reach

__all__ = [
    "copy_range",
    "drop_cached",
    "make_directory",
    "replace_file",
    "storage_errors",
    "sync_directories",
    "sync_directory",
    "sync_file",
    "sync_files",
    "sync_filesystems",
    "write_all",
]

_SYNCFS_FILE_COUNT = 64
"""From so many files on one `syncfs` costs less than a call per file (docs/benchmarks.md)."""

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
    """Write every byte at `position`; a disk that fills up first shows as a short write."""
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


def copy_range(source: int, source_position: int, target: int, target_position: int, size_bytes: int) -> None:
    """Copy bytes between two open files inside the kernel.

    `copy_file_range` where both lie on one filesystem, `sendfile` otherwise; both may stop short.
    """
    while size_bytes > 0:
        try:
            copied = os.copy_file_range(source, target, size_bytes, source_position, target_position)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            os.lseek(target, target_position, os.SEEK_SET)
            copied = os.sendfile(target, source, source_position, size_bytes)
        if copied == 0:
            raise OSError(errno.EIO, "a file ends before the bytes that were to be copied from it")
        source_position, target_position, size_bytes = (
            source_position + copied,
            target_position + copied,
            size_bytes - copied,
        )


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` under `path` atomically and durably, as Kafka replaces its checkpoint files."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    reach("checkpoint.written")
    temporary.replace(path)
    reach("checkpoint.replaced")
    sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Make a folder and those above it that are missing, durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def drop_cached(paths: Iterable[Path]) -> None:
    """Let the next reading of these files show what the disk has, but for pages that still wait to be written."""
    for path in paths:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, os.fsync)


def sync_directories(paths: Iterable[Path]) -> None:
    """Make the names in several folders durable: one call per folder, or one per filesystem where they are many."""
    folders = list(paths)
    if len(folders) >= _SYNCFS_FILE_COUNT:
        sync_filesystems(folders)
        return
    for path in folders:
        sync_directory(path)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    _sync(path, os.O_RDONLY | os.O_CLOEXEC, os.fdatasync)


def sync_files(paths: list[Path]) -> None:
    """Make the content of these files durable: one call per file, or one per filesystem where they are many."""
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


def sync_filesystems(folders: Iterable[Path]) -> None:
    """Write back each filesystem that holds one of these; Linux reports write-back errors here since 5.8."""
    roots = {path.stat().st_dev: path for path in folders}
    for root in roots.values():
        _sync(root, os.O_RDONLY | os.O_CLOEXEC, _syncfs_of)


def _syncfs_of(descriptor: int) -> None:
    if _LIBC.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _sync(path: Path, flags: int, sync: Callable[[int], None]) -> None:
    """Open a path and sync it; the kernel's answer does not say which file it is about.

    A sync that fails leaves pages that are not on the disk and count as written, so that the next one succeeds: without
    them in the cache whoever looks next sees what the disk has, and does not take a commit for durable that is not.
    """
    descriptor = os.open(path, flags)
    try:
        sync(descriptor)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


_LIBC = ctypes.CDLL(None, use_errno=True)
