"""`<store>/takeover.lock`: a taking by force waits for the end of each single removal or rename.

A writer holds it shared from its check of `writer.lock` to the end of one removal or rename by path, which is
microseconds; a taking by force holds it alone while it replaces `writer.lock`. The failure it prevents: a writer
checks that it owns the store and is suspended; another writer takes the store by force and commits to files of the same
names; the first writer wakes up and removes them.

The lock ends with its process, like `writer.lock`. The file is empty, stays, and is never replaced.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from sparklog.storage_core.clock import wait_until
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.own_descriptor import OwnDescriptor

__all__ = ["TAKEOVER_LOCK", "TakeoverLock"]

TAKEOVER_LOCK: Final = "takeover.lock"
_WAIT_S: Final = 3.0
_POLL_S: Final = 0.002


class TakeoverLock:
    """One process's handle of the lock, for all of its threads.

    `flock` belongs to the open file, not to the thread: the first thread takes it, the last one releases it.
    """

    def __init__(self, store: Path) -> None:
        self._path = store / TAKEOVER_LOCK
        self._descriptor: OwnDescriptor | None = None
        self._mutex = threading.Lock()
        self._holder_count = 0

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Hold it beside others, after waiting for a taking by force."""
        with self._mutex:
            if not self._holder_count:
                fcntl.flock(self._opened(), fcntl.LOCK_SH)
            self._holder_count += 1
        try:
            yield
        finally:
            with self._mutex:
                self._holder_count -= 1
                if not self._holder_count:
                    fcntl.flock(self._opened(), fcntl.LOCK_UN)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold it alone; yield false if another process still held it after 3 seconds."""
        is_held = wait_until(self._try_alone, _WAIT_S, _POLL_S)
        try:
            yield is_held
        finally:
            if is_held:
                fcntl.flock(self._opened(), fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            self._descriptor.close()

    def _opened(self) -> OwnDescriptor:
        if self._descriptor is None:
            with storage_errors(self._path):
                self._descriptor = OwnDescriptor(partial(open_to_change, self._path, os.O_RDWR | os.O_CREAT))
        return self._descriptor

    def _try_alone(self) -> bool:
        try:
            fcntl.flock(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
