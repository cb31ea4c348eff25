import pytest

from sparklog.storage_core.errors import CorruptFileError, OffsetOutOfRangeError
from sparklog.storage_core.index.index_entries import max_entries
from sparklog.storage_core.index.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex, pack_offset_entries


def test_pack_offset_entries_when_packed_then_two_big_endian_ints_per_entry() -> None:
    """An entry is a relative offset and a position, four big-endian bytes each."""
    assert pack_offset_entries([1, 258], [16, 4096]).hex() == "0000000100000010" + "0000010200001000"


@pytest.mark.parametrize("offset", [-1, 2**31])
def test_pack_offset_entries_when_offset_does_not_fit_then_refused(offset: int) -> None:
    """A relative offset lies within 0..2147483647."""
    with pytest.raises(OffsetOutOfRangeError, match=f"={offset}"):
        pack_offset_entries([offset], [0])


def test_max_entries_when_size_holds_part_of_an_entry_then_rounded_down() -> None:
    """67 bytes hold 8 entries of 8 bytes and 5 of 12."""
    assert (max_entries(67, 8), max_entries(67, 12)) == (8, 5)


def test_lookup_when_target_between_entries_then_lower_entry() -> None:
    """The answer is the last entry that is not above the target."""
    index = OffsetIndex(pack_offset_entries([3, 9], [100, 200]), 50)

    assert [index.lookup(offset) for offset in (52, 53, 58, 59, 99)] == [
        (50, 0),
        (53, 100),
        (53, 100),
        (59, 200),
        (59, 200),
    ]


def test_lookup_when_index_empty_then_start_of_segment() -> None:
    """Without entries every scan starts at the segment's first byte."""
    assert OffsetIndex(b"", 7).lookup(100) == (7, 0)


def test_offset_index_when_preallocated_then_zero_tail_dropped() -> None:
    """The zeros behind the entries of an active segment are no entries."""
    index = OffsetIndex(pack_offset_entries([3], [100]) + bytes(5 * OFFSET_ENTRY_BYTES), 0)

    assert (index.offsets.tolist(), index.positions.tolist(), index.size_bytes) == ([3], [100], 48)


def test_offset_index_when_only_zeros_then_empty() -> None:
    """A preallocated index without entries has none."""
    assert len(OffsetIndex(bytes(80), 0)) == 0


def test_offset_index_when_size_has_a_rest_then_whole_entries_read() -> None:
    """A partial entry at the end is left out, as in Kafka."""
    assert len(OffsetIndex(pack_offset_entries([3], [100]) + b"\0\0\0", 0)) == 1


def test_sanity_check_when_size_has_a_rest_then_corrupt() -> None:
    """A size that is no multiple of 8 is damage."""
    with pytest.raises(CorruptFileError, match="11 bytes"):
        OffsetIndex(bytes(11), 0).sanity_check()


def test_sanity_check_when_last_offset_below_base_then_corrupt() -> None:
    """The last entry may not lie below the segment's base offset."""
    index = OffsetIndex(bytes.fromhex("fffffffe00000010"), 10)

    with pytest.raises(CorruptFileError, match="last_offset=8 base_offset=10"):
        index.sanity_check()


@pytest.mark.parametrize("data", [b"", bytes(16), pack_offset_entries([0], [10])])
def test_sanity_check_when_empty_padded_or_at_base_then_passes(data: bytes) -> None:
    """An empty index, a padded one and one whose last offset is the base offset pass, as in Kafka."""
    OffsetIndex(data, 5).sanity_check()
