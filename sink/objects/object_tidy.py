"""Keeps the ledger of a store of objects small: checkpoints, the entries that they sum up, replaced data files.

The writer does this. It finds a file, commits, and only then removes the file: after that commit no other one succeeds
that builds on an older version, so a file that no version names by then never gets one.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparklog.sink.delta.damage import one_line
from sparklog.sink.delta.tidy import CHECKPOINT_INTERVAL
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.objects.object_storage import ObjectStorage

__all__ = ["ObjectTidy"]

logger = logging.getLogger(__name__)

_DATA_FILE_AGE_S = 60.0
"""A replaced data file stays this long, for readers that opened the version it belongs to."""
_REMOVED_AT_ONCE = 100


class ObjectTidy:
    """The data files to remove, and when.

    Args:
        folder: of the table in the storage.
        version: of the table, as the writer opened it.
    """

    def __init__(self, storage: ObjectStorage, folder: str, version: int) -> None:
        self._storage = storage
        self._folder = folder
        self._old: dict[str, float] = {}
        self._checkpointed = version - version % CHECKPOINT_INTERVAL

    def after_commit(self, table: DeltaTable, replaced: Iterable[str], current: Callable[[], Collection[str]]) -> None:
        """Remove data files that were found long enough before this commit; write a checkpoint if one is due.

        A failure only warns: a later commit tries again.

        Args:
            table: at the version of the commit.
            replaced: data files of the version before that this one does not name.
            current: returns the data files of the commit.
        """
        try:
            self._remove(replaced, current)
            self._checkpoint(table, current)
        except (StorageError, DeltaError, OSError, ValueError) as error:
            logger.warning("The ledger was not tidied, a later commit will: %s (%s)", self._folder, one_line(error))

    def _remove(self, replaced: Iterable[str], current: Callable[[], Collection[str]]) -> None:
        now = time.monotonic()
        self._old.update(dict.fromkeys(replaced, now))
        due = [name for name, since in self._old.items() if now - since > _DATA_FILE_AGE_S]
        if len(due) < _REMOVED_AT_ONCE:  # one request for many
            return
        needed = current()
        self._storage.remove([f"{self._folder}/{name}" for name in due if name not in needed])
        for name in due:
            del self._old[name]

    def _checkpoint(self, table: DeltaTable, current: Callable[[], Collection[str]]) -> None:
        """Sum the entries up every `CHECKPOINT_INTERVAL` versions; commits of others count, too.

        Data files that others replaced, or wrote for a commit that lost its race, are found here.
        """
        version = int(table.version())
        if version - self._checkpointed < CHECKPOINT_INTERVAL:
            return
        table.create_checkpoint()
        reach("tidy.checkpointed")
        self._checkpointed = version - version % CHECKPOINT_INTERVAL
        table.cleanup_metadata()
        reach("tidy.cleaned")
        names = (each.name.removeprefix(f"{self._folder}/") for each in self._storage.list(self._folder))
        found = {name for name in names if name.startswith("kind=")} - set(current())
        self._old.update(dict.fromkeys(found - self._old.keys(), time.monotonic()))
