"""Which batches of transactions a cleaning may drop: data that was aborted, and markers whose data is gone.

| batch               | may go                                                                                   |
|---------------------|------------------------------------------------------------------------------------------|
| data                | if its transaction was aborted                                                           |
| ABORT, COMMIT       | if no batch of its transaction was met in this pass, whatever becomes of that batch      |
| emptied control     | yes                                                                                      |
| other control       | no                                                                                       |

So a marker outlives its data by one pass at least.

Source: Kafka CleanedTransactionMetadata; KIP-98.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from storage_core.index.transaction_index import AbortedTransaction
from storage_core.log.aborted_batches import aborted_mask
from storage_core.log.transactions import is_transactional_data
from storage_core.record.attributes import CONTROL_BIT
from storage_core.record.batch_header import MAGIC_V2
from storage_core.record.batch_scan import BatchScan
from storage_core.record.control_records import NO_CONTROL_TYPE, ControlType

__all__ = ["CleanedTransactions", "is_control"]


def is_control(scan: BatchScan) -> npt.NDArray[np.bool_]:
    """Return (b,) whether each batch is a control batch."""
    found: npt.NDArray[np.bool_] = (scan.magic >= MAGIC_V2) & ((scan.attributes & CONTROL_BIT) != 0)
    return found


class CleanedTransactions:
    """Follows the batches of one round in their order, over all its groups.

    Args:
        aborted: the aborted transactions that overlap the segments cleaned, in any order.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._aborted = sorted(set(aborted), key=lambda each: each.last_offset)
        self._by_marker = {(each.producer_id, each.last_offset): each for each in aborted}
        self._committed_met: set[int] = set()
        self._aborted_met: set[int] = set()

    def follow(
        self, scan: BatchScan, types: npt.NDArray[np.int16]
    ) -> tuple[npt.NDArray[np.bool_], list[AbortedTransaction]]:
        """Return (b,) whether each batch may go, and the entries of the index of aborted transactions that stay.

        Args:
            scan: the next batches.
            types: (b,) of `control_types`.
        """
        may_go, kept = np.zeros(len(scan), np.bool_), list[AbortedTransaction]()
        control, data = is_control(scan), is_transactional_data(scan)
        if not control.any() and not data.any():
            return may_go, kept
        if self._aborted and self._aborted[0].last_offset < scan.base_offset[0]:
            del self._aborted[: self._passed(int(scan.base_offset[0]))]
        is_aborted = aborted_mask(scan, self._aborted)
        may_go |= is_aborted
        places = _first_of_each(scan.producer_id, data, control)
        columns = (places, scan.producer_id[places], scan.last_offset[places], types[places], is_aborted[places])
        for place, producer_id, offset, control_type, aborted in zip(*(each.tolist() for each in columns), strict=True):
            if data[place]:
                (self._aborted_met if aborted else self._committed_met).add(producer_id)
                continue
            may_go[place] = self._marker_may_go(producer_id, control_type)
            if control_type == ControlType.ABORT and not may_go[place]:
                entry = self._by_marker.get((producer_id, offset))
                kept += [entry] if entry else []
        return may_go, kept

    def _marker_may_go(self, producer_id: int, control_type: int) -> bool:
        """Return whether a control batch may go; its transaction ends."""
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return control_type == NO_CONTROL_TYPE
        met = self._aborted_met if control_type == ControlType.ABORT else self._committed_met
        if producer_id not in met:
            return True
        met.remove(producer_id)
        return False

    def _passed(self, offset: int) -> int:
        """Return how many transactions ended before an offset."""
        return int(np.searchsorted([each.last_offset for each in self._aborted], offset))


def _first_of_each(
    producer_id: npt.NDArray[np.int64], data: npt.NDArray[np.bool_], control: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return, in order, the places of control batches, and of a producer's first data batch behind each of its own."""
    places = np.flatnonzero(data | control)
    by_producer = places[np.argsort(producer_id[places], kind="stable")]
    ids, ends = producer_id[by_producer], control[by_producer]
    matters = ends.copy()
    matters[:1] = True
    matters[1:] |= (ids[1:] != ids[:-1]) | ends[:-1]
    return np.sort(by_producer[matters])
