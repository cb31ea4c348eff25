"""Aborted transactions in columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.cleaner.survey.aborted_columns import NONE_ABORTED, AbortedColumns
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.read.aborted_batches import aborted_mask
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.cleaned_log import data, marker


def _transactions(ends: list[tuple[int, int]]) -> list[AbortedTransaction]:
    """Return transactions of producers 7 and 8: so far in front of its marker each begins."""
    offset, found = 0, []
    for length, gap in ends:
        offset += gap + 1
        found.append(AbortedTransaction(0, 7 + length % 2, max(offset - length, 0), offset, offset + 1))
    return found


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), max_size=20), st.integers(0, 130), st.integers(0, 130)
)
def test_between_when_compared_with_a_look_at_each_then_none_is_missing(
    ends: list[tuple[int, int]], first: int, last: int
) -> None:
    """All that overlap a range are there, in order, and those behind its ends are not."""
    transactions = _transactions(ends)
    found = list(AbortedColumns.of(transactions[::-1]).between(first, last))

    assert [each for each in transactions if each in found] == found
    assert {each for each in transactions if each.first_offset <= last and each.last_offset >= first} <= set(found)
    assert all(each.last_offset >= first for each in found)


def test_mask_of_batches_is_that_of_the_transactions_one_by_one() -> None:
    """A batch is aborted by the columns if it is by the transactions."""
    batches = [
        data(offset, ("k", "v"), producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
        for offset, producer in [(0, 7), (1, 8), (2, 7), (4, 7)]
    ]
    scan = scan_batches(b"".join([*batches[:3], marker(3, 7, 0), batches[3]]))  # type: ignore[arg-type]
    transactions = [AbortedTransaction(0, 7, 2, 3, 4), AbortedTransaction(0, 7, 4, 9, 10)]

    assert AbortedColumns.of(transactions).mask(scan).tolist() == aborted_mask(scan, transactions).tolist()
    assert not NONE_ABORTED.mask(scan).any()


@pytest.mark.parametrize(("producer", "offset", "place"), [(7, 4, 1), (8, 4, -1), (7, 5, -1), (7, 99, -1)])
def test_find_of_a_marker_gives_its_transaction(producer: int, offset: int, place: int) -> None:
    """Producer and marker have to be those of the transaction."""
    columns = AbortedColumns.of([AbortedTransaction(0, 7, 0, 2, 3), AbortedTransaction(0, 7, 3, 4, 5)])

    assert columns.find(np.array([producer]), np.array([offset])).tolist() == [place]
    assert NONE_ABORTED.find(np.array([producer]), np.array([offset])).tolist() == [-1]
