"""New inodes for files: what is written to the old ones by whom else has them is not seen under their names any more.

A closed segment may be one file with a segment of a mount or of a backup (`st_nlink` above 1). So before Sparklog cuts
such a file, or appends to it, the file gets an inode of its own. A crash leaves the file as it was, and perhaps a copy
with a name that ends in `.cleaned`: the next opening removes it, and a broker's start does.
"""

import contextlib
import uuid
from collections.abc import Mapping
from pathlib import Path

from sparklog.storage_core.storage.local import sync_directory, sync_file
from sparklog.storage_core.storage.owned_names import Owner, remove_unique, rename
from sparklog.storage_core.storage.share_file import copy_file

__all__ = ["renew_files", "unshare_file"]


def renew_files(directory: Path, sizes: Mapping[str, int], owner: Owner) -> None:
    """Replace files of a folder by copies of their first bytes, durably.

    Args:
        sizes: bytes to keep, by name.

    Raises:
        OSError: the disk refused, or a file is shorter; each file is the old one or the new one.
        WriterFencedError: another one owns the files.
    """
    for name, size_bytes in sizes.items():
        path = directory / name
        copy = path.with_name(f"{name}.{uuid.uuid4().hex}.cleaned")
        try:
            copy_file(path, copy, size_bytes)
            sync_file(copy)
            rename(owner, copy, path)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_unique(copy)
            raise
    sync_directory(directory)


def unshare_file(path: Path, size_bytes: int, owner: Owner) -> bool:
    """Give a file with several names an inode of its own, with its first bytes; return whether it had several.

    Raises:
        As `renew_files`.
    """
    if path.stat().st_nlink <= 1:
        return False
    renew_files(path.parent, {path.name: size_bytes}, owner)
    return True
