import pytest

from storage_core.errors import CorruptFileError
from storage_core.index.transaction_index import AbortedTransaction, parse_transaction_index

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
