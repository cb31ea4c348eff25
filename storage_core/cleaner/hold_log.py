"""Who works on the files of a log: one cleaning of all of it, or several that clean a group each.

Whether a run owns its store can't tell two tasks of one run apart: Spark runs a task again while it takes the first one
for dead, or while the tasks of a job that failed still end. Both would write the same `.cleaned` files. So whoever
changes a log holds its directory by `flock`, and a group of a log that several clean by its first `.log`. It goes with
its process, and leaves no file.

| who                                       | the directory | the first `.log` of the group |
|-------------------------------------------|---------------|-------------------------------|
| a cleaning of a whole log, or its end     | alone         |                               |
| who lets others clean it group by group   | shared        |                               |
| a task that cleans one group              | shared        | alone                         |
| who renames the directory                 | alone         |                               |
| who deletes, moves or repairs the log     | alone, once   |                               |

The last two are for tasks of a run whose driver died. Such a task may be stopped between the check of its owner and a
rename by path, and would find a later log's file there when it wakes up. It checks while it holds the log, so one that
passed the check in time keeps the next owner of the store waiting. One that takes the log after that owner had it once
fails its check, because that owner had signed the maintenance lock by then. So once is enough.
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
"""Spark ends the process of a task that it gave up within some seconds."""

_PAUSE_S: Final = 0.05


@contextlib.contextmanager
def held_alone(directory: Path) -> Iterator[Callable[[], None]]:
    """Hold a log alone; what it gives lets others in that clean groups of it, and keeps those out that want all of it.

    Raises:
        StoreLockedError: another task is still at work on the log; it gets some seconds to end.
        StorageError: the disk refused.
    """
    with _opened(directory, lambda: open_folder(directory)) as descriptor:
        _take(descriptor, fcntl.LOCK_EX, directory)
        yield lambda: _take(descriptor, fcntl.LOCK_SH, directory)


@contextlib.contextmanager
def held_group(directory: Path, base_offset: int) -> Iterator[None]:
    """Hold one group of a log that several clean; it begins at this offset.

    Raises:
        StoreLockedError: another task is at work on the group, or on all of the log, or has replaced it meanwhile.
        StorageError: the disk refused.
    """
    path = directory / segment_file_name(base_offset, LOG)
    with (
        _opened(directory, lambda: open_folder(directory)) as log,
        _opened(path, lambda: open_to_change(path, os.O_RDWR)) as segment,
    ):  # NFS locks alone only what it may write
        _take(log, fcntl.LOCK_SH, directory)
        _take(segment, fcntl.LOCK_EX, path)
        with storage_errors(path):
            is_same = os.path.samestat(os.fstat(segment.fileno()), path.stat())
        if not is_same:
            raise StoreLockedError(f"another task has replaced this segment: path={path}")
        yield


def wait_for_tasks(directories: Iterable[Path]) -> None:
    """Return when no task of an earlier maintenance run can change these logs any more; one that is gone has none.

    The caller holds, and has signed, the maintenance lock of their store.

    Raises:
        StoreLockedError: a task is still at work on one of the logs; it gets some seconds to end.
        StorageError: the disk refused.
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
            f"another task is still at work on this log: path={path}; it ends, or its process has to be ended"
        )


def _is_free(descriptor: OwnDescriptor, mode: int, path: Path) -> bool:
    with storage_errors(path):
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
