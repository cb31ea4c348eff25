"""Selects batches of transactions that a cleaning may drop: aborted data, and markers without data.

| batch               | may be dropped                                                                           |
|---------------------|------------------------------------------------------------------------------------------|
| data                | if its transaction was aborted                                                           |
| ABORT, COMMIT       | if this pass found no batch of its transaction, kept or not                              |
| emptied control     | yes                                                                                      |
| other control       | no                                                                                       |

So a marker stays for at least one pass after its data.

Source: Kafka CleanedTransactionMetadata; KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.cleaner.survey.aborted_columns import NONE_ABORTED, AbortedColumns
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.producers.transactions import beginnings_and_ends, is_transactional_data
from sparklog.storage_core.record.attributes import CONTROL_BIT
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.control_records import NO_CONTROL_TYPE, ControlType

__all__ = ["CleanedTransactions", "is_control"]


def is_control(scan: BatchScan) -> npt.NDArray[np.bool_]:
    """Return (b,) whether each batch is a control batch."""
    found: npt.NDArray[np.bool_] = (scan.magic >= MAGIC_V2) & ((scan.attributes & CONTROL_BIT) != 0)
    return found


class CleanedTransactions:
    """Follows the batches of a round in their order, over all its groups, or over one.

    Attributes:
        aborted: the aborted transactions that overlap these groups.

    Args:
        open_producers: producers with data, but no marker, of a transaction below the first group.
        base_offset: of the first group.
    """

    def __init__(
        self, aborted: AbortedColumns = NONE_ABORTED, open_producers: Iterable[int] = (), base_offset: int = 0
    ) -> None:
        self.aborted = aborted
        across = aborted.between(base_offset, base_offset - 1)
        self._aborted_met = set(open_producers) & set(across.producer_id[across.first_offset < base_offset].tolist())
        self._committed_met = set(open_producers) - self._aborted_met

    def follow(
        self, scan: BatchScan, types: npt.NDArray[np.int16]
    ) -> tuple[npt.NDArray[np.bool_], list[AbortedTransaction]]:
        """Return (b,) whether each batch may be dropped, and the kept entries of the transaction index.

        Args:
            types: (b,) of `control_types`.
        """
        may_go, stays = np.zeros(len(scan), np.bool_), np.zeros(len(scan), np.bool_)
        control, data = is_control(scan), is_transactional_data(scan)
        if not control.any() and not data.any():
            return may_go, []
        is_aborted = self.aborted.mask(scan)
        may_go |= is_aborted
        places = beginnings_and_ends(scan.producer_id, data, control)
        columns = (places, scan.producer_id[places], types[places], is_aborted[places])
        for place, producer_id, control_type, aborted in zip(*(each.tolist() for each in columns), strict=True):
            if data[place]:
                (self._aborted_met if aborted else self._committed_met).add(producer_id)
                continue
            may_go[place] = self._marker_may_go(producer_id, control_type)
            stays[place] = control_type == ControlType.ABORT and not may_go[place]
        return may_go, self._entries(scan.take(stays)) if stays.any() else []

    def _entries(self, markers: BatchScan) -> list[AbortedTransaction]:
        """Return the index entries of these markers."""
        near = self.aborted.between(int(markers.last_offset[0]), int(markers.last_offset[-1]))
        found = near.find(markers.producer_id, markers.last_offset)
        entries = list(near)
        return [entries[place] for place in found[found >= 0].tolist()]

    def _marker_may_go(self, producer_id: int, control_type: int) -> bool:
        """Return whether a control batch may be dropped; its transaction ends."""
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return control_type == NO_CONTROL_TYPE
        met = self._aborted_met if control_type == ControlType.ABORT else self._committed_met
        if producer_id not in met:
            return True
        met.remove(producer_id)
        return False
