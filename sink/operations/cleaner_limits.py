"""Lifts the limits that truncations set to cleaner checkpoints, beside a running sink.

Other records may have the offsets above a cut by now, and nobody has cleaned them: so a truncation commits that
checkpoints count no further, until a maintenance run has recorded where the log's cleaning ends now.
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
    """Let checkpoints of these logs count as they are; the caller holds the maintenance lock.

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
            logger.debug("A sink committed first, once more version=%d", ledger.version)
