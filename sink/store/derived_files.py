"""Kafka's checkpoint files in the log directories' roots, for brokers and people; written from the ledger, never read.

As a broker does, the writer writes them every few seconds and at its end, not with each micro-batch. Of the fourth one,
`cleaner-offset-checkpoint`, it makes only an empty file: maintenance runs fill it.
"""

import logging
from collections.abc import Collection, Mapping, Set
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.cleaner_checkpoint_files import CLEANER_CHECKPOINT, drop_cleaner_checkpoints
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.log_start_entries import LogStartEntries
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.owned_names import Owner, replace_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["DerivedFiles"]

logger = logging.getLogger(__name__)

_INTERVAL_MS = 5_000
"""Kafka's `replica.high.watermark.checkpoint.interval.ms`."""


class DerivedFiles:
    """Writes the four checkpoint files of every log directory root that is not offline.

    Args:
        reported: offline log directories that the caller has reported; it may grow.
    """

    def __init__(self, store: Store, ledger: Ledger, owner: Owner, reported: Collection[str] = ()) -> None:
        self._store = store
        self._ledger = ledger
        self._owner = owner
        self._reported = reported
        self._offline: set[str] = set()
        self._starts = LogStartEntries(store)
        self._written_ms: int | None = None

    def write_if_due(self, monotonic_ms: int) -> None:
        """Write them, at most once in 5 s."""
        if self._written_ms is None or monotonic_ms - self._written_ms >= _INTERVAL_MS:
            self._written_ms = monotonic_ms
            self.write()

    def write(self) -> None:
        """Write the files of every root with logs."""
        self._write(self._by_root())

    def write_roots(self, names: Set[str]) -> None:
        """Write the files of some roots; those of a root without logs are empty.

        Raises:
            StorageError: the first failure, after all roots were tried.
        """
        by_root = self._by_root()
        self._write({name: by_root.get(name, {}) for name in sorted(names)})
        for name in sorted(names):
            if self._is_online(name):
                drop_cleaner_checkpoints(self._store.log_dir(name), by_root.get(name, {}), self._owner)

    def _by_root(self) -> dict[str, dict[TopicPartition, LogState]]:
        by_root: dict[str, dict[TopicPartition, LogState]] = {}
        for log, state in self._ledger.states().items():
            by_root.setdefault(state.log_dir, {})[log] = state
        return by_root

    def _write(self, by_root: Mapping[str, Mapping[TopicPartition, LogState]]) -> None:
        failures = []
        for name, logs in by_root.items():
            if not self._is_online(name):
                continue
            try:
                _write_root(self._owner, self._store.log_dir(name), logs, self._starts.find(logs))
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _is_online(self, name: str) -> bool:
        """Check each time: after a lost mount, files would lie below the mount point, and be hidden later."""
        problem = check_root(self._store, name)
        if problem is not None and name not in self._offline and name not in self._reported:
            logger.warning("No checkpoint files are written log_dir=%s reason=%s", self._store.log_dir(name), problem)
            self._offline.add(name)
        elif problem is None:
            self._offline.discard(name)
        return problem is None


def _write_root(
    owner: Owner, root: Path, logs: Mapping[TopicPartition, LogState], starts: Mapping[TopicPartition, int]
) -> None:
    ends = {log: state.log_end_offset for log, state in logs.items()}
    contents = {
        "recovery-point-offset-checkpoint": {log: state.recovery_point for log, state in logs.items()},
        "replication-offset-checkpoint": ends,
        "log-start-offset-checkpoint": starts,
    }
    with storage_errors(root):
        if not (root / CLEANER_CHECKPOINT).exists():
            contents[CLEANER_CHECKPOINT] = {}
        for name, offsets in contents.items():
            replace_file(owner, root / name, render_offset_checkpoint(offsets))
