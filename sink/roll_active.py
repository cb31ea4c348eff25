"""Active segments rolled without an append: what they hold stays, and is a closed segment's from then on.

The order, and what each step leaves if it is the last one:
- the last time entry, as a broker writes it when a segment stops being the active one: one that a close writes, too;
- an empty segment behind: undone by the next opening, for no ledger names it;
- the ledger, for all logs in one commit: from here on the empty segment is the active one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sink.store_access import WrittenStore
from sink.undo import committed_end
from storage_core.clock import Clock
from storage_core.errors import LogStorageError, WriterFencedError
from storage_core.index.time_index import pack_time_entries
from storage_core.log.append_state import load_append_state
from storage_core.log.empty_segment import add_empty_segment
from storage_core.log.log_files import TIMEINDEX, segment_file_name
from storage_core.storage.local import storage_errors, sync_file, write_all
from storage_core.topic_partition import TopicPartition

__all__ = ["roll_active_segments"]

logger = logging.getLogger(__name__)


def roll_active_segments(
    written: WrittenStore, logs: Sequence[TopicPartition], clock: Clock
) -> dict[TopicPartition, str]:
    """Roll the active segments of some logs, unless they are empty; return why some failed, by log.

    Raises:
        WriterFencedError: the store was taken by force.
        CommitStateUnknownError: the ledger's folder failed; the next opening finds out.
    """
    states, failures, rolled = written.ledger.states(), dict[TopicPartition, str](), list[TopicPartition]()
    for log in logs:
        state = states[log]
        if not state.active_size_bytes:
            continue
        directory = written.store.log_path(state)
        try:
            appended = load_append_state(directory, committed_end(state), clock.now_ms(), 0, written.lock.check)
            _close_time_index(directory, appended, written)
            add_empty_segment(directory, state.log_end_offset, written.lock.token, written.lock.check)
            rolled.append(log)
        except WriterFencedError:
            raise
        except LogStorageError as error:
            logger.warning("An active segment can't be rolled log=%s: %s", log, error)
            failures[log] = str(error)
    if rolled:
        rows = np.array([written.ledger.rows[log] for log in rolled], np.int64)
        values = {"active_base_offset": written.ledger.column("log_end_offset")[rows]}
        values["active_size_bytes"] = np.zeros(len(rows), np.int64)
        values["updated_ms"] = np.full(len(rows), clock.now_ms(), np.int64)
        written.ledger.correct(rows, values)
    return failures


def _close_time_index(directory: Path, state: npt.NDArray[np.void], written: WrittenStore) -> None:
    if state["max_timestamp"] <= state["last_entry_timestamp"]:
        return
    base_offset = int(state["segment_base"])
    path = directory / segment_file_name(base_offset, TIMEINDEX)
    entry = pack_time_entries([state["max_timestamp"]], [state["max_timestamp_offset"] - base_offset])
    with storage_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written.lock.check()
            write_all(descriptor, entry, int(state["time_entries"]) * len(entry))
        finally:
            os.close(descriptor)
        sync_file(path)
