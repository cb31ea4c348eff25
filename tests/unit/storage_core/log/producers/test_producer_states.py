"""Source: Kafka ProducerStateManagerTest, ProducerAppendInfo."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogStorageError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.producers.states import PRODUCER_ID_EXPIRATION_MS, BatchMetadata, ProducerStates
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import ControlType, control_types, coordinator_epochs
from sparklog.storage_core.record.v2.batch_header import unpack_header
from tests.build.batch_bytes import BatchSpec, batch_bytes, segment_bytes

_P = BatchSpec(producer_id=7, producer_epoch=3, base_sequence=0)
_TXN = replace(_P, is_transactional=True)
_ABORT = BatchSpec(producer_id=7, producer_epoch=3, marker=int(ControlType.ABORT), coordinator_epoch=11)
_COMMIT = replace(_ABORT, marker=int(ControlType.COMMIT))


def _follow(states: ProducerStates, specs: Sequence[BatchSpec]) -> list[AbortedTransaction]:
    data = segment_bytes(specs, states.map_end_offset)
    scan = scan_batches(data)
    types = control_types(data, scan)
    return states.follow(scan, types, coordinator_epochs(data, scan, types))


def _states(*specs: BatchSpec) -> ProducerStates:
    states = ProducerStates()
    _follow(states, specs)
    return states


def _check(states: ProducerStates, spec: BatchSpec) -> BatchMetadata | None:
    epoch = -1 if spec.marker is None else spec.coordinator_epoch
    return states.check_append(unpack_header(batch_bytes(spec, 0)), epoch)


def test_batches_when_more_than_five_then_the_last_five_are_known() -> None:
    """A Java producer has at most five batches in flight."""
    states = _states(*(replace(_P, base_sequence=number) for number in range(8)))

    assert [each.last_sequence for each in states.batches()[7]] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("number", range(3, 8))
def test_check_append_when_one_of_the_last_five_then_gives_its_offsets(number: int) -> None:
    """A batch that is sent again is answered with the offsets it got."""
    states = _states(*(replace(_P, base_sequence=3 * each, last_offset_delta=2) for each in range(8)))

    found = _check(states, replace(_P, base_sequence=3 * number, last_offset_delta=2))

    assert found is not None
    assert (found.first_offset, found.last_offset) == (3 * number, 3 * number + 2)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (replace(_P, base_sequence=2), None),
        (replace(_P, base_sequence=0), OutOfOrderSequenceError),
        (replace(_P, base_sequence=3), OutOfOrderSequenceError),
        (replace(_P, base_sequence=1, last_offset_delta=1), OutOfOrderSequenceError),
        (replace(_P, producer_epoch=4, base_sequence=0), None),
        (replace(_P, producer_epoch=4, base_sequence=2), OutOfOrderSequenceError),
        (replace(_P, producer_epoch=2, base_sequence=2), InvalidProducerEpochError),
        (replace(_P, producer_epoch=2, base_sequence=0, last_offset_delta=1), InvalidProducerEpochError),
        (replace(_P, producer_id=8, base_sequence=99), None),
        (BatchSpec(), None),
        (replace(_ABORT, producer_epoch=2), InvalidProducerEpochError),
        (_ABORT, None),
    ],
    ids=repr,
)
def test_check_append_after_sequences_0_to_1_of_epoch_3(sent: BatchSpec, error: type[LogStorageError] | None) -> None:
    """The next sequence, 0 of a new epoch, and anything of an unknown producer may follow."""
    states = _states(replace(_P, last_offset_delta=1))

    if error is None:
        assert _check(states, sent) is None
        return
    with pytest.raises(error, match="producer_id=7"):
        _check(states, sent)


@pytest.mark.parametrize(("base", "delta", "following"), [(INT32_MAX, 0, 0), (INT32_MAX - 1, 3, 2), (5, 0, 6)])
def test_check_append_when_sequences_wrap_then_0_follows(base: int, delta: int, following: int) -> None:
    """Behind 2147483647 comes 0, between batches and inside of one."""
    sent = replace(_P, base_sequence=base, last_offset_delta=delta)
    states = _states(sent)

    assert _check(states, replace(_P, base_sequence=following)) is None
    assert _check(states, sent) == states.batches()[7][0]
    assert states.batches()[7][0].first_sequence == base
    with pytest.raises(OutOfOrderSequenceError):
        _check(states, replace(_P, base_sequence=following + 1))


def test_check_append_after_a_marker_of_a_raised_epoch_then_sequence_starts_again() -> None:
    """With transaction version 2 each end of a transaction raises the epoch; its batches are forgotten."""
    states = _states(replace(_TXN, last_offset_delta=4), replace(_COMMIT, producer_epoch=4))

    assert _check(states, replace(_TXN, producer_epoch=4)) is None
    with pytest.raises(OutOfOrderSequenceError):
        _check(states, replace(_TXN, producer_epoch=4, base_sequence=5))
    with pytest.raises(InvalidProducerEpochError):
        _check(states, replace(_TXN, base_sequence=5))


def test_check_append_when_a_later_coordinator_has_written_then_a_marker_of_an_earlier_one_is_refused() -> None:
    """Who coordinated the transaction before has no say any more; its successor goes on, and so do data batches."""
    states = _states(_TXN, _COMMIT, replace(_TXN, base_sequence=1))

    with pytest.raises(TransactionCoordinatorFencedError, match=r"producer_id=7 .*coordinator_epoch=10 known=11"):
        _check(states, replace(_ABORT, coordinator_epoch=10))
    assert _check(states, _COMMIT) is None
    assert _check(states, replace(_COMMIT, coordinator_epoch=12)) is None
    assert _check(states, replace(_TXN, base_sequence=2)) is None
    assert _check(states, replace(_ABORT, producer_id=8, coordinator_epoch=0)) is None


def test_check_append_when_a_transaction_is_open_then_refuses_batches_of_none() -> None:
    """Its end would decide about them, too."""
    states = _states(_TXN)

    with pytest.raises(InvalidTxnStateError):
        _check(states, replace(_P, base_sequence=1))
    assert _check(states, replace(_TXN, base_sequence=1)) is None
    _follow(states, [_COMMIT])
    assert _check(states, replace(_P, base_sequence=1)) is None


def test_follow_when_aborted_then_the_entry_says_what_is_stable() -> None:
    """Up to the oldest transaction that is still open, or behind the marker if none is."""
    states = ProducerStates(100)

    aborted = _follow(states, [_TXN, replace(_TXN, producer_id=8), _ABORT, replace(_ABORT, producer_id=8)])

    assert aborted == [AbortedTransaction(0, 7, 100, 102, 101), AbortedTransaction(0, 8, 101, 103, 104)]
    assert states.first_unstable_offset is None


def test_follow_when_a_transaction_is_open_then_its_first_offset_is_unstable() -> None:
    """A read_committed consumer gets no further."""
    states = _states(BatchSpec(), replace(_TXN, producer_id=8), _TXN, replace(_COMMIT, producer_id=8))

    assert states.first_unstable_offset == 2


def test_follow_when_a_marker_has_no_data_then_only_the_producer_is_known() -> None:
    """A transaction without records here has no entry."""
    states = ProducerStates()

    assert _follow(states, [_ABORT]) == []
    assert states.states() == [
        ProducerState(
            producer_id=7,
            producer_epoch=3,
            last_sequence=-1,
            last_offset=-1,
            offset_delta=0,
            timestamp=1_700_000_000_000,
            coordinator_epoch=11,
            current_txn_first_offset=-1,
        )
    ]


def test_states_when_loaded_then_the_last_batch_and_the_open_transaction_are_known() -> None:
    """A snapshot holds no more than these."""
    before = _states(*(replace(_TXN, base_sequence=2 * number, last_offset_delta=1) for number in range(6)))

    loaded = ProducerStates(before.map_end_offset, before.states())

    assert loaded.states() == before.states()
    assert loaded.first_unstable_offset == 0
    assert loaded.batches()[7] == (BatchMetadata(11, 11, 1, 1_700_000_000_000),)


def test_remove_expired_when_a_day_has_passed_then_keeps_open_transactions_alone() -> None:
    """Expired is who wrote nothing for exactly that time, or longer."""
    states = _states(_P, replace(_TXN, producer_id=8), replace(_P, producer_id=9, time=1))
    states.remove_expired(1_700_000_000_000 + PRODUCER_ID_EXPIRATION_MS)

    assert sorted(states.batches()) == [8, 9]
    assert len(states) == 2


def test_follow_when_no_batch_has_a_producer_then_only_the_end_moves() -> None:
    """Such logs cost nothing."""
    states = _states(BatchSpec(), BatchSpec(last_offset_delta=4))

    assert (states.map_end_offset, len(states), states.first_unstable_offset) == (6, 0, None)


def test_follow_when_the_cleaner_emptied_a_marker_then_its_producer_is_known() -> None:
    """As in a broker, where it has no epoch and expires with the next start."""
    states = _states(replace(_ABORT, records_count=0))

    assert [(each.producer_id, each.producer_epoch, each.timestamp) for each in states.states()] == [(7, -1, -1)]
