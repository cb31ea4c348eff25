"""Raises offsets in the rows of logs, beside a running sink.

| offset | effect |
|---|---|
| log start | deletes the records below |
| compacted offset | a cleaning may drop records below, for later ones below; committed before it begins |

One commit for all logs. If the sink commits the version first, this reads the new version and retries. The caller holds
the maintenance lock.
"""

import logging
from collections.abc import Mapping
from typing import Literal

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import OffsetOutOfRangeError, UnknownTopicError, WriterFencedError
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["raise_compacted_offsets", "raise_log_starts"]

logger = logging.getLogger(__name__)

_Column = Literal["log_start_offset", "compacted_offset"]


def raise_log_starts(
    store: Store, starts: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, LogState]:
    """Raise log starts to these offsets; higher ones stay.

    Returns:
        the rows of these logs, as committed.

    Raises:
        OffsetOutOfRangeError: an offset lies above its log's end; nothing was changed.
        UnknownTopicError: there is no such log; nothing was changed.
        CommitStateUnknownError: the ledger's folder failed; the starts may or may not have moved.
    """
    return _raise(store, "log_start_offset", starts, clock)


def raise_compacted_offsets(
    store: Store, offsets: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, LogState]:
    """Raise compacted offsets; as `raise_log_starts`."""
    return _raise(store, "compacted_offset", offsets, clock)


def _raise(
    store: Store, column: _Column, offsets: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, LogState]:
    while True:
        ledger = Ledger.open_beside_writer(store.ledger_path)
        states = _states(ledger, offsets)
        risen = {log: offset for log, offset in offsets.items() if offset > getattr(states[log], column)}
        if not risen:
            return states
        rows = np.array([ledger.rows[log] for log in risen], np.int64)
        values = {
            column: np.array(list(risen.values()), np.int64),
            "updated_ms": np.full(len(risen), clock.now_ms(), np.int64),
        }
        if column == "log_start_offset":  # deleted records need no sync any more
            values["recovery_point"] = np.maximum(ledger.column("recovery_point")[rows], values[column])
        try:
            ledger.correct(rows, values)
        except WriterFencedError:
            logger.debug("A sink committed first, retrying version=%d", ledger.version)
            continue
        return _states(ledger, offsets)


def _states(ledger: Ledger, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogState]:
    states = ledger.states()
    for log, offset in offsets.items():
        if log not in states:
            raise UnknownTopicError(f"no such log in the ledger: log={log}")
        if offset > states[log].log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset is above the log's end: log={log} offset={offset} log_end_offset={states[log].log_end_offset}"
            )
    return {log: states[log] for log in offsets}
