"""Which batches a read_committed consumer skips: those of transactions that were aborted.

A batch of a transaction is aborted if its producer's next marker says so. Mostly that marker lies in the same chunk.
Where it does not, the headers and markers after the chunk are scanned. A transaction that stays open for long is looked
up in the transaction indexes, if every segment from there on has one until the search is complete; if not, the scan
continues. A missing index proves nothing: Kafka makes the file at a segment's first abort, and a copy may have lost
it.

Source: Kafka CompletedFetch.nextFetchedRecord, LocalLog.collectAbortedTransactions; KIP-98.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError, StorageError
from sparklog.storage_core.index.transaction_index import (
    TRANSACTION_ENTRY_BYTES,
    AbortedTransaction,
    collect_aborted,
    parse_transaction_index,
)
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.producers.transactions import (
    TransactionTracker,
    follow_transactions,
    is_transactional_data,
    read_control_types,
)
from sparklog.storage_core.log.scan.log_walk import LogWalk, SegmentList, is_gone
from sparklog.storage_core.log.scan.segment_reader import SEEK_BYTES, BatchChunk, SegmentReader
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_file

__all__ = ["AbortedBatches", "aborted_mask", "mask_between"]

_SCANNED_CHUNKS: Final = 4

_Index: TypeAlias = list[AbortedTransaction] | None
"""A segment's entries; None if there is no sound index."""


class AbortedBatches:
    """Tells of one reading pass which batches are aborted; it is asked chunk by chunk, in order.

    Args:
        segments: of the log.
        scanned_chunks: how many to scan after the one asked about before the indexes are asked.
    """

    def __init__(self, segments: SegmentList, scanned_chunks: int = _SCANNED_CHUNKS) -> None:
        self._segments = segments
        self._scanned_chunks = scanned_chunks
        self._tracker: TransactionTracker | None = None
        self._aborted: list[AbortedTransaction] = []
        self._listed: list[SegmentFiles] = []
        self._indexes: dict[int, _Index] = {}

    def mask(self, reader: SegmentReader, chunk: BatchChunk) -> npt.NDArray[np.bool_]:
        """Return (b,) whether each batch of a chunk belongs to an aborted transaction.

        What was committed, or is not part of a transaction, is not; nor are markers, and transactions without a marker.

        Raises:
            CorruptBatchError: a marker on the way to the answer is damaged.
        """
        scan = chunk.scan
        if self._tracker is None:
            self._tracker = TransactionTracker(int(scan.base_offset[0]))
        first_new = int(np.searchsorted(scan.last_offset, self._tracker.next_offset))
        fresh = chunk.take(slice(first_new, None))
        self._aborted += self._tracker.follow(fresh.scan, read_control_types(reader, fresh))
        end_offset = int(scan.last_offset[-1]) + 1
        decided = self._look_ahead(self._tracker, end_offset)
        aborted = aborted_mask(scan, [*self._aborted, *decided])
        self._aborted = [each for each in self._aborted if each.last_offset >= end_offset]
        return aborted

    def _look_ahead(self, tracker: TransactionTracker, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return the aborted ones of the transactions that began before an offset and are not decided yet."""
        scan = follow_transactions(tracker, self._segments, SEEK_BYTES)
        with closing(scan):
            for number in itertools.count():
                if tracker.first_open is None or tracker.first_open >= end_offset:
                    return ()
                if number == self._scanned_chunks and (entries := self._indexed(tracker, end_offset)) is not None:
                    return entries
                aborted = next(scan, None)
                if aborted is None:
                    return ()
                self._aborted += aborted
        return ()

    def _indexed(self, tracker: TransactionTracker, end_offset: int) -> _Index:
        """Return the aborted ones of those open at an offset, or None if the indexes may not have them all."""
        found: list[AbortedTransaction] = []
        if self._listed is not self._segments.files:  # a cleaner merged segments, and their indexes with them
            self._listed, self._indexes = self._segments.files, {}
        for files in self._listed[self._segments.number_of(tracker.next_offset) :]:
            if files.base_offset not in self._indexes:
                self._indexes[files.base_offset] = _read_index(files)
            entries = self._indexes[files.base_offset]
            if entries is None:
                return None
            some, is_complete = collect_aborted(entries, tracker.next_offset, end_offset)
            found += some
            if is_complete:
                break
        return found if all(self._has_marker(each) for each in found) else None

    def _has_marker(self, entry: AbortedTransaction) -> bool:
        """Whether the log has the abort marker that an entry names: the index has no CRC of its own."""
        walk = LogWalk(self._segments, entry.last_offset, entry.last_offset + 1, first_bytes=SEEK_BYTES)
        try:
            with closing(walk.chunks()) as chunks:
                for reader, chunk in chunks:
                    is_abort = read_control_types(reader, chunk) == ControlType.ABORT
                    return bool((is_abort & (chunk.scan.producer_id == entry.producer_id)).any())
        except (CorruptBatchError, CorruptFileError):
            return False
        return False


def aborted_mask(scan: BatchScan, aborted: Sequence[AbortedTransaction]) -> npt.NDArray[np.bool_]:
    """Return (b,) whether each batch lies in an aborted transaction of its producer.

    Args:
        scan: of the batches.
        aborted: transactions; those of one producer overlap only if they end with the same marker.
    """
    fields = [(each.producer_id, each.first_offset, each.last_offset) for each in aborted]
    return mask_between(scan, *np.array(fields, np.int64).reshape(-1, 3).T)


def mask_between(
    scan: BatchScan,
    producer_id: npt.NDArray[np.int64],
    first_offset: npt.NDArray[np.int64],
    last_offset: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Do what `aborted_mask` does for transactions in columns."""
    mask = np.zeros(len(scan), np.bool_)
    places = np.flatnonzero(is_transactional_data(scan))
    if not len(places) or not len(producer_id):
        return mask
    producer, first, last, count = producer_id, first_offset, last_offset, len(producer_id)
    of_batch = scan.producer_id[places]
    keys = _ordered_pairs(np.concatenate([producer, of_batch]), np.concatenate([first, scan.last_offset[places]]))
    order = np.argsort(keys[:count], kind="stable")
    slots = np.searchsorted(keys[:count][order], keys[count:], side="right") - 1
    nearest = order[np.maximum(slots, 0)]  # of the transactions that begin at or before the batch's end, the last one
    is_inside = (producer[nearest] == of_batch) & (scan.base_offset[places] < last[nearest])
    mask[places] = (slots >= 0) & is_inside
    return mask


def _ordered_pairs(major: npt.NDArray[np.int64], minor: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return one number per pair that orders like the pair."""
    _, major_rank = np.unique(major, return_inverse=True)
    _, minor_rank = np.unique(minor, return_inverse=True)
    ranks: npt.NDArray[np.int64] = major_rank * len(minor) + minor_rank
    return ranks


def _read_index(files: SegmentFiles) -> _Index:
    path = files.txn_index_path
    try:
        with storage_errors(path):
            data = read_file(path)
        entries = parse_transaction_index(data, files.base_offset)
    except StorageError as error:
        if not is_gone(error):
            raise
        return None
    except CorruptFileError:
        return None
    is_whole = len(data) == len(entries) * TRANSACTION_ENTRY_BYTES
    return entries if is_whole and all(each.first_offset <= each.last_offset for each in entries) else None
