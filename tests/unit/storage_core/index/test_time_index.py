import pytest

from sparklog.storage_core.errors import CorruptFileError, OffsetOutOfRangeError
from sparklog.storage_core.index.time_index import TIME_ENTRY_BYTES, TimeIndex, pack_time_entries


def test_pack_time_entries_when_packed_then_long_and_int_per_entry() -> None:
    """An entry is eight bytes of timestamp and four of relative offset, big-endian."""
    assert pack_time_entries([258], [3]).hex() == "0000000000000102" + "00000003"


def test_pack_time_entries_when_offset_does_not_fit_then_refused() -> None:
    """A relative offset lies within 0..2147483647."""
    with pytest.raises(OffsetOutOfRangeError):
        pack_time_entries([1], [2**31])


def test_lookup_when_timestamp_between_entries_then_lower_entry() -> None:
    """The answer is the last entry that is not later than the target."""
    index = TimeIndex(pack_time_entries([1000, 2000], [4, 9]), 100)

    assert [index.lookup(time) for time in (999, 1000, 1999, 2000, 9999)] == [
        (-1, 100),
        (1000, 104),
        (1000, 104),
        (2000, 109),
        (2000, 109),
    ]


def test_time_index_when_preallocated_then_zero_tail_dropped() -> None:
    """The zeros behind the entries of an active segment are no entries."""
    index = TimeIndex(pack_time_entries([1000], [4]) + bytes(3 * TIME_ENTRY_BYTES), 0)

    assert (index.timestamps.tolist(), index.offsets.tolist()) == ([1000], [4])


def test_time_index_when_trimmed_to_one_zero_entry_then_kept() -> None:
    """Timestamp 0 at the base offset is a real entry of a trimmed file."""
    index = TimeIndex(bytes(TIME_ENTRY_BYTES), 30)

    assert (index.timestamps.tolist(), index.offsets.tolist()) == ([0], [30])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(13), "13 bytes"),
        (pack_time_entries([1000], [4]) + bytes(TIME_ENTRY_BYTES), "first_timestamp=1000 last_timestamp=0"),
        (bytes.fromhex("00000000000003e8ffffffff"), "last_offset=9 base_offset=10"),
    ],
)
def test_sanity_check_when_contradictory_then_corrupt(data: bytes, message: str) -> None:
    """An odd size, a last entry earlier than the first, or one below the base offset is damage, as in Kafka."""
    with pytest.raises(CorruptFileError, match=message):
        TimeIndex(data, 10).sanity_check()


@pytest.mark.parametrize("data", [b"", pack_time_entries([1000, 2000], [4, 9])])
def test_sanity_check_when_empty_or_increasing_then_passes(data: bytes) -> None:
    """An empty index and an increasing one pass."""
    TimeIndex(data, 0).sanity_check()
