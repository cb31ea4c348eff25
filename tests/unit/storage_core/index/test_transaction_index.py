import pytest

from sparklog.storage_core.errors import CorruptFileError, OffsetOutOfRangeError
from sparklog.storage_core.index.transaction_index import (
    AbortedTransaction,
    collect_aborted,
    pack_transaction_entries,
    parse_transaction_index,
)

_ENTRY = bytes.fromhex("0000" + "0000000000000007" + "0000000000000000" + "0000000000000004" + "0000000000000003")


def test_parse_transaction_index_when_one_entry_then_each_field() -> None:
    """34 bytes: version, producer id, first and last offset, last stable offset."""
    assert parse_transaction_index(_ENTRY, 0) == [AbortedTransaction(0, 7, 0, 4, 3)]


def test_parse_transaction_index_when_partial_entry_at_end_then_left_out() -> None:
    """A cut-off entry is ignored, as in Kafka."""
    assert len(parse_transaction_index(_ENTRY + _ENTRY[:33], 0)) == 1


@pytest.mark.parametrize(
    ("data", "base_offset", "message"),
    [
        (_ENTRY, 5, "last_offset=4"),
        (_ENTRY * 2, 0, "does not increase"),
        (b"\0\1" + _ENTRY[2:], 0, "version 1"),
    ],
)
def test_parse_transaction_index_when_contradictory_then_corrupt(data: bytes, base_offset: int, message: str) -> None:
    """Last offsets lie in the segment and increase; a later version is not read."""
    with pytest.raises(CorruptFileError, match=message):
        parse_transaction_index(data, base_offset)


def test_pack_transaction_entries_when_packed_then_kafkas_bytes() -> None:
    """An entry is 34 bytes in the order of its fields."""
    assert pack_transaction_entries([AbortedTransaction(0, 7, 0, 4, 3)]) == _ENTRY


@pytest.mark.parametrize(("last_offsets", "after"), [([4, 4], -1), ([5, 4], -1), ([4], 4)])
def test_pack_transaction_entries_when_they_go_back_then_refused(last_offsets: list[int], after: int) -> None:
    """The markers that entries name follow each other, also those already in the file."""
    entries = [AbortedTransaction(0, 7, 0, each, 3) for each in last_offsets]

    with pytest.raises(OffsetOutOfRangeError, match="last_offset=4"):
        pack_transaction_entries(entries, after)


def test_collect_aborted_when_range_given_then_those_that_overlap_it() -> None:
    """A transaction overlaps [from, upper bound) if it ends at or behind the one and begins before the other."""
    entries = [
        AbortedTransaction(0, 1, 0, 4, 2),
        AbortedTransaction(0, 2, 2, 9, 6),
        AbortedTransaction(0, 3, 6, 12, 13),
    ]

    assert collect_aborted(entries, 5, 6) == ([entries[1]], True)
    assert collect_aborted(entries, 4, 2) == ([entries[0]], True)
    assert collect_aborted(entries, 5, 7) == (entries[1:], True)
    assert collect_aborted(entries, 5, 14) == (entries[1:], False)
    assert collect_aborted([], 0, 1) == ([], False)
