"""One writer per store: an OS lock held for the life of the sink, and how a lost one is noticed.

The lock is `flock` on `<store>/writer.lock`: it goes with its process, so a crash leaves nothing to clean. Taking it
by force replaces the file; the earlier owner still holds a lock, but on a file that has lost its name, and sees that at
its next check.
"""

import fcntl
import json
import os
import socket
import time
import uuid
from pathlib import Path

from storage_core.errors import StoreLockedError, WriterFencedError
from storage_core.storage.local import storage_errors, sync_directory

__all__ = ["WriterLock"]


class WriterLock:
    """The right to write a store.

    Attributes:
        token: 8 hex digits that no other owner has; names this writer's unpublished files.
    """

    def __init__(self, path: Path, descriptor: int, token: str) -> None:
        self._path = path
        self._descriptor = descriptor
        self.token = token

    @classmethod
    def acquire(cls, path: Path) -> "WriterLock":
        """Take the lock, at once or not at all.

        Raises:
            StoreLockedError: somebody holds it; the message says who.
        """
        token = uuid.uuid4().hex[:8]
        with storage_errors(path):
            while True:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    owner = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
                    os.close(descriptor)
                    raise StoreLockedError(
                        f"another writer holds the store: lock={path} owner={owner or 'unknown'}; stop it, or take the"
                        " lock by force if it can't be stopped"
                    ) from None
                lock = cls(path, descriptor, token)
                if lock._is_current():
                    lock._sign()
                    return lock
                os.close(descriptor)

    @classmethod
    def take_by_force(cls, path: Path) -> "WriterLock":
        """Take the lock from whoever holds it: the file is replaced by one that this process has locked."""
        token = uuid.uuid4().hex[:8]
        mine = path.with_name(f"{path.name}.{token}")
        with storage_errors(path):
            descriptor = os.open(mine, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine.replace(path)
            sync_directory(path.parent)
        lock = cls(path, descriptor, token)
        lock._sign()
        return lock

    def check(self) -> None:
        """Make sure that this writer still owns the store.

        Raises:
            WriterFencedError: it does not.
        """
        if not self._is_current():
            raise WriterFencedError(f"another writer took the store by force: lock={self._path}; this one has to stop")

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)

    def _is_current(self) -> bool:
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._descriptor)
        return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)

    def _sign(self) -> None:
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "since_ms": time.time_ns() // 1_000_000}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(owner).encode() + b"\n", 0)
