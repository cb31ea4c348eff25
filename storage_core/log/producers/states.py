"""State of a log's idempotent and transactional producers, as a broker keeps it.

Of each producer the last five batches are known, so that a batch that is sent again is recognised, and its epoch and
open transaction. A snapshot holds the last batch alone.

| batch                              | what it changes                                                               |
|------------------------------------|-------------------------------------------------------------------------------|
| data                               | is the last one now; a changed epoch forgets the earlier ones                 |
| data of a transaction              | begins one, unless one is open                                                |
| marker                             | ends the transaction; a raised epoch forgets the batches                      |
| control batch the cleaner emptied  | makes its producer known, nothing more                                        |
| without producer id                | nothing                                                                       |

Sequence numbers wrap from 2147483647 to 0. A log's high watermark is its end here, so a transaction whose marker was
met is decided: none waits for its marker to be replicated.

Source: Kafka ProducerStateManager, ProducerStateEntry, ProducerAppendInfo; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.producers.transactions import TransactionTracker
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.attributes import CONTROL_BIT, TRANSACTIONAL_BIT
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.record.v2.batch_header import BatchHeader

__all__ = ["BATCHES_KEPT", "PRODUCER_ID_EXPIRATION_MS", "BatchMetadata", "ProducerStates"]

BATCHES_KEPT: Final = 5
"""Batches of a producer that are known: as many as a Java producer may have in flight."""

PRODUCER_ID_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
"""Kafka's `producer.id.expiration.ms`."""

_NONE: Final = -1
_SEQUENCES: Final = INT32_MAX + 1


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """One batch of a producer.

    Attributes:
        last_sequence: of its last record.
        last_offset: of the batch.
        offset_delta: last offset minus base offset, and last sequence minus base sequence.
        timestamp: largest of the batch, ms.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of its first record."""
        first = self.last_sequence - self.offset_delta
        return first + _SEQUENCES if first < 0 else first

    @property
    def first_offset(self) -> int:
        """Base offset of the batch."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class _Producer:
    """What is known of one producer; its open transaction is the tracker's."""

    epoch: int = _NONE
    coordinator_epoch: int = _NONE
    timestamp: int = _NONE
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NONE


class ProducerStates:
    """The producers of a log, as of an offset.

    Attributes:
        map_end_offset: the offset after the batches that were followed; a snapshot of this state has its name.

    Args:
        map_end_offset: where the batches to follow begin.
        producers: state of each producer there, as in a snapshot.
    """

    def __init__(self, map_end_offset: int = 0, producers: Iterable[ProducerState] = ()) -> None:
        self.map_end_offset = map_end_offset
        self._producers: dict[int, _Producer] = {}
        begun = {}
        for each in producers:
            self._producers[each.producer_id] = _loaded(each)
            if each.current_txn_first_offset >= 0:
                begun[each.producer_id] = each.current_txn_first_offset
        self._transactions = TransactionTracker(map_end_offset, begun)

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        return self._transactions.first_open

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset of each open transaction by producer id."""
        return self._transactions.open_transactions

    def follow(
        self, scan: BatchScan, types: npt.NDArray[np.int16], coordinator_epochs: npt.NDArray[np.int32]
    ) -> list[AbortedTransaction]:
        """Go on with the log's next batches; return the transactions they abort, in the order of their markers.

        What a broker would not have appended is followed all the same, as a broker does with batches that are in a
        log already: sequences that do not follow, epochs that go back.

        Args:
            scan: the next batches.
            types: (b,) of `control_types`.
            coordinator_epochs: (b,) of `coordinator_epochs`.
        """
        if not len(scan):
            return []
        self.move_to(int(scan.last_offset[-1]) + 1)
        if scan.producer_id.max() < 0:
            return []
        has_producer = (scan.magic >= MAGIC_V2) & (scan.producer_id >= 0)
        self._follow_producers(scan, has_producer, types, coordinator_epochs)
        if not (scan.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)).any():
            return []
        return self._transactions.follow(scan, types)

    def move_to(self, offset: int) -> None:
        """Set the offset after the batches followed, where those in between are gone or have no producers."""
        self.map_end_offset = self._transactions.next_offset = offset

    def check_append(self, header: BatchHeader, coordinator_epoch: int) -> BatchMetadata | None:
        """Return the batch of which this one is a repetition, whose offsets answer it; None if it is to be appended.

        Args:
            header: of the batch.
            coordinator_epoch: of an end-of-transaction marker; -1 for any other batch.

        Raises:
            InvalidProducerEpochError: the log knows a later epoch of the producer.
            OutOfOrderSequenceError: its sequence does not follow the producer's last batch.
            InvalidTxnStateError: it belongs to no transaction while one is open.
            TransactionCoordinatorFencedError: the log has a marker of a later coordinator.
        """
        if header.producer_id < 0:
            return None
        known = self._producers.get(header.producer_id, _Producer())
        if duplicate := _duplicate(known, header):
            return duplicate
        facts = f"producer_id={header.producer_id} epoch={header.producer_epoch}"
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpochError(f"a later epoch of the producer is known: {facts} known={known.epoch}")
        if header.is_control:
            if 0 <= coordinator_epoch < known.coordinator_epoch:
                raise TransactionCoordinatorFencedError(
                    f"a later coordinator has written a marker: {facts} coordinator_epoch={coordinator_epoch} "
                    f"known={known.coordinator_epoch}"
                )
            return None
        if not _is_in_sequence(known, header):
            raise OutOfOrderSequenceError(
                f"sequence does not follow: {facts} base_sequence={header.base_sequence} "
                f"last_sequence={known.last_sequence} of_epoch={known.epoch}"
            )
        if not header.is_transactional and header.producer_id in self._transactions.open_transactions:
            raise InvalidTxnStateError(f"a transaction of the producer is open: {facts}")
        return None

    def remove_expired(self, now_ms: int, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> None:
        """Forget producers without an open transaction that wrote nothing for so long.

        Args:
            now_ms: current time.
            expiration_ms: Kafka's `producer.id.expiration.ms`.
        """
        is_open = self._transactions.open_transactions
        self._producers = {
            producer_id: each
            for producer_id, each in self._producers.items()
            if producer_id in is_open or now_ms - each.timestamp < expiration_ms
        }

    def batches(self) -> dict[int, tuple[BatchMetadata, ...]]:
        """Return the batches known of each producer, oldest first, by producer id."""
        return {producer_id: tuple(each.batches) for producer_id, each in self._producers.items()}

    def states(self) -> list[ProducerState]:
        """Return the entries of a snapshot, in the order in which the producers became known."""
        begun = self._transactions.open_transactions
        return [
            ProducerState(
                producer_id=producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_offset=each.batches[-1].last_offset if each.batches else _NONE,
                offset_delta=each.batches[-1].offset_delta if each.batches else 0,
                timestamp=each.timestamp,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_first_offset=begun.get(producer_id, _NONE),
            )
            for producer_id, each in self._producers.items()
        ]

    def _follow_producers(
        self,
        scan: BatchScan,
        has_producer: npt.NDArray[np.bool_],
        types: npt.NDArray[np.int16],
        coordinator_epochs: npt.NDArray[np.int32],
    ) -> None:
        """Apply the batches that still show at the end: markers, and the last data batches of each producer."""
        is_control = (scan.attributes & CONTROL_BIT) != 0
        last = _last_of_each(scan.producer_id, np.flatnonzero(has_producer & ~is_control))
        places = np.sort(np.concatenate([last, np.flatnonzero(has_producer & is_control)]))
        is_end = (types == ControlType.ABORT) | (types == ControlType.COMMIT)
        columns = (
            scan.producer_id,
            scan.producer_epoch,
            is_control,
            is_end,
            coordinator_epochs,
            scan.base_sequence,
            scan.last_offset,
            scan.last_offset - scan.base_offset,
            scan.max_timestamp,
        )
        for producer_id, epoch, control, end, coordinator_epoch, sequence, offset, delta, timestamp in zip(
            *(each[places].tolist() for each in columns), strict=True
        ):
            producer = self._producers.setdefault(producer_id, _Producer())
            if control and not end:
                continue
            producer.set_epoch(epoch)
            producer.timestamp = timestamp
            if end:
                producer.coordinator_epoch = coordinator_epoch
            else:
                producer.batches.append(BatchMetadata(_last_sequence(sequence, delta), offset, delta, timestamp))


def _loaded(state: ProducerState) -> _Producer:
    producer = _Producer(state.producer_epoch, state.coordinator_epoch, state.timestamp)
    if state.last_offset >= 0:
        batch = BatchMetadata(state.last_sequence, state.last_offset, state.offset_delta, state.timestamp)
        producer.batches.append(batch)
    return producer


def _last_sequence(base_sequence: int, delta: int) -> int:
    return (base_sequence + delta) % _SEQUENCES if base_sequence >= 0 else _NONE


def _last_of_each(producer_id: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of the last batches of each producer, as many as are kept.

    Those before them leave no trace: each would be pushed out, or forgotten by a change of epoch.
    """
    if len(places) <= BATCHES_KEPT:
        return places
    by_producer = places[np.argsort(producer_id[places], kind="stable")]
    ids = producer_id[by_producer]
    ends = np.flatnonzero(np.append(ids[1:] != ids[:-1], True))
    numbers = np.arange(len(ids))
    return by_producer[ends[np.searchsorted(ends, numbers)] - numbers < BATCHES_KEPT]


def _duplicate(known: _Producer, header: BatchHeader) -> BatchMetadata | None:
    if header.is_control or header.producer_epoch != known.epoch:
        return None
    span = (header.base_sequence, header.last_sequence)
    return next((each for each in known.batches if (each.first_sequence, each.last_sequence) == span), None)


def _is_in_sequence(known: _Producer, header: BatchHeader) -> bool:
    """Whether a batch may follow; of an unknown producer, whose records may have been deleted, any may."""
    if known.epoch == _NONE:
        return True
    if header.producer_epoch != known.epoch:
        return header.base_sequence == 0
    return header.base_sequence == known.last_sequence + 1 or (
        header.base_sequence == 0 and known.last_sequence == INT32_MAX
    )
