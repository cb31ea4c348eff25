"""Whatever indexes say, the ranges are exactly what was asked for."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.log.read.split_plan import OffsetRange, SegmentMarks, divide_evenly, plan_ranges

_OFFSETS = st.integers(0, 2**63 - 1)
_LONGS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def _lying_segments(draw: st.DrawFn) -> list[SegmentMarks]:
    bases = sorted(draw(st.lists(_OFFSETS, max_size=5)))
    segments = []
    for base in bases:
        entries = draw(st.lists(st.tuples(_LONGS, _LONGS), max_size=6))
        columns = np.array(entries, np.int64).reshape(-1, 2)
        segments.append(SegmentMarks(base, draw(st.integers(0, 2**40)), columns[:, 0], columns[:, 1]))
    return segments


def _assert_covers(ranges: list[OffsetRange], start: int, end: int) -> None:
    if start >= end:
        assert ranges == []
        return
    assert ranges[0].start_offset == start
    assert ranges[-1].end_offset == end
    assert all(each.start_offset < each.end_offset and each.size_bytes >= 0 for each in ranges)
    assert all(left.end_offset == right.start_offset for left, right in pairwise(ranges))


@given(_lying_segments(), _OFFSETS, _OFFSETS, st.integers(2**34, 2**42))
def test_plan_ranges_when_marks_are_arbitrary_then_ranges_cover_exactly_what_is_wanted(
    segments: list[SegmentMarks], start: int, end: int, range_bytes: int
) -> None:
    """The union of the ranges is [start, end); they are disjoint, in order, and none is empty."""
    _assert_covers(plan_ranges(segments, start, end, range_bytes), start, end)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=6), st.integers(0, 40), st.integers(1, 2**40) | st.none())
def test_divide_evenly_when_bounds_are_arbitrary_then_parts_cover_each_range(
    lengths: list[int], least_count: int, most_offsets: int | None
) -> None:
    """Parts of a range cover it, and none is longer than it may be."""
    ends = np.cumsum(lengths).tolist()
    ranges = [OffsetRange(end - length, end, length) for end, length in zip(ends, lengths, strict=True)]
    if most_offsets is not None:
        most_offsets = max(most_offsets, sum(lengths) // 1000)

    divided = divide_evenly(ranges, least_count, most_offsets)

    for whole, parts in zip(ranges, divided, strict=True):
        _assert_covers(parts, whole.start_offset, whole.end_offset)
        assert most_offsets is None or all(each.offset_count <= most_offsets for each in parts)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(70, 5000)), min_size=1, max_size=300), st.data())
def test_plan_ranges_when_the_index_is_complete_then_no_range_is_much_larger_than_wanted(
    batches: list[tuple[int, int]], data: st.DataObject
) -> None:
    """With every batch in the index a range is at most what is wanted and two batches."""
    records, sizes = (np.array(each, np.int64) for each in zip(*batches, strict=True))
    ends = np.cumsum(records)
    segment = SegmentMarks(0, int(sizes.sum()), ends - 1, np.cumsum(sizes) - sizes)
    wanted = data.draw(st.integers(1000, 100_000))

    ranges = plan_ranges([segment], 0, int(ends[-1]), wanted)

    places = {0: 0} | dict(zip(ends.tolist(), np.cumsum(sizes).tolist(), strict=True))
    found = [places[each.end_offset] - places[each.start_offset] for each in ranges]
    assert max(found) <= wanted + 2 * int(sizes.max())
