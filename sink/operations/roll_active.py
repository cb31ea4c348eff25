"""Rolls active segments without an append; their records stay, in closed segments.

The steps, and recovery from a crash after each:
- the last time entry, as a broker writes it for a closed segment (`roll.closed`): harmless, a close writes it, too;
- an empty segment after it (`roll.added`): the next opening removes it, as no ledger names it;
- the ledger, for all logs in one commit (`roll.committed`): the empty segment is the active one.
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

__all__ = ["roll_without_sink"]

logger = logging.getLogger(__name__)

_THREADS: Final = 8


def roll_without_sink(
    maintained: MaintainedStore, logs: Sequence[TopicPartition], clock: Clock
) -> frozenset[TopicPartition]:
    """Roll the existing, non-empty active segments of some logs; return the rolled ones.

    A running sink keeps them. A failure only warns.

    Raises:
        WriterFencedError: the store was taken by force.
    """
    if not logs:
        return frozenset()
    try:
        with maintained.try_writer() as written:
            if written is None:
                logger.info("A sink holds the active segments and rolls them later logs=%d", len(logs))
                return frozenset()
            return _roll(written, logs, clock)
    except WriterFencedError:
        raise
    except LogStorageError as error:
        logger.warning("Active segments can't be rolled: %s", error)
        return frozenset()


def _roll(written: WrittenStore, logs: Sequence[TopicPartition], clock: Clock) -> frozenset[TopicPartition]:
    """Roll segments on threads, as each waits for its disk; one commit for all."""
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
    """Add an empty segment after an active one; return whether that succeeded."""
    directory = written.store.log_path(state)
    try:
        appended = load_append_state(directory, state.committed_end, clock.monotonic_ms(), 0, written.lock)
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
