"""Which batches of transactions may go."""

import numpy as np
import pytest

from sparklog.storage_core.cleaner.survey.aborted_columns import AbortedColumns
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import ControlType, control_types
from tests.build.batch_bytes import BatchSpec, segment_bytes
from tests.build.cleaned_log import data, marker


def _follow(transactions: CleanedTransactions, *batches: bytes) -> tuple[list[bool], list[AbortedTransaction]]:
    joined = b"".join(batches)
    scan = scan_batches(joined)
    may_go, kept = transactions.follow(scan, control_types(joined, scan))
    return may_go.tolist(), kept


def _data(offset: int, producer_id: int) -> bytes:
    return data(offset, ("k", "v"), producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def test_follow_of_a_transaction_over_several_calls_keeps_its_marker() -> None:
    """A marker whose data came in an earlier chunk stays, and so does the entry of an aborted one."""
    aborted = [AbortedTransaction(0, 7, 0, 2, 3)]
    transactions = CleanedTransactions(AbortedColumns.of(aborted))

    assert _follow(transactions, _data(0, 7), _data(1, 8)) == ([True, False], [])
    assert _follow(transactions, marker(2, 7, ControlType.ABORT), marker(3, 8, ControlType.COMMIT)) == (
        [False, False],
        aborted,
    )
    assert _follow(transactions, marker(4, 7, ControlType.ABORT), marker(5, 8, ControlType.COMMIT)) == (
        [True, True],
        [],
    )


def test_follow_of_two_transactions_of_one_producer_tells_them_apart() -> None:
    """What one transaction became says nothing about the producer's next one."""
    aborted = [AbortedTransaction(0, 7, 2, 3, 4)]
    batches = [_data(0, 7), marker(1, 7, ControlType.COMMIT), _data(2, 7), marker(3, 7, ControlType.ABORT), _data(4, 7)]

    assert _follow(CleanedTransactions(AbortedColumns.of(aborted)), *batches) == (
        [False, False, True, False, False],
        aborted,
    )


def test_follow_of_data_after_data_that_is_gone_keeps_no_marker_of_it() -> None:
    """Only what is met in this pass counts."""
    assert _follow(CleanedTransactions(), marker(1, 7, ControlType.ABORT), _data(2, 7))[0] == [True, False]


@pytest.mark.parametrize(
    ("spec", "may_go"),
    [(BatchSpec(marker=2), False), (BatchSpec(marker=99), False), (BatchSpec(marker=0, records_count=0), True)],
)
def test_follow_of_other_control_batches_keeps_those_with_records(spec: BatchSpec, may_go: bool) -> None:
    """A control record that ends no transaction stays; a control batch that was emptied may go."""
    joined = segment_bytes([spec], 5)
    scan = scan_batches(joined)

    assert CleanedTransactions().follow(scan, control_types(joined, scan))[0].tolist() == [may_go]


def test_follow_of_batches_without_transactions_lets_none_go() -> None:
    """Plain batches, and those of an idempotent producer, are no transaction's."""
    batches = data(0, ("a", "1")) + data(1, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    scan = scan_batches(batches)

    aborted = AbortedColumns.of([AbortedTransaction(0, 7, 0, 9, 10)])

    assert not np.any(CleanedTransactions(aborted).follow(scan, control_types(batches, scan))[0])


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_follow_of_a_group_whose_transaction_began_in_front_of_it_keeps_its_marker(kind: ControlType) -> None:
    """What data lies in other groups is told; the next marker of that producer is judged by the group alone."""
    aborted = [AbortedTransaction(0, 7, 3, 10, 11)] if kind == ControlType.ABORT else []
    transactions = CleanedTransactions(AbortedColumns.of(aborted), [7, 8], 10)

    assert _follow(transactions, marker(10, 7, kind)) == ([False], aborted)
    assert _follow(transactions, marker(11, 7, kind)) == ([True], [])
