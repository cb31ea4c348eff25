"""Copies a directory's files into a new one, inside the kernel, with their fsync order."""

from collections.abc import Mapping
from pathlib import Path

from sparklog.storage_core.storage.local import storage_errors, sync_directory, sync_file
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner
from sparklog.storage_core.storage.share_file import copy_file

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
            copy_file(source / name, target / name, size_bytes)
            sync_file(target / name)
    with storage_errors(target):
        sync_directory(target)
        sync_directory(target.parent)
