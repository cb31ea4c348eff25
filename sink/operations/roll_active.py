"""Active segments rolled without an append: what they hold stays, and is a closed segment's from then on.

The order, and what each step leaves if it is the last one:
- the last time entry, as a broker writes it when a segment stops being the active one: one that a close writes, too
  (`roll.closed`);
- an empty segment behind (`roll.added`): undone by the next opening, for no ledger names it;
- the ledger, for all logs in one commit (`roll.committed`): from here on the empty segment is the active one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import MaintainedStore, WrittenStore
from sparklog.sink.opening.undo import committed_end
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import LogStorageError, WriterFencedError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.index.time_index import pack_time_entries
from sparklog.storage_core.log.append.state import load_append_state
from sparklog.storage_core.log.files.empty_segment import add_empty_segment
from sparklog.storage_core.log.files.names import TIMEINDEX, segment_file_name
from sparklog.storage_core.storage.local import storage_errors, sync_file, write_all
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["roll_where_no_sink_is"]

logger = logging.getLogger(__name__)

_THREADS: Final = 8


def roll_where_no_sink_is(
    maintained: MaintainedStore, logs: Sequence[TopicPartition], clock: Clock
) -> frozenset[TopicPartition]:
    """Roll the active segments of some logs, unless they are empty or gone; return which were.

    Where a sink runs, they are left to it. What can't be rolled stays as it is, and is told as a warning.

    Raises:
        WriterFencedError: the store was taken by force.
    """
    if not logs:
        return frozenset()
    try:
        with maintained.try_writer() as written:
            if written is None:
                logger.info("A sink holds the active segments, they wait for it logs=%d", len(logs))
                return frozenset()
            return _roll(written, logs, clock)
    except WriterFencedError:
        raise
    except LogStorageError as error:
        logger.warning("Active segments can't be rolled: %s", error)
        return frozenset()


def _roll(written: WrittenStore, logs: Sequence[TopicPartition], clock: Clock) -> frozenset[TopicPartition]:
    """Roll segments side by side, for each waits for its disk; one commit tells of all."""
    states = written.ledger.states()
    wanted = [log for log in logs if log in states and states[log].active_size_bytes]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="roll") as pool:
        done = list(pool.map(lambda log: _roll_one(written, states[log], clock), wanted))
    rolled = [log for log, is_rolled in zip(wanted, done, strict=True) if is_rolled]
    if rolled:
        rows = np.array([written.ledger.rows[log] for log in rolled], np.int64)
        values = {"active_base_offset": written.ledger.column("log_end_offset")[rows]}
        values["active_size_bytes"] = np.zeros(len(rows), np.int64)
        values["updated_ms"] = np.full(len(rows), clock.now_ms(), np.int64)
        written.ledger.correct(rows, values)
        reach("roll.committed")
    return frozenset(rolled)


def _roll_one(written: WrittenStore, state: LogState, clock: Clock) -> bool:
    """Put an empty segment behind an active one; return False where that failed."""
    directory = written.store.log_path(state)
    try:
        appended = load_append_state(directory, committed_end(state), clock.monotonic_ms(), 0, written.lock)
        _close_time_index(directory, appended, written)
        reach("roll.closed")
        add_empty_segment(directory, state.log_end_offset, written.lock.token, written.lock)
        reach("roll.added")
    except WriterFencedError:
        raise
    except LogStorageError as error:
        logger.warning("An active segment can't be rolled log=%s-%d: %s", state.topic, state.partition, error)
        return False
    return True


def _close_time_index(directory: Path, state: npt.NDArray[np.void], written: WrittenStore) -> None:
    if state["max_timestamp"] <= state["last_entry_timestamp"]:
        return
    base_offset = int(state["segment_base"])
    path = directory / segment_file_name(base_offset, TIMEINDEX)
    entry = pack_time_entries([state["max_timestamp"]], [state["max_timestamp_offset"] - base_offset])
    with storage_errors(path):
        descriptor = open_to_change(path, os.O_WRONLY | os.O_CREAT)
        try:
            written.lock.check()
            write_all(descriptor, entry, int(state["time_entries"]) * len(entry))
        finally:
            os.close(descriptor)
        sync_file(path)
