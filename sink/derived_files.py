"""Kafka's checkpoint files in the log directories' roots, for brokers and people; written from the ledger, never read.

As a broker does, they are written every few seconds and at the end, not with each micro-batch.
"""

from pathlib import Path

from sink.ledger import Ledger
from sink.store import Store
from storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from storage_core.storage.local import replace_file, storage_errors
from storage_core.topic_partition import TopicPartition

__all__ = ["DerivedFiles"]

_INTERVAL_MS = 5_000
"""Kafka's `replica.high.watermark.checkpoint.interval.ms`."""


class DerivedFiles:
    """Writes the four checkpoint files of every log directory root."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._written_ms: int | None = None

    def write_if_due(self, now_ms: int) -> None:
        """Write them unless that was done within the last 5 s."""
        if self._written_ms is None or now_ms - self._written_ms >= _INTERVAL_MS:
            self.write(now_ms)

    def write(self, now_ms: int) -> None:
        """Write the files of every root from the ledger's state."""
        self._written_ms = now_ms
        by_root: dict[Path, dict[TopicPartition, tuple[int, int]]] = {}
        for log, state in self._ledger.states().items():
            root = self._store.log_dir(state.log_dir)
            by_root.setdefault(root, {})[log] = (state.log_start_offset, state.log_end_offset)
        for root, logs in by_root.items():
            ends = {log: end for log, (_, end) in logs.items()}
            contents = {
                "recovery-point-offset-checkpoint": ends,  # everything committed is on the disk
                "replication-offset-checkpoint": ends,
                "log-start-offset-checkpoint": {},  # each log starts at its first segment's base offset
                "cleaner-offset-checkpoint": {},
            }
            with storage_errors(root):
                for name, offsets in contents.items():
                    replace_file(root / name, render_offset_checkpoint(offsets))
