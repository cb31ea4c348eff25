"""Opens files of stores and logs; only regular files.

A FIFO, a device or a socket in the place of a file would block the process, or behave differently. So the open does not
wait (`O_NONBLOCK`), and the file's type is checked before its use. Links:

- a file to read may be a link, as for a broker;
- a file to change must not be one (`O_NOFOLLOW`): the change would hit a file elsewhere.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

__all__ = [
    "check_regular_files",
    "open_folder",
    "open_reader",
    "open_to_change",
    "open_to_read",
    "read_file",
    "read_if_there",
]

_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}


def open_to_read(path: Path) -> int:
    """Open a file for reading, through links; return its descriptor.

    Raises:
        OSError: it can't be opened, or is not a regular file.
    """
    return _open(path, os.O_RDONLY)


def open_to_change(path: Path, flags: int) -> int:
    """Open a file for writing, no link, making it if `flags` say so; return its descriptor.

    Raises:
        OSError: it can't be opened, or is not a regular file.
    """
    return _open(path, flags | os.O_NOFOLLOW)


def open_folder(path: Path) -> int:
    """Open a folder, through links, to sync its names or to lock it; return its descriptor.

    Raises:
        OSError: it can't be opened, or is not a folder.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_reader(path: Path) -> BinaryIO:
    """Return a file to read from, which the caller closes; errors are those of `open_to_read`."""
    return os.fdopen(open_to_read(path), "rb")


def read_file(path: Path) -> bytes:
    """Return a file's bytes; errors are those of `open_to_read`."""
    with open_reader(path) as file:
        return file.read()


def read_if_there(path: Path) -> bytes | None:
    """Return a file's bytes, None without a file; errors are those of `open_to_read`."""
    try:
        return read_file(path)
    except FileNotFoundError:
        return None


def check_regular_files(*folders: Path) -> None:
    """Refuse folders that contain anything else than files and folders, before a library opens them.

    Links count as their targets; missing folders are skipped.

    Raises:
        OSError: something else lies there; the message names it.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for each in entries:
                if not each.is_file() and not each.is_dir():
                    with contextlib.suppress(FileNotFoundError):  # a dangling link, or removed meanwhile
                        _check(os.stat(each.path).st_mode, Path(each.path))


def _open(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket or a FIFO without a reader; a link
            _check((os.lstat if error.errno == errno.ELOOP else os.stat)(path).st_mode, path)
        raise
    try:
        _check(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"is {kind}, and no regular file", str(path))
