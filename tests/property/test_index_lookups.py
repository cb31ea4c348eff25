from hypothesis import given
from hypothesis import strategies as st

from storage_core.index.offset_index import OffsetIndex, pack_offset_entries
from storage_core.index.time_index import TimeIndex, pack_time_entries

_BASES = st.integers(0, 2**62)
_RELATIVE = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=50).map(sorted)


@given(_BASES, _RELATIVE, st.integers(-5, 2**31 + 5), st.integers(0, 3))
def test_offset_lookup_matches_scan_of_entries(base: int, relative: list[int], target: int, padding: int) -> None:
    """The binary search answers what a look at every entry answers, with and without a zero tail."""
    positions = [100 + 10 * number for number in range(len(relative))]
    index = OffsetIndex.from_bytes(pack_offset_entries(relative, positions) + bytes(8 * padding), base)

    below = [(base + o, p) for o, p in zip(relative, positions, strict=True) if o <= target]
    assert index.lookup(base + target) == (below[-1] if below else (base, 0))


@given(_BASES, st.lists(st.integers(1, 2**62), unique=True, max_size=50).map(sorted), st.integers(-5, 2**62))
def test_time_lookup_matches_scan_of_entries(base: int, timestamps: list[int], target: int) -> None:
    """The binary search answers what a look at every entry answers."""
    index = TimeIndex.from_bytes(pack_time_entries(timestamps, range(len(timestamps))) + bytes(24), base)

    below = [(time, base + o) for o, time in enumerate(timestamps) if time <= target]
    assert index.lookup(target) == (below[-1] if below else (-1, base))
