"""A broker's `.lock` of its roots: held by a store's writer, and by commands that change a broker's folder.

A broker takes a lock of its process (Java's `FileLock`), Sparklog one of the open file. Both kinds exclude each other,
and Sparklog's stays when the process closes another descriptor of the same file.

A writer whose store was taken by force may live and hold the locks of its roots. The new writer replaces these lock
files, as `writer.lock`; it never replaces a broker's own.

Source: Kafka LogManager.lockLogDirs, FileLock; fcntl(2), open file description locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from sparklog.storage_core.errors import StoreLockedError
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.own_descriptor import OwnDescriptor
from sparklog.storage_core.storage.owned_names import Owner, remove_unique, rename
from sparklog.storage_core.topic_partition import parse_directory_name

__all__ = ["RootLocks", "lock_roots", "lock_roots_to_read", "refuse_brokers"]

logger = logging.getLogger(__name__)

_LOCK_FILE: Final = ".lock"
_META_FILE: Final = "meta.properties"
_UNWRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
_HELD: Final = (errno.EACCES, errno.EAGAIN)
_FLOCK: Final = "hhqqi"
_OF_OPEN_FILE: Final = -1
"""The kernel's process id for a lock that belongs to an open file: one of Sparklog's."""


class RootLocks:
    """The locks of a store's log directories that a writer holds, each once."""

    def __init__(self) -> None:
        self._held: dict[Path, OwnDescriptor] = {}

    def take(self, root: Path, owner: Owner, *, by_force: bool) -> None:
        """Take the lock of a log directory, until `close`.

        Args:
            by_force: take it from a writer of the same store that has lost it, and may live.

        Raises:
            StoreLockedError: a broker holds it, another store, or a command.
        """
        path = root.resolve() / _LOCK_FILE
        if path in self._held:
            return
        with storage_errors(path):
            descriptor = _opened(path, os.O_RDWR | os.O_CREAT)
        try:
            if by_force and _holder(descriptor, path) == _OF_OPEN_FILE:
                descriptor = _replaced(path, descriptor, owner)
            else:
                _lock(descriptor, path)
        except BaseException:
            descriptor.close()
            raise
        self._held[path] = descriptor

    def close(self) -> None:
        """Release all of them."""
        for descriptor in self._held.values():
            descriptor.close()
        self._held.clear()


@contextlib.contextmanager
def lock_roots(roots: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of roots during a change; a root without a lock file gets one, and keeps it.

    A broker that starts meanwhile stops, and so does a second command, also where no broker has ever run.

    Args:
        roots: folders; those with `meta.properties`, logs or a lock file are locked.

    Raises:
        StoreLockedError: a broker runs, or another command.
        StorageError: a lock file can't be made.
    """
    with _held([each for each in set(roots) if _is_root(each)], os.O_RDWR | os.O_CREAT):
        yield


@contextlib.contextmanager
def lock_roots_to_read(roots: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of roots during a read; a root without a lock file stays unlocked.

    Raises:
        StoreLockedError: a broker runs, or another command.
    """
    with _held([each for each in set(roots) if (each / _LOCK_FILE).is_file()], os.O_RDWR):
        yield


def refuse_brokers(roots: Iterable[Path]) -> None:
    """Refuse roots that a running broker has; a sink may have them.

    A root whose lock file can't be opened for writing is skipped with a warning: for a sink it is offline.

    Raises:
        StoreLockedError: a broker runs.
    """
    for path in sorted({each.resolve() / _LOCK_FILE for each in roots}):
        with storage_errors(path):
            try:
                descriptor = _opened(path, os.O_RDWR)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in _UNWRITABLE:
                    raise
                logger.warning("Can't check whether a broker has a log directory lock=%s (%s)", path, error)
                continue
            with contextlib.closing(descriptor):
                holder = _holder(descriptor, path)
            if holder not in (None, _OF_OPEN_FILE):
                raise _refusal(path)


def _is_root(folder: Path) -> bool:
    with storage_errors(folder), os.scandir(folder) as entries:
        return any(
            parse_directory_name(each.name) is not None if each.is_dir() else each.name in (_META_FILE, _LOCK_FILE)
            for each in entries
        )


@contextlib.contextmanager
def _held(roots: Iterable[Path], flags: int) -> Iterator[None]:
    """Hold each lock once: a second descriptor of the same file would be refused."""
    with contextlib.ExitStack() as held:
        for path in sorted({each.resolve() / _LOCK_FILE for each in roots}):
            with storage_errors(path):
                descriptor = held.enter_context(contextlib.closing(_opened(path, flags)))
            _lock(descriptor, path)
        yield


def _opened(path: Path, flags: int) -> OwnDescriptor:
    return OwnDescriptor(partial(open_to_change, path, flags))


def _lock(descriptor: OwnDescriptor, path: Path) -> None:
    """Take one lock.

    Raises:
        StoreLockedError: another process has it.
        StorageError: the disk has no locks.
    """
    with storage_errors(path):
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole_file())
        except OSError as error:
            if error.errno not in _HELD:
                raise
            raise _refusal(path) from error


def _replaced(path: Path, taken: OwnDescriptor, owner: Owner) -> OwnDescriptor:
    """Replace the lock file of a fenced writer; return the new one, locked.

    Raises:
        StoreLockedError: the writer died, and a broker took its lock before the replacement.
    """
    mine = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    with storage_errors(path):
        descriptor = _opened(mine, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            _lock(descriptor, mine)
            rename(owner, mine, path)
            sync_directory(path.parent)
            if _holder(taken, path) not in (None, _OF_OPEN_FILE):
                raise _refusal(path)
        except BaseException:
            descriptor.close()
            remove_unique(mine)
            raise
    taken.close()
    return descriptor


def _holder(descriptor: OwnDescriptor, path: Path) -> int | None:
    """Return the process that holds a lock, `_OF_OPEN_FILE` for Sparklog, None without one."""
    with storage_errors(path):
        found = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file()))
    return None if found[0] == fcntl.F_UNLCK else int(found[4])


def _whole_file() -> bytes:
    """Return a `struct flock` of a write lock on everything."""
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _refusal(path: Path) -> StoreLockedError:
    return StoreLockedError(
        f"a broker runs on this folder, another store has it, or another command changes it: lock={path}; stop it first"
    )
