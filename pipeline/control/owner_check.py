"""Whether a maintenance run still owns its store, asked by executors: two looks at one file, without a lock of theirs.

The run's driver holds `maintenance.lock` by `flock` and has signed it. An executor can't see the lock, but it sees what
the end of an ownership does to the file:

| what happened                             | the file                          |
|-------------------------------------------|-----------------------------------|
| the run ended, or gave up its lease       | is empty                          |
| the run died, and another one has begun   | holds the other one's signature   |
| another one took the store by force       | is another file of that name      |

Between a look and the step behind it there is time for any of these. So little of it that both runs would have to wake
up within the same rename; and what a swap does twice, loading finishes once.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from sparklog.sink.opening.access import MAINTENANCE_LOCK
from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import open_reader

__all__ = ["OwnerCheck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCheck:
    """The owner of the logs, as an executor sees it; travels to executors.

    Attributes:
        path: of the lock's file.
        device, inode: what the file was.
        signature: of the owner.
    """

    path: str
    device: int
    inode: int
    signature: bytes

    @classmethod
    def of(cls, store: Path) -> "OwnerCheck":
        """Return the check of who holds the store's maintenance lock now: the caller does."""
        path = store.absolute() / MAINTENANCE_LOCK
        with storage_errors(path), open_reader(path) as file:
            found = os.fstat(file.fileno())
            return cls(path=str(path), device=found.st_dev, inode=found.st_ino, signature=file.read())

    def holding(self) -> contextlib.AbstractContextManager[None]:
        """Check: no process takes the store by force while its driver holds the maintenance lock."""
        self.check()
        return contextlib.nullcontext()

    def check(self) -> None:
        """Return if the run still owns the store.

        Raises:
            WriterFencedError: it does not; nothing more may be changed.
            StorageError: the disk does not say.
        """
        path = Path(self.path)
        with storage_errors(path):
            try:
                with open_reader(path) as file:
                    found = os.fstat(file.fileno())
                    is_same = (found.st_dev, found.st_ino, file.read()) == (self.device, self.inode, self.signature)
            except FileNotFoundError:
                is_same = False
        if not is_same:
            raise WriterFencedError(f"this maintenance run has lost the store: lock={path}; it has to stop")
