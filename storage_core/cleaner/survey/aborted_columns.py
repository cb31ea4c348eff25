"""The aborted transactions of a log in columns: a log may have millions, of which a batch needs a few.

They are in the order of their markers. So those of a range of offsets are adjacent: from the first one whose marker is
not below the range, up to the last one that begins below its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.read.aborted_batches import mask_between
from sparklog.storage_core.record.batch_scan import BatchScan

__all__ = ["NONE_ABORTED", "AbortedColumns"]

_Int64s = npt.NDArray[np.int64]

_INDEX_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedColumns:
    """Aborted transactions, 40 bytes each.

    Attributes:
        producer_id: (n,).
        first_offset: (n,) of each transaction's first data.
        last_offset: (n,) of its marker; rising.
        last_stable_offset: (n,) after the marker.
    """

    producer_id: _Int64s
    first_offset: _Int64s
    last_offset: _Int64s
    last_stable_offset: _Int64s
    _first_from: _Int64s = field(init=False)
    """(n,) the lowest first offset of this one and all later ones."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_first_from", np.minimum.accumulate(self.first_offset[::-1])[::-1])

    @classmethod
    def of(cls, transactions: Sequence[AbortedTransaction]) -> AbortedColumns:
        """Return transactions, in any order, as columns."""
        fields = [
            (each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset) for each in transactions
        ]
        rows = np.array(fields, np.int64).reshape(-1, 4)
        columns = rows[np.argsort(rows[:, 2], kind="stable")].T.copy()
        return cls(
            producer_id=columns[0], first_offset=columns[1], last_offset=columns[2], last_stable_offset=columns[3]
        )

    def __len__(self) -> int:
        return len(self.last_offset)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        columns = (self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)
        for fields in zip(*(each.tolist() for each in columns), strict=True):
            yield AbortedTransaction(_INDEX_VERSION, *fields)

    def between(self, first_offset: int, last_offset: int) -> AbortedColumns:
        """Return those that overlap a range of offsets, and perhaps some more."""
        first = int(np.searchsorted(self.last_offset, first_offset))
        end = int(np.searchsorted(self._first_from, last_offset, side="right"))
        return self.take(slice(first, max(first, end)))

    def take(self, chosen: slice) -> AbortedColumns:
        """Return some of them."""
        return AbortedColumns(
            producer_id=self.producer_id[chosen],
            first_offset=self.first_offset[chosen],
            last_offset=self.last_offset[chosen],
            last_stable_offset=self.last_stable_offset[chosen],
        )

    def mask(self, scan: BatchScan) -> npt.NDArray[np.bool_]:
        """Return (b,) whether each batch is data of one of them; batches are in the order of their offsets."""
        if not len(self) or not len(scan):
            return np.zeros(len(scan), np.bool_)
        near = self.between(int(scan.base_offset[0]), int(scan.last_offset[-1]))
        return mask_between(scan, near.producer_id, near.first_offset, near.last_offset)

    def find(self, producer_ids: _Int64s, last_offsets: _Int64s) -> _Int64s:
        """Return (m,) the places of the transactions with these producers and markers, -1 for none."""
        if not len(self):
            return np.full(len(last_offsets), -1, np.int64)
        places = np.minimum(np.searchsorted(self.last_offset, last_offsets), len(self) - 1)
        is_found = (self.last_offset[places] == last_offsets) & (self.producer_id[places] == producer_ids)
        found: _Int64s = np.where(is_found, places, -1)
        return found


NONE_ABORTED = AbortedColumns.of(())
"""Of a log without transactions."""
