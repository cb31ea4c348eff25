"""Keeps a table's folder small: checkpoints, the entries that they sum up, data files that no version needs.

Only the holder of the writer lock does this. A commit of a maintenance run may be under way meanwhile, and its data
file has no entry yet. So the writer finds a file, commits, and only then removes the file: after that commit no other
one succeeds that builds on an older version.
"""

import time
from collections.abc import Collection, Iterable
from pathlib import Path

from deltalake import DeltaTable

from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import sync_directory, sync_files
from sparklog.storage_core.storage.owned_names import Owner, change_names, remove_file

__all__ = ["CHECKPOINT_INTERVAL", "SHORT_PAST", "TableTidy"]

CHECKPOINT_INTERVAL = 100
SHORT_PAST = {
    # Tombstones and log entries that stay for days make each commit slower; these go with the next checkpoint.
    "delta.deletedFileRetentionDuration": "interval 0 seconds",
    "delta.logRetentionDuration": "interval 0 seconds",
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
}
"""Delta's configuration of a table that is tidied."""
_DATA_FILE_AGE_S = 60.0
"""A replaced data file stays this long, for readers that opened the version it belongs to."""


class TableTidy:
    """The files to drop, and when.

    Args:
        log: of the table.
        current: data files of its newest version.
        owner: of the store.
    """

    def __init__(self, log: DeltaLog, current: Collection[Path], owner: Owner) -> None:
        self._log = log
        self._owner = owner
        self._old: dict[Path, float] = {}
        self._checkpointed = max(log.checkpoints(), default=0)
        self._adopt(current)

    def drop_replaced(self, replaced: Iterable[Path], current: Collection[Path]) -> None:
        """After a commit: drop files that were found long enough before it.

        Args:
            replaced: data files of the version before; they stay for some time.
            current: data files of the commit.
        """
        now = time.monotonic()
        self._old.update(dict.fromkeys(replaced, now))
        due = [file for file, since in self._old.items() if now - since > _DATA_FILE_AGE_S]
        for file in due:
            del self._old[file]
            if file not in current:
                remove_file(self._owner, file)

    def checkpoint_if_due(self, table: DeltaTable, current: Collection[Path]) -> None:
        """Write a checkpoint every `CHECKPOINT_INTERVAL` versions; commits of other processes count, too.

        It is durable before the entries it replaces go: the other order could lose the table. Files that others
        replaced beside this writer, or wrote for a commit that lost its race, are found here.
        """
        version = int(table.version())
        if version // CHECKPOINT_INTERVAL <= self._checkpointed // CHECKPOINT_INTERVAL:
            return
        change_names(self._owner, table.create_checkpoint)
        reach("tidy.checkpointed")
        sync_files([self._log.checkpoint(version), self._log.folder / "_last_checkpoint"])
        sync_directory(self._log.folder)
        reach("tidy.synced")
        self._checkpointed = version
        change_names(self._owner, table.cleanup_metadata)
        reach("tidy.cleaned")
        self._adopt(current)

    def _adopt(self, current: Collection[Path]) -> None:
        found = set(self._log.path.glob("*.parquet")).difference(current, self._old)
        self._old.update(dict.fromkeys(found, time.monotonic()))
