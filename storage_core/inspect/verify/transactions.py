"""Follows the transactions of a log and compares each segment's index of aborted ones with its abort markers.

An aborted transaction has an entry in the segment of its marker, with its first offset, and the offset up to which all
was decided at that moment. What began before the log's first batch is not known, and a cleaner may have removed data
batches: there an entry is taken as it stands.

Source: Kafka ProducerStateManager.completeTxn, lastStableOffset; TransactionIndex.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.index.transaction_index import (
    TRANSACTION_ENTRY_BYTES,
    AbortedTransaction,
    parse_transaction_index,
)
from sparklog.storage_core.inspect.verify.findings import LogReport
from sparklog.storage_core.inspect.verify.offset_walk import OffsetWalk
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.record.attributes import CONTROL_BIT, TRANSACTIONAL_BIT
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.control_records import NO_CONTROL_TYPE, ControlType
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there

__all__ = ["TransactionWalk"]

_KEPT_FINDINGS: Final = 20
_Key = tuple[int, int]


class TransactionWalk:
    """The open transactions at a place in a log, by producer id: a marker may carry a later epoch than its data.

    Args:
        report: where findings go.
        walk: knows whether the log has gaps or damage so far.
        start_offset: of the log; transactions that began before it are not known.
    """

    def __init__(self, report: LogReport, walk: OffsetWalk, start_offset: int) -> None:
        self._report, self._walk, self._start_offset = report, walk, start_offset
        self._open: dict[int, int] = {}
        self._aborted: dict[_Key, AbortedTransaction] = {}
        self._markers: set[_Key] = set()

    def follow(self, scan: BatchScan, control_types: npt.NDArray[np.int16]) -> None:
        """Go on with sound batches, (b,) each."""
        for number in np.flatnonzero(scan.attributes & TRANSACTIONAL_BIT != 0).tolist():
            producer_id, kind = int(scan.producer_id[number]), int(control_types[number])
            if kind == NO_CONTROL_TYPE and not scan.attributes[number] & CONTROL_BIT:
                self._open.setdefault(producer_id, int(scan.base_offset[number]))
            elif kind in (ControlType.ABORT, ControlType.COMMIT):
                self._end(producer_id, int(scan.last_offset[number]), kind == ControlType.ABORT)

    def finish_segment(self, files: SegmentFiles) -> None:
        """Compare the segment's index with what was met since the segment before."""
        path = files.txn_index_path
        with storage_errors(path):
            data = read_if_there(path)
        try:
            entries = parse_transaction_index(data or b"", files.base_offset)
        except CorruptFileError as error:
            entries = []
            self._report.add("index", "txn-index", path.name, str(error))
        else:
            self._compare(path.name, data, {(each.producer_id, each.last_offset): each for each in entries})
        self._report.aborted[files.base_offset] = self._merged(entries)
        self._aborted, self._markers = {}, set()

    def _end(self, producer_id: int, offset: int, is_abort: bool) -> None:
        first = self._open.pop(producer_id, None)
        if not is_abort:
            return
        self._markers.add((producer_id, offset))
        if first is not None:
            stable = min(self._open.values(), default=offset + 1)
            self._aborted[producer_id, offset] = AbortedTransaction(0, producer_id, first, offset, stable)

    def _compare(self, name: str, data: bytes | None, entries: dict[_Key, AbortedTransaction]) -> None:
        if data is None and self._aborted and not self._walk.lost:
            what = f"is missing, but {len(self._aborted)} transactions were aborted in its segment"
            self._report.add("index", "txn-index", name, what)
            return
        if data is not None and len(data) % TRANSACTION_ENTRY_BYTES:
            what = f"has {len(data)} bytes, not a multiple of {TRANSACTION_ENTRY_BYTES}"
            self._report.add("index", "txn-index", name, what)
        if self._walk.lost:
            return  # what the lost batches were is not known
        problems = [self._problem_of(entry, number) for number, entry in enumerate(entries.values())]
        problems += [
            (None, f"lacks the transaction of producer {producer_id} that was aborted at offset {offset}")
            for producer_id, offset in self._aborted
            if (producer_id, offset) not in entries
        ]
        for position, what in [each for each in problems if each is not None][:_KEPT_FINDINGS]:
            self._report.add("index", "txn-index", name, what, position)

    def _problem_of(self, entry: AbortedTransaction, number: int) -> tuple[int | None, str] | None:
        key = (entry.producer_id, entry.last_offset)
        position = number * TRANSACTION_ENTRY_BYTES
        if entry.version != 0:
            return position, f"entry {number} has version {entry.version}"
        if key not in self._markers:
            if self._has_gaps:
                return None
            return position, f"entry {number} says offset {entry.last_offset}, where its producer aborted nothing"
        known = self._aborted.get(key)
        if known is None or self._has_gaps:
            return None
        due = (known.first_offset, known.last_stable_offset)
        if all(is_ == should or 0 <= is_ < self._start_offset for is_, should in zip(_span(entry), due, strict=True)):
            return None
        what = f"entry {number} says first and last stable offset {_span(entry)}, the log says {due}"
        return position, what

    def _merged(self, entries: list[AbortedTransaction]) -> list[AbortedTransaction]:
        """Return what the index should hold.

        That is what was met, and entries of transactions that began before the log, or whose markers were in bytes that
        are damaged now.
        """
        kept = {
            (each.producer_id, each.last_offset): each
            for each in entries
            if (each.producer_id, each.last_offset) in self._markers or self._is_lost(each.last_offset)
        }
        older = {key: each for key, each in kept.items() if key not in self._aborted}
        return sorted([*self._aborted.values(), *older.values()], key=lambda each: each.last_offset)

    def _is_lost(self, offset: int) -> bool:
        """Whether an offset was in damaged bytes after which the log continues."""
        ranges = [(each.first_offset, each.last_offset) for each in self._walk.lost if each.last_offset is not None]
        return any(first <= offset <= last < self._walk.next_offset for first, last in ranges)

    @property
    def _has_gaps(self) -> bool:
        walk = self._walk
        return bool(walk.sparse_batches or walk.inside_gap_count or walk.border_gaps)


def _span(entry: AbortedTransaction) -> tuple[int, int]:
    return entry.first_offset, entry.last_stable_offset
