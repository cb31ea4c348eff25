"""Which batches of transactions a cleaning may drop: data that was aborted, and markers whose data is gone.

Source: Kafka CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage_core.index.transaction_index import AbortedTransaction

__all__ = ["CleanedTransactions"]


class CleanedTransactions:
    """Follows the batches of one round in their order, over all its groups.

    Args:
        aborted: the aborted transactions that overlap the segments cleaned, in any order.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        raise NotImplementedError
