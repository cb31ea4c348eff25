"""Copies bytes from one open file to another, without passing through Python."""

import errno
import os

__all__ = ["copy_range"]


def copy_range(source: int, source_position: int, target: int, target_position: int, size_bytes: int) -> None:
    """Copy bytes between two open files inside the kernel.

    Uses `copy_file_range` on one filesystem, `sendfile` otherwise; both may copy less than asked.
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
