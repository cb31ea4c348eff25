"""A broker's own lock on its roots: held while a command changes what is the broker's.

Source: Kafka LogManager.lockLogDirs, FileLock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from storage_core.errors import StoreLockedError
from storage_core.storage.local import storage_errors
from storage_core.storage.open_regular import open_to_change
from storage_core.topic_partition import parse_directory_name

__all__ = ["broker_locked_out", "no_broker_runs"]

_LOCK_FILE: Final = ".lock"
_META_FILE: Final = "meta.properties"
_HELD: Final = (errno.EACCES, errno.EAGAIN)


@contextlib.contextmanager
def broker_locked_out(roots: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of roots while they are changed; a root gets a lock file if it has none, and keeps it.

    So a broker that is started meanwhile stops, and so does a second command, also where no broker has ever run.

    Args:
        roots: folders that may be roots: with `meta.properties` or with logs. Of others only a lock that is there is
            taken.

    Raises:
        StoreLockedError: a broker runs, or another command.
        StorageError: a lock file can't be made.
    """
    with _held([each for each in set(roots) if _is_root(each)], os.O_RDWR | os.O_CREAT):
        yield


@contextlib.contextmanager
def no_broker_runs(roots: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of roots while they are only read: where there is no lock file nobody is kept out.

    Raises:
        StoreLockedError: a broker runs, or another command.
    """
    with _held([each for each in set(roots) if (each / _LOCK_FILE).is_file()], os.O_RDWR):
        yield


def _is_root(folder: Path) -> bool:
    with storage_errors(folder), os.scandir(folder) as entries:
        return any(
            parse_directory_name(each.name) is not None if each.is_dir() else each.name in (_META_FILE, _LOCK_FILE)
            for each in entries
        )


@contextlib.contextmanager
def _held(roots: Iterable[Path], flags: int) -> Iterator[None]:
    """Hold each lock once: the first descriptor of a file that is closed would give its lock back."""
    with contextlib.ExitStack() as held:
        for path in sorted({each.resolve() / _LOCK_FILE for each in roots}):
            with storage_errors(path):
                descriptor = open_to_change(path, flags)
            held.callback(os.close, descriptor)
            _lock(descriptor, path)
        yield


def _lock(descriptor: int, path: Path) -> None:
    """Take one lock.

    Raises:
        StoreLockedError: somebody else has it.
        StorageError: the disk has no locks.
    """
    with storage_errors(path):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _HELD:
                raise
            raise StoreLockedError(
                f"a broker runs on this folder, or another command changes it: lock={path}; stop it first"
            ) from error
