import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.index.offset_index import OffsetIndex, find_offset_entry, pack_offset_entries
from sparklog.storage_core.index.time_index import TimeIndex, find_time_entry, pack_time_entries

_BASES = st.integers(0, 2**62)
_RELATIVE = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=50).map(sorted)


@given(_BASES, _RELATIVE, st.integers(-5, 2**31 + 5), st.integers(0, 3))
def test_offset_lookup_matches_scan_of_entries(base: int, relative: list[int], target: int, padding: int) -> None:
    """The binary search answers what a look at every entry answers, with and without a zero tail."""
    positions = [100 + 10 * number for number in range(len(relative))]
    index = OffsetIndex(pack_offset_entries(relative, positions) + bytes(8 * padding), base)

    below = [(base + o, p) for o, p in zip(relative, positions, strict=True) if o <= target]
    assert index.lookup(base + target) == (below[-1] if below else (base, 0))


@given(_BASES, st.lists(st.integers(1, 2**62), unique=True, max_size=50).map(sorted), st.integers(-5, 2**62))
def test_time_lookup_matches_scan_of_entries(base: int, timestamps: list[int], target: int) -> None:
    """The binary search answers what a look at every entry answers."""
    index = TimeIndex(pack_time_entries(timestamps, range(len(timestamps))) + bytes(24), base)

    below = [(time, base + o) for o, time in enumerate(timestamps) if time <= target]
    assert index.lookup(target) == (below[-1] if below else (-1, base))


class _File:
    """Bytes that are read as a file is; no read may reach outside."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    def read(self, position: int, size: int) -> bytes:
        assert 0 <= position <= position + size <= len(self.data)
        self.read_bytes += size
        return self.data[position : position + size]


@given(st.integers(0, 3000), st.integers(1, 9), st.integers(-9, 30_000), st.sampled_from([0, 1, 7, 5000]))
def test_find_offset_entry_matches_the_loaded_index(count: int, step: int, target: int, padding: int) -> None:
    """A look-up in the file answers what a look-up in the loaded index answers, whatever the sizes and zero tails."""
    data = pack_offset_entries(np.arange(1, count + 1) * step, np.arange(1, count + 1) * 100) + bytes(8 * padding)
    file = _File(data + b"\0\0\0")

    found = find_offset_entry(file.read, len(file.data), 50, 50 + target)

    assert found == OffsetIndex(data, 50).lookup(50 + target)
    assert file.read_bytes <= 4096 + 8 * 20


@given(st.integers(0, 3000), st.integers(0, 3), st.integers(-9, 9_000), st.sampled_from([0, 1, 7, 5000]))
def test_find_time_entry_matches_the_loaded_index(count: int, first: int, target: int, padding: int) -> None:
    """The same for times, the first of which may be 0 at the base offset."""
    data = pack_time_entries(first + np.arange(count) * 3, np.arange(count)) + bytes(12 * padding)
    file = _File(data)

    found = find_time_entry(file.read, len(data), 50, target)

    assert found == TimeIndex(data, 50).lookup(target)


@given(st.binary(max_size=9000), st.integers(-(2**63), 2**63 - 1))
def test_find_entries_in_arbitrary_bytes_stays_inside_the_file(data: bytes, target: int) -> None:
    """Whatever the file holds, the search ends with some entry, and reads nothing outside."""
    file = _File(data)

    find_offset_entry(file.read, len(data), 0, target)
    find_time_entry(file.read, len(data), 0, target)
