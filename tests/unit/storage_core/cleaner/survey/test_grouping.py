"""Which segments are cleaned into one."""

from collections.abc import Sequence

import pytest

from sparklog.storage_core.cleaner.survey.grouping import group_segments_by_size
from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment
from sparklog.storage_core.log_config import LogConfig

_MAX = 2**31 - 1


def _segments(
    sizes: Sequence[int], bases: Sequence[int] | None = None, *, index: int = 0, time_index: int = 0
) -> list[ListedSegment]:
    found = list(bases or range(len(sizes)))
    return [
        ListedSegment(
            base_offset=base,
            next_offset=base + 1,
            size_bytes=size,
            modified_ms=0,
            index_bytes=index,
            time_index_bytes=time_index,
        )
        for base, size in zip(found, sizes, strict=True)
    ]


def _grouped(segments: list[ListedSegment], first_uncleanable: int = 1000, **settings: int) -> list[list[int]]:
    config = LogConfig(**{"segment_bytes": 100, "segment_index_bytes": 100, **settings})  # type: ignore[arg-type]
    groups = group_segments_by_size(segments, config, first_uncleanable)
    return [[each.base_offset for each in group] for group in groups]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([100, 1], [[0], [1]]),
        ([99, 1, 1], [[0, 1], [2]]),
        ([50, 50, 50, 50], [[0, 1], [2, 3]]),
        ([500, 10, 90, 0], [[0], [1, 2, 3]]),
        ([0, 0, 100, 0], [[0, 1, 2, 3]]),
    ],
)
def test_grouping_when_sizes_add_up_then_never_above_a_segment(sizes: list[int], groups: list[list[int]]) -> None:
    """Neighbours share a group up to `segment.bytes`; a first one is taken whatever its size."""
    assert _grouped(_segments(sizes)) == groups


@pytest.mark.parametrize("which", ["index", "time_index"])
def test_grouping_when_index_sizes_add_up_then_never_above_an_index(which: str) -> None:
    """Either index alone ends a group."""
    segments = _segments([1, 1, 1], **{which: 50})  # type: ignore[arg-type]

    assert _grouped(segments) == [[0, 1], [2]]


@pytest.mark.parametrize(("last_base", "groups"), [(_MAX, 1), (_MAX + 1, 1), (_MAX + 2, 2)])
def test_grouping_when_offsets_reach_far_then_never_beyond_an_index_entry(last_base: int, groups: int) -> None:
    """The last offset that a segment may hold is the next one's base minus 1, relative to the group's first base."""
    assert len(_grouped(_segments([1, 1, 1], [0, 5, last_base])[:2], first_uncleanable=last_base)) == groups
    assert len(_grouped(_segments([1, 1, 100], [0, 5, last_base]), first_uncleanable=last_base + 1)) == groups + 1


def test_grouping_when_a_far_segment_is_empty_then_taken() -> None:
    """Otherwise an emptied segment would stay for every 2^31 offsets."""
    assert _grouped(_segments([1, 0, 1], [0, 5, 2**40]), first_uncleanable=2**41) == [[0, 5], [2**40]]
