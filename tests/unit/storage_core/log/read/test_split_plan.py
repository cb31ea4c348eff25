"""Offset ranges of about equal bytes."""

import numpy as np

from sparklog.storage_core.log.read.split_plan import OffsetRange, SegmentMarks, divide_evenly, plan_ranges


def _segment(base: int, batches: int, records: int = 10, size: int = 100) -> SegmentMarks:
    """A segment of equal batches, each of them in the index."""
    numbers = np.arange(batches, dtype=np.int64)
    return SegmentMarks(base, batches * size, base + (numbers + 1) * records - 1, numbers * size)


def test_plan_ranges_when_the_index_names_every_batch_then_cuts_lie_between_batches_of_equal_bytes() -> None:
    """A range ends behind a batch, and each has its share of the bytes."""
    ranges = plan_ranges([_segment(0, 100)], 0, 1000, 2500)

    assert [each.start_offset for each in ranges] == [0, 260, 510, 760]
    assert ranges[-1].end_offset == 1000
    assert sum(each.size_bytes for each in ranges) == 10_000


def test_plan_ranges_when_there_is_no_index_then_cuts_lie_between_segments() -> None:
    """A segment without marks is read by one task."""
    none = np.empty(0, np.int64)
    segments = [SegmentMarks(base, 1000, none, none) for base in (0, 70, 90)]

    ranges = plan_ranges(segments, 0, 120, 1000)

    assert [(each.start_offset, each.end_offset) for each in ranges] == [(0, 70), (70, 90), (90, 120)]


def test_plan_ranges_when_a_part_is_wanted_then_only_its_bytes_count() -> None:
    """What lies in front of the start and behind the end has no share."""
    ranges = plan_ranges([_segment(0, 100)], 500, 600, 300)

    assert ranges[0].start_offset == 500
    assert ranges[-1].end_offset == 600
    assert sum(each.size_bytes for each in ranges) <= 1100


def test_plan_ranges_when_nothing_is_wanted_then_there_is_no_range() -> None:
    """An empty range of offsets has no parts."""
    assert plan_ranges([_segment(0, 10)], 50, 50, 100) == []
    assert plan_ranges([_segment(0, 10)], 60, 50, 100) == []


def test_plan_ranges_when_nothing_is_known_then_there_is_one_range() -> None:
    """Without segments the range is read as it is: the reader says what is missing."""
    assert plan_ranges([], 5, 9, 100) == [OffsetRange(5, 9, 0)]


def test_divide_evenly_when_ranges_are_too_few_then_the_larger_ones_are_divided() -> None:
    """Parts are in proportion to offsets, and together the same."""
    divided = divide_evenly([OffsetRange(0, 90, 900), OffsetRange(100, 110, 100)], 10, None)

    assert [len(parts) for parts in divided] == [9, 1]
    assert divided[0][0] == OffsetRange(0, 10, 100)
    assert divided[0][-1].end_offset == 90


def test_divide_evenly_when_a_range_is_too_long_then_no_part_is() -> None:
    """The most offsets of a part hold whatever the sizes are."""
    (parts,) = divide_evenly([OffsetRange(0, 10, 0)], 0, 3)

    assert [(each.start_offset, each.end_offset) for each in parts] == [(0, 2), (2, 5), (5, 7), (7, 10)]
