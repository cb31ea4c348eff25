import pytest

from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint, render_offset_checkpoint
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.topic_partition import TopicPartition

_ORDERS = TopicPartition("orders", 0)
_OFFSETS = TopicPartition("__consumer_offsets", 49)


def test_render_offset_checkpoint_when_two_logs_then_version_count_and_lines() -> None:
    """Version, number of entries, one line per log in order, each ended by a newline."""
    assert (
        render_offset_checkpoint({_ORDERS: 123456, _OFFSETS: 0}) == b"0\n2\n__consumer_offsets 49 0\norders 0 123456\n"
    )


def test_render_offset_checkpoint_when_no_log_then_count_zero() -> None:
    """A checkpoint without entries still has its two head lines."""
    assert render_offset_checkpoint({}) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n"])
def test_parse_offset_checkpoint_when_without_entries_then_empty(data: bytes) -> None:
    """An empty file and one with only its version are valid: a broker creates them so."""
    assert parse_offset_checkpoint(data) == {}


def test_parse_offset_checkpoint_when_any_white_space_then_split() -> None:
    """Fields may be split by any run of blanks and tabs."""
    assert parse_offset_checkpoint(b"0\n1\norders \t 0   5 \n") == {_ORDERS: 5}


def test_parse_offset_checkpoint_when_rendered_then_same() -> None:
    """What was rendered is read back."""
    assert parse_offset_checkpoint(render_offset_checkpoint({_ORDERS: 7, _OFFSETS: 2**63 - 1})) == {
        _ORDERS: 7,
        _OFFSETS: 2**63 - 1,
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1\n0\n", "version 1"),
        (b"x\n0\n", "version is 'x'"),
        (b"0\nmany\n", "number of entries is 'many'"),
        (b"0\n2\norders 0 5\n", "announces 2 entries and has 1"),
        (b"0\n1\norders 0\n", "2 fields, not 3: line=3"),
        (b"0\n1\n orders 0 5\n", "4 fields"),
        (b"0\n1\norders zero 5\n", "partition is 'zero'"),
        (b"0\n1\norders 0 9223372036854775808\n", "offset of orders-0"),
        (b"0\n1\norders 0 5", "cut off"),
        (b"\xff\n", "UTF-8"),
    ],
)
def test_parse_offset_checkpoint_when_malformed_then_corrupt(data: bytes, message: str) -> None:
    """Every departure from the form is damage, and the message says which."""
    with pytest.raises(CorruptFileError, match=message):
        parse_offset_checkpoint(data)
