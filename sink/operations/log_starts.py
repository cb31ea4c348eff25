"""Raises log start offsets, beside a running sink: this deletes the records below.

One commit for all logs. If the sink commits the version first, this reads the new version and retries.
"""

import logging
from collections.abc import Mapping

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import OffsetOutOfRangeError, UnknownTopicError, WriterFencedError
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["raise_log_starts"]

logger = logging.getLogger(__name__)


def raise_log_starts(
    store: Store, starts: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, LogState]:
    """Raise log starts to these offsets; higher ones stay. The caller holds the maintenance lock.

    Returns:
        the rows of these logs, as committed.

    Raises:
        OffsetOutOfRangeError: an offset lies above its log's end; nothing was changed.
        UnknownTopicError: there is no such log; nothing was changed.
        CommitStateUnknownError: the ledger's folder failed; the starts may or may not have moved.
    """
    while True:
        ledger = Ledger.open_beside_writer(store.ledger_path)
        states = _states(ledger, starts)
        risen = {log: start for log, start in starts.items() if start > states[log].log_start_offset}
        if not risen:
            return states
        rows = np.array([ledger.rows[log] for log in risen], np.int64)
        values = {
            "log_start_offset": np.array(list(risen.values()), np.int64),
            "updated_ms": np.full(len(risen), clock.now_ms(), np.int64),
        }
        # Deleted records need no sync any more.
        values["recovery_point"] = np.maximum(ledger.column("recovery_point")[rows], values["log_start_offset"])
        try:
            ledger.correct(rows, values)
        except WriterFencedError:
            logger.debug("A sink committed first, retrying version=%d", ledger.version)
            continue
        return _states(ledger, starts)


def _states(ledger: Ledger, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogState]:
    states = ledger.states()
    for log, start in starts.items():
        if log not in states:
            raise UnknownTopicError(f"no such log in the ledger: log={log}")
        if start > states[log].log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset is above the log's end: log={log} offset={start} log_end_offset={states[log].log_end_offset}"
            )
    return {log: states[log] for log in starts}
