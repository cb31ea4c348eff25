"""Fencing of executors: before each step they check in `maintenance.lock` that their run still owns the store.

The run's driver holds `maintenance.lock` by `flock` and has signed it. An executor can't see the lock, but the file
changes when the ownership ends:

| event                                     | the file                          |
|-------------------------------------------|-----------------------------------|
| the run ended, or gave up its leases      | is empty                          |
| the run died, and another run started     | has the other run's signature     |
| another writer took the store by force    | is another file of that name      |

The ownership may end between the check and the next step. That matters only if both runs do the same rename at the same
time; and loading completes a swap that was started twice.
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
    """The owner of the logs, for executors; sent to Spark tasks.

    Attributes:
        path: of the lock's file.
        device, inode: of the file at the run's start.
        signature: of the owner.
    """

    path: str
    device: int
    inode: int
    signature: bytes

    @classmethod
    def of(cls, store: Path) -> "OwnerCheck":
        """Return the check for the caller, who holds the store's maintenance lock."""
        path = store.absolute() / MAINTENANCE_LOCK
        with storage_errors(path), open_reader(path) as file:
            found = os.fstat(file.fileno())
            return cls(path=str(path), device=found.st_dev, inode=found.st_ino, signature=file.read())

    def holding(self) -> contextlib.AbstractContextManager[None]:
        """Check once: no process takes the store by force while the driver holds the maintenance lock."""
        self.check()
        return contextlib.nullcontext()

    def check(self) -> None:
        """Return if the run still owns the store.

        Raises:
            WriterFencedError: it does not; it must change nothing more.
            StorageError: the lock file can't be read.
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
