"""Cuts what is to be read of a log into offset ranges of about equal bytes.

A cut lies after an append that the offset index names. So no batch is decoded twice, and each range starts where a
look-up of its first offset leads. Whatever an index holds, the ranges together are exactly what was asked for: a lying
index makes them uneven, never wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["OffsetRange", "SegmentMarks", "divide_evenly", "plan_ranges"]

_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SegmentMarks:
    """What is known of one segment: its size, and some entries of its offset index.

    Attributes:
        base_offset: of the segment.
        size_bytes: of its `.log`.
        offsets: (n,) last offsets of some appends, ascending.
        positions: (n,) where those appends start.
    """

    base_offset: int
    size_bytes: int
    offsets: _Int64s
    positions: _Int64s


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets that one task reads in a row.

    Attributes:
        start_offset: the first.
        end_offset: one above the last.
        size_bytes: about so many bytes of the log.
    """

    start_offset: int
    end_offset: int
    size_bytes: int

    @property
    def offset_count(self) -> int:
        """How many offsets; gaps count."""
        return self.end_offset - self.start_offset


def plan_ranges(
    segments: Sequence[SegmentMarks], start_offset: int, end_offset: int, range_bytes: int
) -> list[OffsetRange]:
    """Return ranges of about `range_bytes` each that cover [start, end) in order, none of them empty.

    Args:
        segments: in order of their base offsets; those that hold none of the offsets may be left out.
        start_offset: the first offset.
        end_offset: one above the last; nothing is planned if it is not above the start.
        range_bytes: wanted size, above 0.
    """
    if start_offset >= end_offset:
        return []
    offsets, places, total = _cuts([each for each in segments if each.base_offset < end_offset])
    first = _bytes_before(offsets, places, start_offset)
    size = max(_bytes_up_to(offsets, places, total, end_offset) - first, 0)
    count = max(-(-size // range_bytes), 1)
    wanted = first + size * np.arange(1, count, dtype=np.int64) // count
    slots = np.searchsorted(places, wanted)
    chosen = offsets[slots[slots < len(offsets)]]
    bounds = [start_offset, *np.unique(chosen[(chosen > start_offset) & (chosen < end_offset)]).tolist(), end_offset]
    sizes = np.diff([first, *(_bytes_before(offsets, places, cut) for cut in bounds[1:-1]), first + size]).tolist()
    return [OffsetRange(*each) for each in zip(bounds[:-1], bounds[1:], sizes, strict=True)]


def divide_evenly(ranges: Sequence[OffsetRange], least_count: int, most_offsets: int | None) -> list[list[OffsetRange]]:
    """Return for each range the ranges it is divided into by counting offsets: no index shows the ends of batches.

    Args:
        ranges: none of them empty.
        least_count: about so many ranges are wanted in all, as far as there are offsets.
        most_offsets: no range may be longer; None sets no bound.
    """
    offset_count = sum(each.offset_count for each in ranges)
    divided = []
    for each in ranges:
        parts = -(-each.offset_count // most_offsets) if most_offsets else 1
        if len(ranges) < least_count:
            parts = max(parts, round(each.offset_count * least_count / offset_count))
        divided.append(_divide(each, min(parts, each.offset_count)))
    return divided


def _divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    if parts <= 1:
        return [whole]
    bounds = [whole.start_offset + whole.offset_count * number // parts for number in range(parts + 1)]
    return [OffsetRange(low, high, whole.size_bytes // parts) for low, high in pairwise(bounds)]


def _cuts(segments: Sequence[SegmentMarks]) -> tuple[_Int64s, _Int64s, int]:
    """Return offsets where a cut may be, the bytes before each, and all bytes; both ascend whatever an index holds."""
    offsets: list[_Int64s] = [np.empty(0, np.int64)]
    places: list[_Int64s] = [np.empty(0, np.int64)]
    total = 0
    for each in segments:
        inside = np.clip(each.positions, 0, each.size_bytes)
        offsets += [np.array([each.base_offset], np.int64), np.minimum(each.offsets, 2**63 - 2) + 1]
        places += [np.array([total], np.int64), total + inside]
        total += each.size_bytes
    return np.maximum.accumulate(np.concatenate(offsets)), np.maximum.accumulate(np.concatenate(places)), total


def _bytes_before(offsets: _Int64s, places: _Int64s, offset: int) -> int:
    slot = int(np.searchsorted(offsets, offset, side="right")) - 1
    return int(places[slot]) if slot >= 0 else 0


def _bytes_up_to(offsets: _Int64s, places: _Int64s, total: int, offset: int) -> int:
    slot = int(np.searchsorted(offsets, offset))
    return total if not len(offsets) or offset >= offsets[-1] else int(places[slot])
