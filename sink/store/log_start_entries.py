"""The entries of `log-start-offset-checkpoint`: logs that start above their first segment's base offset.

A broker takes that base offset for a log without an entry. So only logs whose start was raised are checked, and their
directory is listed only after a change: segments below the start are removed, and never come back.

Source: Kafka LogManager.checkpointLogStartOffsetsInDir.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.log.files.names import LOG, parse_base_offset
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LogStartEntries"]


class LogStartEntries:
    """Finds the entries; lists a directory once per change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[TopicPartition, tuple[tuple[int, int], bool]] = {}

    def find(self, states: Mapping[TopicPartition, LogState]) -> dict[TopicPartition, int]:
        """Return the log start offset of each log that needs an entry."""
        risen = {log: state for log, state in states.items() if state.log_start_offset > 0}
        return {log: state.log_start_offset for log, state in risen.items() if self._needs_entry(log, state)}

    def _needs_entry(self, log: TopicPartition, state: LogState) -> bool:
        """Whether a log needs an entry; true for an unreadable directory: a broker takes the larger offset."""
        directory = self._store.log_path(state)
        try:
            seen = state.log_start_offset, os.stat(directory).st_mtime_ns
            known = self._known.get(log)
            if known is None or known[0] != seen:
                known = seen, _first_base_offset(directory) != state.log_start_offset
                self._known[log] = known
        except OSError:
            return True
        return known[1]


def _first_base_offset(directory: Path) -> int | None:
    with os.scandir(directory) as entries:
        bases = [parse_base_offset(each.name) for each in entries if each.name.endswith(LOG)]
    return min((base for base in bases if base is not None), default=None)
