"""Where a staging task writes its batches: a file for the driver to copy, or an object that stays where it is."""

import contextlib
import os
from pathlib import Path
from typing import Protocol

from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.storage.local import write_all
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.owned_names import remove_unique

__all__ = ["StagedFile", "StagedObject", "StagedOutput"]


class StagedOutput(Protocol):
    """The batches of a task attempt."""

    def write(self, data: memoryview) -> None:
        """Append batches."""

    def finish(self) -> None:
        """Let the driver find what was written."""

    def discard(self) -> None:
        """Leave nothing, as far as the storage lets us."""


class StagedFile:
    """A file that the driver can read.

    Args:
        path: with a unique name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = open_to_change(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        reach("stage.started")

    def write(self, data: memoryview) -> None:
        """Append batches."""
        write_all(self._descriptor, data, self._position)
        self._position += len(data)

    def finish(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        """Remove the file; the driver removes its folder anyway."""
        self.finish()
        with contextlib.suppress(OSError):
            remove_unique(self._path)


class StagedObject:
    """An object of the store. It appears once it is finished; then it is an orphan until a commit names it.

    Args:
        name: in the storage, unique.
    """

    def __init__(self, place: StoragePlace, name: str) -> None:
        self._storage = place.open()
        self._name = name
        self._stack = contextlib.ExitStack()
        self._writing = self._stack.enter_context(self._storage.writing(name))
        reach("stage.started")

    def write(self, data: memoryview) -> None:
        """Append batches."""
        self._writing.write(data)

    def finish(self) -> None:
        """Let the object appear."""
        self._stack.close()

    def discard(self) -> None:
        """End the writing without an object; remove it if it has appeared."""
        with contextlib.suppress(_DiscardedError, StorageError):
            self._stack.__exit__(_DiscardedError, _DiscardedError(), None)
        with contextlib.suppress(StorageError):
            self._storage.remove([self._name])


class _DiscardedError(Exception):
    """Ends the writing of an object that must not appear."""
