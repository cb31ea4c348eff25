"""Transactions of a log: which are open, which were aborted, and where its stable part ends.

A transaction of a producer begins with its first transactional batch and ends with its next marker. Markers are matched
by producer id alone: from transaction version 2 on they carry a higher producer epoch than the data they end.

| what                          | as a broker has it                                                          |
|-------------------------------|-----------------------------------------------------------------------------|
| began before the log's start  | lives on in the oldest offset that is left: the log start                   |
| marker without data           | decides nothing: retention or the cleaner removed the data                  |
| no marker up to the log's end | open: nothing from its first offset on is stable                            |

Source: Kafka ProducerStateManager, ProducerAppendInfo, UnifiedLog.maybeIncrementFirstUnstableOffset; KIP-98.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.producers.snapshots import find_snapshot
from sparklog.storage_core.log.scan.log_walk import LogWalk, SegmentList
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.attributes import CONTROL_BIT, TRANSACTIONAL_BIT
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.control_records import NO_CONTROL_TYPE, ControlType, control_types

__all__ = [
    "Isolation",
    "TransactionTracker",
    "beginnings_and_ends",
    "find_last_stable_offset",
    "follow_transactions",
    "is_transactional_data",
    "read_control_types",
]

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
"""What a consumer sees of transactions: everything up to the log's end, or what was committed, up to the last stable
offset. Markers are never seen."""

_INDEX_VERSION = 0


class TransactionTracker:
    """Follows transactions through a log's batches in their order, as a broker's producer state does.

    Attributes:
        next_offset: after the batches followed.

    Args:
        next_offset: where the batches to follow begin.
        open_transactions: first offset by producer id of the transactions open there.
    """

    def __init__(self, next_offset: int, open_transactions: Mapping[int, int] | None = None) -> None:
        self.next_offset = next_offset
        begun = (open_transactions or {}).items()
        self._open = dict(sorted(begun, key=lambda each: each[1]))  # stays in order of first offsets

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset of each open transaction by producer id, in the order of these offsets."""
        return dict(self._open)

    @property
    def first_open(self) -> int | None:
        """First offset of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    def follow(self, scan: BatchScan, types: npt.NDArray[np.int16]) -> list[AbortedTransaction]:
        """Return the transactions that these batches abort, in the order of their markers.

        Args:
            scan: the next batches.
            types: (b,) their control types, see `control_types`.
        """
        if not len(scan):
            return []
        self.next_offset = int(scan.last_offset[-1]) + 1
        is_data = is_transactional_data(scan)
        is_end = ((types == ControlType.ABORT) | (types == ControlType.COMMIT)) & (scan.producer_id >= 0)
        places = beginnings_and_ends(scan.producer_id, is_data, is_end)
        columns = (scan.producer_id, scan.base_offset, types)
        return [
            aborted
            for producer_id, offset, control_type in zip(*(each[places].tolist() for each in columns), strict=True)
            if (aborted := self._step(producer_id, offset, control_type))
        ]

    def _step(self, producer_id: int, offset: int, control_type: int) -> AbortedTransaction | None:
        if control_type == NO_CONTROL_TYPE:
            self._open.setdefault(producer_id, offset)
            return None
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None or control_type != ControlType.ABORT:
            return None
        last_stable_offset = offset + 1 if self.first_open is None else self.first_open
        return AbortedTransaction(_INDEX_VERSION, producer_id, first_offset, offset, last_stable_offset)


def is_transactional_data(scan: BatchScan) -> npt.NDArray[np.bool_]:
    """Return (b,) whether each batch holds records of a transaction."""
    is_transactional: npt.NDArray[np.bool_] = (scan.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)) == TRANSACTIONAL_BIT
    return is_transactional & (scan.magic >= MAGIC_V2) & (scan.producer_id >= 0)


def read_control_types(reader: SegmentReader, chunk: BatchChunk) -> npt.NDArray[np.int16]:
    """Return (b,) the control types of a chunk's batches.

    Raises:
        CorruptBatchError: a control batch has a wrong CRC or contradicts itself.
    """
    is_control = (chunk.scan.magic >= MAGIC_V2) & ((chunk.scan.attributes & CONTROL_BIT) != 0)
    if not is_control.any():
        return np.full(len(chunk.scan), NO_CONTROL_TYPE, np.int16)
    reader.check_crcs(chunk, chunk.scan.take(is_control))
    with reader.errors_in(chunk):
        return control_types(chunk.data, chunk.scan)


def follow_transactions(
    tracker: TransactionTracker, segments: SegmentList, first_bytes: int = INT32_MAX
) -> Generator[list[AbortedTransaction], None, None]:
    """Let a tracker follow a log's batches from where it is; yields what each chunk aborts.

    Every CRC is checked: a damaged marker would pass for data, and its transaction for one that is still open.

    Args:
        tracker: of the log.
        segments: of the log.
        first_bytes: what to read first; then more and more.

    Raises:
        CorruptBatchError: a batch is damaged, or can't be where it is.
    """
    walk = LogWalk(segments, tracker.next_offset, segments.end_offset, first_bytes=first_bytes)
    with closing(walk.chunks()) as chunks:
        for reader, chunk in chunks:
            reader.check_crcs(chunk, chunk.scan)
            yield tracker.follow(chunk.scan, read_control_types(reader, chunk))


def find_last_stable_offset(segments: SegmentList, log_start_offset: int) -> int:
    """Return the first offset of the oldest transaction that is open at the log's end, or that end.

    The newest producer snapshot within the log knows what was open at its offset, so that only what lies above it is
    scanned; without one it is the whole log.

    That scan looks at headers and markers alone. Damage in a header may end it early, or hide a marker: so the batch
    that ends it is checked, and where a transaction seems to be open, every batch from its first one on.

    Raises:
        CorruptBatchError: a marker, or a batch that the answer depends on, is damaged.
    """
    tracker = _tracker_at_snapshot(segments, log_start_offset) or TransactionTracker(log_start_offset)
    with closing(LogWalk(segments, tracker.next_offset, segments.end_offset).chunks()) as chunks:
        for reader, chunk in chunks:
            if chunk.scan.last_offset[-1] >= segments.end_offset - 1:
                reader.check_crcs(chunk, chunk.scan.take(slice(len(chunk.scan) - 1, None)))
            tracker.follow(chunk.scan, read_control_types(reader, chunk))
    if tracker.first_open is None:
        return segments.end_offset
    first_open = max(tracker.first_open, log_start_offset)
    with closing(LogWalk(segments, first_open, segments.end_offset).chunks()) as chunks:
        for reader, chunk in chunks:
            reader.check_crcs(chunk, chunk.scan)
    return first_open


def beginnings_and_ends(
    producer_id: npt.NDArray[np.int64], is_data: npt.NDArray[np.bool_], is_end: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return, in order, the places of markers, and of data that may begin a transaction.

    That is the first data of a producer, and the first after each of its markers. All other batches change nothing.
    """
    places = np.flatnonzero(is_data | is_end)
    by_producer = places[np.argsort(producer_id[places], kind="stable")]
    ids, ends = producer_id[by_producer], is_end[by_producer]
    matters = ends.copy()
    matters[:1] = True
    matters[1:] |= (ids[1:] != ids[:-1]) | ends[:-1]
    return np.sort(by_producer[matters])


def _tracker_at_snapshot(segments: SegmentList, log_start_offset: int) -> TransactionTracker | None:
    """Return the state in the newest sound snapshot above the log's start; as Kafka, skip damaged ones."""
    found = find_snapshot(segments.directory, log_start_offset, segments.end_offset)
    if found.offset is None:
        return None
    begun = {each.producer_id: each.current_txn_first_offset for each in found.producers}
    return TransactionTracker(found.offset, {each: first for each, first in begun.items() if first >= 0})
