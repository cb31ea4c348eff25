"""Makes a folder that appears complete or not at all.

It is filled under a temporary name beside its own, synced, and renamed. After a crash the next process that wants the
same name finds the temporary folder unlocked, and clears it.
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

__all__ = ["check_new_folder", "new_folder"]

_UNFINISHED = ".unfinished"


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to fill; it gets the name `path` if the block succeeds, and is removed otherwise.

    Args:
        path: of a folder that does not exist, or is empty.

    Raises:
        InvalidConfigError: it exists, and is not an empty folder.
        StoreLockedError: another process is filling it.
    """
    path = path.absolute()
    with storage_errors(path):
        check_new_folder(path)
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


def check_new_folder(path: Path) -> None:
    """Refuse what is there, unless it is an empty folder.

    Raises:
        InvalidConfigError: it is not.
        StorageError: the disk refused.
    """
    with storage_errors(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InvalidConfigError(f"exists, and is not an empty folder: path={path}")


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
    """Sync content, then names, then rename: a power cut must not leave a partial folder under `path`."""
    below = sorted(unfinished.rglob("*"))
    files = [each for each in below if each.is_file()]
    if files:
        sync_files(files)
    sync_directories([*(each for each in reversed(below) if each.is_dir()), unfinished])
    unfinished.rename(path)
    sync_directory(path.parent)
