"""Locks of a log's files: one cleaning of the whole log, or several tasks that clean a group each.

The owner check of a run can't separate two tasks of that run: Spark retries a task that it takes for dead, or while
tasks of a failed job still end. Both would write the same `.cleaned` files. So each change of a log holds its directory
by `flock`, and a task's group by its first `.log`. The lock ends with its process, and leaves no file.

| holder                                    | the directory | the first `.log` of the group |
|-------------------------------------------|---------------|-------------------------------|
| a cleaning of a whole log, or its end     | alone         |                               |
| a driver of tasks that clean groups       | shared        |                               |
| a task that cleans one group              | shared        | alone                         |
| a rename of the directory                 | alone         |                               |
| a deletion, move or repair of the log     | alone, once   |                               |

The last two are for tasks of a run whose driver died. Such a task may be suspended between its owner check and a rename
by path, and would hit a later log's file when it wakes up. It checks while it holds the log, so a task that passed the
check makes the next owner of the store wait. A task that takes the log after that owner fails its check, as that owner
has signed the maintenance lock. So once is enough.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from sparklog.storage_core.clock import wait_until
from sparklog.storage_core.errors import StoreLockedError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import open_folder, open_to_change
from sparklog.storage_core.storage.own_descriptor import OwnDescriptor

__all__ = ["held_alone", "held_group", "wait_for_tasks"]

_PATIENCE_S: Final = 15.0
"""Spark kills an abandoned task within some seconds."""

_PAUSE_S: Final = 0.05


@contextlib.contextmanager
def held_alone(directory: Path) -> Iterator[Callable[[], None]]:
    """Hold a log alone; the yielded function makes the lock shared, for tasks that clean groups of the log.

    Raises:
        StoreLockedError: another task holds the log, after a wait of 15 s.
    """
    with _opened(directory, lambda: open_folder(directory)) as descriptor:
        _take(descriptor, fcntl.LOCK_EX, directory)
        yield lambda: _take(descriptor, fcntl.LOCK_SH, directory)


@contextlib.contextmanager
def held_group(directory: Path, base_offset: int) -> Iterator[None]:
    """Hold the group of a log that begins at an offset; other tasks may clean other groups.

    Raises:
        StoreLockedError: another task holds the group or the whole log, or has replaced the group.
    """
    path = directory / segment_file_name(base_offset, LOG)
    with (
        _opened(directory, lambda: open_folder(directory)) as log,
        _opened(path, lambda: open_to_change(path, os.O_RDWR)) as segment,
    ):  # NFS needs a writable descriptor for an exclusive lock
        _take(log, fcntl.LOCK_SH, directory)
        _take(segment, fcntl.LOCK_EX, path)
        with storage_errors(path):
            is_same = os.path.samestat(os.fstat(segment.fileno()), path.stat())
        if not is_same:
            raise StoreLockedError(f"another task has replaced this segment: path={path}")
        yield


def wait_for_tasks(directories: Iterable[Path]) -> None:
    """Wait until no task of an earlier maintenance run can change these logs; missing ones are skipped.

    The caller holds, and has signed, the maintenance lock of their store.

    Raises:
        StoreLockedError: a task holds one of the logs, after a wait of 15 s.
    """
    for directory in directories:
        if directory.is_dir():
            with held_alone(directory):
                pass


@contextlib.contextmanager
def _opened(path: Path, opened: Callable[[], int]) -> Iterator[OwnDescriptor]:
    with storage_errors(path):
        descriptor = OwnDescriptor(opened)
    with contextlib.closing(descriptor):
        yield descriptor


def _take(descriptor: OwnDescriptor, mode: int, path: Path) -> None:
    if not wait_until(lambda: _is_free(descriptor, mode, path), _PATIENCE_S, _PAUSE_S):
        raise StoreLockedError(
            f"another task is still at work on this log: path={path}; wait for its end, or end its process"
        )


def _is_free(descriptor: OwnDescriptor, mode: int, path: Path) -> bool:
    with storage_errors(path):
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
