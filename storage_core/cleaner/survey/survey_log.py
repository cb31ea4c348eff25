"""Surveys a whole log before a cleaning drops anything: its transactions and its producers.

One pass over the headers and markers, from the log's start to its end. It needs no transaction indexes or producer
snapshots, as the log has the same facts about its remaining records.

It keeps only the last marker of each producer, and five numbers of each aborted transaction.

Only the first offset of an aborted transaction may be missing: an earlier cleaning dropped its first data. Then the
survey uses its index entry, unless another transaction of that producer ended in between.

Source: Kafka UnifiedLog.collectAbortedTransactions, lastRecordsOfActiveProducers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.cleaner.survey.aborted_columns import NONE_ABORTED, AbortedColumns
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.index.transaction_index import AbortedTransaction, parse_transaction_index
from sparklog.storage_core.log.producers.states import PRODUCER_ID_EXPIRATION_MS, ProducerStates
from sparklog.storage_core.log.producers.transactions import read_control_types
from sparklog.storage_core.log.scan.log_walk import LogWalk, SegmentList
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.control_records import ControlType, coordinator_epochs
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there

__all__ = ["SurveyedLog", "survey_transactions"]

_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedLog:
    """Transactions and producers of a log.

    Attributes:
        aborted: aborted transactions, in the order of their markers.
        last_stable_offset: first offset of the oldest open transaction, or the log's end.
        producers: active ones at the log's end.
        borders: for each segment with batches its base offset, and the producers of transactions that are open there
            and have data below it; in order.
    """

    aborted: AbortedColumns
    last_stable_offset: int
    producers: tuple[ProducerState, ...]
    borders: Sequence[tuple[int, Sequence[int]]] = ()

    def transactions_of(self, base_offset: int, next_offset: int) -> CleanedTransactions:
        """Return the transactions between two segments."""
        place = bisect_left(self.borders, base_offset, key=lambda each: each[0])
        open_producers = self.borders[place][1] if place < len(self.borders) else ()
        return CleanedTransactions(self.aborted.between(base_offset, next_offset - 1), open_producers, base_offset)


def survey_transactions(segments: SegmentList, log_start_offset: int, now_ms: int) -> SurveyedLog:
    """Return the transactions and producers of a log.

    Args:
        log_start_offset: batches below are skipped.
        now_ms: current time, for the expiry of producers.

    Raises:
        CorruptBatchError: a marker is damaged, or a batch has a wrong offset.
        CorruptFileError: the files end below the log's end.
    """
    producers, found = ProducerStates(log_start_offset), _Aborted()
    borders: list[tuple[int, Sequence[int]]] = []
    with closing(LogWalk(segments, log_start_offset, segments.end_offset).chunks()) as chunks:
        for reader, chunk in chunks:
            if not borders or borders[-1][0] != reader.files.base_offset:
                borders.append((reader.files.base_offset, tuple(producers.open_transactions)))
            types = read_control_types(reader, chunk)
            with reader.errors_in(chunk):
                epochs = coordinator_epochs(chunk.data, chunk.scan, types)
            aborted = producers.follow(chunk.scan, types, epochs)
            found.add(chunk.scan.take((types == ControlType.ABORT) | (types == ControlType.COMMIT)), aborted)
    open_since = producers.first_unstable_offset
    producers.remove_expired(now_ms, PRODUCER_ID_EXPIRATION_MS)
    return SurveyedLog(
        aborted=found.with_beginnings(segments),
        last_stable_offset=segments.end_offset if open_since is None else open_since,
        producers=tuple(producers.states()),
        borders=borders,
    )


class _Aborted:
    """The aborted transactions so far, and the last marker of each producer."""

    def __init__(self) -> None:
        self._rows: list[_Int64s] = []
        self._last_marker: dict[int, int] = {}

    def add(self, markers: BatchScan, aborted: Sequence[AbortedTransaction]) -> None:
        """Add the next markers, and the transactions that they abort, in the same order."""
        if not len(markers):
            return
        before = self._before(markers)
        self._last_marker.update(zip(markers.producer_id.tolist(), markers.last_offset.tolist(), strict=True))
        if aborted:
            columns = AbortedColumns.of(aborted)
            known = before[np.searchsorted(markers.last_offset, columns.last_offset)]
            fields = (columns.producer_id, columns.first_offset, columns.last_offset, columns.last_stable_offset, known)
            self._rows.append(np.stack(fields))

    def _before(self, markers: BatchScan) -> _Int64s:
        """Return (m,) the offset of the same producer's previous marker, -1 without one."""
        order = np.argsort(markers.producer_id, kind="stable")
        producers, before = markers.producer_id[order], np.empty(len(order), np.int64)
        before[order[1:]] = markers.last_offset[order[:-1]]
        is_first = np.append(True, producers[1:] != producers[:-1])
        firsts = producers[is_first].tolist()
        before[order[is_first]] = [self._last_marker.get(each, -1) for each in firsts]
        return before

    def with_beginnings(self, segments: SegmentList) -> AbortedColumns:
        """Return the transactions, with first offsets of their indexes where these fit."""
        if not self._rows:
            return NONE_ABORTED
        producer_id, first_offset, last_offset, last_stable_offset, before = np.concatenate(self._rows, axis=1)
        found = AbortedColumns(
            producer_id=producer_id,
            first_offset=first_offset,
            last_offset=last_offset,
            last_stable_offset=last_stable_offset,
        )
        first_offset, last_stable_offset = first_offset.copy(), last_stable_offset.copy()
        for indexed in _indexed(segments):
            places = found.find(indexed.producer_id, indexed.last_offset)
            is_earlier = (before[places] < indexed.first_offset) & (indexed.first_offset <= found.first_offset[places])
            is_earlier &= (places >= 0) & (indexed.last_stable_offset <= found.last_stable_offset[places])
            first_offset[places[is_earlier]] = indexed.first_offset[is_earlier]
            last_stable_offset[places[is_earlier]] = indexed.last_stable_offset[is_earlier]
        return AbortedColumns(
            producer_id=producer_id,
            first_offset=first_offset,
            last_offset=last_offset,
            last_stable_offset=last_stable_offset,
        )


def _indexed(segments: SegmentList) -> Iterator[AbortedColumns]:
    """Yield the entries of each transaction index; a damaged one has none."""
    for files in segments.files:
        path = files.txn_index_path
        with storage_errors(path):
            data = read_if_there(path) or b""
        try:
            yield AbortedColumns.of(parse_transaction_index(data, files.base_offset))
        except CorruptFileError:
            continue
