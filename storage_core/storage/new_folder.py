"""A folder that appears complete or not at all.

It is filled under another name beside its own, made durable, and renamed. A process that dies before leaves that other
folder; the next one that wants the same name finds nobody holding it, and clears it.
"""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sparklog.storage_core.errors import InvalidConfigError, StoreLockedError
from sparklog.storage_core.storage.local import (
    make_directory,
    storage_errors,
    sync_directories,
    sync_directory,
    sync_files,
)
from sparklog.storage_core.storage.open_regular import open_folder
from sparklog.storage_core.storage.own_descriptor import OwnDescriptor

__all__ = ["new_folder"]

_UNFINISHED = ".unfinished"


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill; it takes the name `path` once the block ends well, and is removed if it does not.

    Args:
        path: of a folder that does not exist, or is empty.

    Raises:
        InvalidConfigError: it exists, and is no empty folder.
        StoreLockedError: another process is filling it.
        StorageError: the disk refused.
    """
    path = path.absolute()
    with storage_errors(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InvalidConfigError(f"exists, and is no empty folder: path={path}")
        make_directory(path.parent)
        unfinished = path.with_name(path.name + _UNFINISHED)
        unfinished.mkdir(exist_ok=True)
        descriptor = OwnDescriptor(partial(open_folder, unfinished))
    try:
        _take(descriptor, unfinished)
        try:
            with storage_errors(path):
                _clear(unfinished)
            yield unfinished
            with storage_errors(path):
                _publish(unfinished, path)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    finally:
        descriptor.close()


def _take(descriptor: OwnDescriptor, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreLockedError(f"another process is filling this folder: path={path}") from None


def _clear(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()


def _publish(unfinished: Path, path: Path) -> None:
    """Content before names, and names before the folder's own: a power cut must not leave a part under `path`."""
    below = sorted(unfinished.rglob("*"))
    files = [each for each in below if each.is_file()]
    if files:
        sync_files(files)
    sync_directories([*(each for each in reversed(below) if each.is_dir()), unfinished])
    unfinished.rename(path)
    sync_directory(path.parent)
