"""A second file with the content of a first one: shared blocks, a second name, or a copy, whichever the disks can.

Source: ioctl_ficlone(2), link(2).
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final, Literal

from sparklog.storage_core.storage.copy_range import copy_range
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import open_reader, open_to_change

__all__ = ["Sharing", "copy_file", "share_file", "share_only"]

Sharing = Literal["reflink", "hard link", "copy"]

_FICLONE: Final = 0x40049409
_NO_REFLINK: Final = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)
_NO_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


def share_file(source: Path, target: Path, *, may_link: bool, may_reflink: bool = True) -> Sharing:
    """Make a second file of one to which nothing is appended any more; return how.

    Args:
        may_link: whether it may be the same file under a second name.
        may_reflink: whether shared blocks are tried; the disks of an earlier file may have refused them.

    Raises:
        StorageError: the disk refused.
    """
    used = share_only(source, target, may_link=may_link, may_reflink=may_reflink)
    if used is None:
        with storage_errors(target):
            copy_file(source, target, source.stat().st_size)
    return used or "copy"


def share_only(source: Path, target: Path, *, may_link: bool, may_reflink: bool = True) -> Sharing | None:
    """As `share_file`, but make nothing and return None where bytes would have to be copied.

    A kernel may refuse links of other users' files, and between two mounts of one disk.
    """
    with storage_errors(target):
        if may_reflink and _reflink(source, target):
            return "reflink"
        return "hard link" if may_link and _link(source, target) else None


def copy_file(source: Path, target: Path, size_bytes: int) -> None:
    """Copy a file's first bytes into a new file, with the time of its last change; without a sync.

    Raises:
        OSError: the disk refused, or the source is shorter.
    """
    with open_reader(source) as reader:
        descriptor = open_to_change(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            copy_range(reader.fileno(), 0, descriptor, 0, size_bytes)
            _keep_time(reader.fileno(), descriptor)
        finally:
            os.close(descriptor)


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source.resolve() if source.is_symlink() else source, target)
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise
    return True


def _reflink(source: Path, target: Path) -> bool:
    with open_reader(source) as reader:
        descriptor = open_to_change(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.ioctl(descriptor, _FICLONE, reader.fileno())
            _keep_time(reader.fileno(), descriptor)
        except OSError as error:
            target.unlink()
            if error.errno in _NO_REFLINK:
                return False
            raise
        finally:
            os.close(descriptor)
    return True


def _keep_time(source: int, target: int) -> None:
    """Where no record has a timestamp, the file's says how old a segment is."""
    changed = os.fstat(source)
    os.utime(target, ns=(changed.st_atime_ns, changed.st_mtime_ns))
