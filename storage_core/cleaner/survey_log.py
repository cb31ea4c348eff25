"""What a cleaning has to know of a whole log before it drops anything: its transactions and its producers.

One pass over the headers and markers, from the log's start to its end. Neither transaction indexes nor producer
snapshots are needed: what a broker finds in them lies in the log, too, as far as it matters to what is left of it.

Only where an aborted transaction began may be gone: an earlier cleaning dropped its first data. So its index entry is
taken over, if it contradicts nothing: no other transaction of that producer ended in between.

Source: Kafka UnifiedLog.collectAbortedTransactions, lastRecordsOfActiveProducers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from storage_core.checkpoint.producer_snapshot import ProducerState
from storage_core.errors import CorruptBatchError, CorruptFileError
from storage_core.index.transaction_index import AbortedTransaction, parse_transaction_index
from storage_core.log.log_walk import LogWalk, SegmentList
from storage_core.log.producer_states import PRODUCER_ID_EXPIRATION_MS, ProducerStates
from storage_core.log.transactions import read_control_types
from storage_core.record.control_records import ControlType, coordinator_epochs
from storage_core.storage.local import storage_errors

__all__ = ["SurveyedLog", "survey_transactions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedLog:
    """Transactions and producers of a log.

    Attributes:
        aborted: aborted transactions, in the order of their markers.
        last_stable_offset: first offset of the oldest open transaction, or the log's end.
        producers: those that are active at the log's end.
        has_markers: whether any transaction ended in the log.
    """

    aborted: tuple[AbortedTransaction, ...]
    last_stable_offset: int
    producers: tuple[ProducerState, ...]
    has_markers: bool = False


def survey_transactions(segments: SegmentList, log_start_offset: int, now_ms: int) -> SurveyedLog:
    """Return the transactions and producers of a log.

    Args:
        segments: of the log.
        log_start_offset: batches below are not looked at.
        now_ms: current time, for the expiry of producers.

    Raises:
        CorruptBatchError: a marker is damaged, or a batch can't be where it is.
        CorruptFileError: the files end before the log does.
        StorageError: the disk refused.
    """
    producers, aborted = ProducerStates(log_start_offset), list[AbortedTransaction]()
    markers: list[tuple[int, int]] = []
    with closing(LogWalk(segments, log_start_offset, segments.end_offset).chunks()) as chunks:
        for reader, chunk in chunks:
            types = read_control_types(reader, chunk)
            try:
                epochs = coordinator_epochs(chunk.data, chunk.scan, types)
            except CorruptBatchError as error:
                raise reader.corrupt_batch(str(error.args[0]), chunk.position + error.position) from error
            aborted += producers.follow(chunk.scan, types, epochs)
            ends = chunk.scan.take((types == ControlType.ABORT) | (types == ControlType.COMMIT))
            markers += zip(ends.producer_id.tolist(), ends.last_offset.tolist(), strict=True)
    open_since = producers.first_unstable_offset
    producers.remove_expired(now_ms, PRODUCER_ID_EXPIRATION_MS)
    return SurveyedLog(
        aborted=tuple(_with_beginnings(aborted, markers, segments)) if aborted else (),
        last_stable_offset=segments.end_offset if open_since is None else open_since,
        producers=tuple(producers.states()),
        has_markers=bool(markers),
    )


def _with_beginnings(
    aborted: Sequence[AbortedTransaction], markers: Sequence[tuple[int, int]], segments: SegmentList
) -> Iterator[AbortedTransaction]:
    """Yield the transactions as their indexes have them, where those may be believed."""
    before, last = dict[tuple[int, int], int](), dict[int, int]()
    for producer_id, offset in markers:
        before[producer_id, offset] = last.get(producer_id, -1)
        last[producer_id] = offset
    indexed = {(each.producer_id, each.last_offset): each for each in _indexed(segments)}
    for each in aborted:
        key = (each.producer_id, each.last_offset)
        entry = indexed.get(key, each)
        is_earlier = before[key] < entry.first_offset <= each.first_offset
        yield entry if is_earlier and entry.last_stable_offset <= each.last_stable_offset else each


def _indexed(segments: SegmentList) -> Iterator[AbortedTransaction]:
    """Yield the entries of all transaction indexes; one that is damaged has none."""
    for files in segments.files:
        path = files.txn_index_path
        with storage_errors(path):
            data = path.read_bytes() if path.exists() else b""
        try:
            yield from parse_transaction_index(data, files.base_offset)
        except CorruptFileError:
            continue
