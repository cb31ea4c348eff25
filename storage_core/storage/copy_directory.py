"""Copies a directory's files into a new one, inside the kernel, with their fsync order."""

import os
from collections.abc import Mapping
from pathlib import Path

from sparklog.storage_core.storage.copy_range import copy_range
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.open_regular import open_reader, open_to_change
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner

__all__ = ["copy_directory"]


def copy_directory(source: Path, target: Path, sizes: Mapping[str, int], owner: Owner = UNSHARED) -> None:
    """Copy files of one directory into a new one; sync content, then names, then the directory's own name.

    Files keep the time of their last change: the age of a segment without record timestamps.

    Args:
        sizes: bytes of each file to copy, by name; bytes past them are skipped.
        owner: checked before each file.

    Raises:
        StorageError: the disk refused, or a file has fewer bytes; the target is partial.
    """
    with storage_errors(target):
        target.mkdir()
    for name, size_bytes in sizes.items():
        with storage_errors(source / name):
            owner.check()
            _copy_file(source / name, target / name, size_bytes)
    with storage_errors(target):
        sync_directory(target)
        sync_directory(target.parent)


def _copy_file(source: Path, target: Path, size_bytes: int) -> None:
    with open_reader(source) as reader:
        descriptor = open_to_change(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            copy_range(reader.fileno(), 0, descriptor, 0, size_bytes)
            changed = os.fstat(reader.fileno())
            os.utime(descriptor, ns=(changed.st_atime_ns, changed.st_mtime_ns))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
