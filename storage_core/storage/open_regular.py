"""Files of stores and logs are opened here, and only regular files are.

A FIFO, a device or a socket in the place of a file would keep the opening process waiting, or do something else than a
file. So nothing is waited for (`O_NONBLOCK`), and what was opened is looked at before it is used. Links:

- what is only read may be a link, wherever it leads, as a broker reads it;
- what is changed must not be one (`O_NOFOLLOW`): the change would hit a file that belongs somewhere else.
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
        OSError: it can't be opened, or is no regular file.
    """
    return _open(path, os.O_RDONLY)


def open_to_change(path: Path, flags: int) -> int:
    """Open a file for writing, no link, making it if `flags` say so; return its descriptor.

    Args:
        path: of the file.
        flags: of `os.open`.

    Raises:
        OSError: it can't be opened, or is no regular file.
    """
    return _open(path, flags | os.O_NOFOLLOW)


def open_folder(path: Path) -> int:
    """Open a folder, through links, to make the names in it durable or to lock it; return its descriptor.

    Raises:
        OSError: it can't be opened, or is no folder.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_reader(path: Path) -> BinaryIO:
    """Return a file to read from, which the caller closes; errors are those of `open_to_read`."""
    return os.fdopen(open_to_read(path), "rb")


def read_file(path: Path) -> bytes:
    """Return what a file holds; errors are those of `open_to_read`."""
    with open_reader(path) as file:
        return file.read()


def read_if_there(path: Path) -> bytes | None:
    """Return what a file holds, or None if there is none, nor anything else; errors are those of `open_to_read`."""
    try:
        return read_file(path)
    except FileNotFoundError:
        return None


def check_regular_files(*folders: Path) -> None:
    """Refuse folders in which anything but files and folders lies, before a library opens what is in them.

    Links count as what they lead to; of a folder that is not there nothing is said.

    Raises:
        OSError: something else lies there; the message says what it is.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for each in entries:
                if not each.is_file() and not each.is_dir():
                    with contextlib.suppress(FileNotFoundError):  # a link that leads nowhere, or gone by now
                        _check(os.stat(each.path).st_mode, Path(each.path))


def _open(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket, a FIFO without a reader; a link that is not followed
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
