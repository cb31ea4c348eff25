"""A broker's own lock on its roots: held while a command changes what is the broker's.

Source: Kafka LogManager.lockLogDirs, FileLock.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterable, Iterator
from pathlib import Path

from storage_core.errors import StoreLockedError
from storage_core.storage.local import storage_errors

__all__ = ["broker_locked_out"]

_LOCK_FILE = ".lock"


@contextlib.contextmanager
def broker_locked_out(folders: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of the brokers whose roots these are; a folder without a lock file was never a broker's.

    Raises:
        StoreLockedError: a broker runs.
    """
    paths = [folder / _LOCK_FILE for folder in sorted({each.absolute() for each in folders})]
    with contextlib.ExitStack() as held:
        for path in paths:
            if not path.is_file():
                continue
            with storage_errors(path):
                file = held.enter_context(path.open("r+b"))
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreLockedError(f"a broker runs on this folder: lock={path}; stop it first") from error
        yield
