"""Lifts the limits that truncations set to cleaner checkpoints, beside a running sink.

New, uncleaned records may have the offsets above a truncation. So a truncation commits a limit for cleaner checkpoints,
until a maintenance run has recorded the log's new checkpoint.
"""

import logging
from collections.abc import Collection

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["lift_cleaner_limits"]

logger = logging.getLogger(__name__)


def lift_cleaner_limits(store: Store, logs: Collection[TopicPartition]) -> None:
    """Lift the limits of these logs; the caller holds the maintenance lock.

    Raises:
        CommitStateUnknownError: the ledger's folder failed; the limits may or may not be lifted.
    """
    while True:
        ledger = Ledger.open_beside_writer(store.ledger_path)
        limits = ledger.column("cleaner_limit_offset")
        rows = np.array([row for log, row in ledger.rows.items() if log in logs and limits[row] >= 0], np.int64)
        if not len(rows):
            return
        try:
            ledger.correct(rows, {"cleaner_limit_offset": np.full(len(rows), -1, np.int64)})
            return
        except WriterFencedError:
            logger.debug("A sink committed first, retrying version=%d", ledger.version)
