"""Turns a plan of appends into what each segment gets: ranges of staging files, and packed index entries."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.storage_core.index.offset_index import pack_offset_entries
from sparklog.storage_core.index.time_index import pack_time_entries
from sparklog.storage_core.log.append.roll import AppendPlan
from sparklog.storage_core.log.append.segment_writer import SegmentAppend, StagedRange

__all__ = ["split_appends"]


@dataclass(slots=True)
class _SegmentParts:
    ranges: list[StagedRange] = field(default_factory=list)
    offset_entries: tuple[bytes, int] = (b"", 0)
    time_entries: tuple[bytes, int] = (b"", 0)


def split_appends(
    staged: StagedBatches,
    log: npt.NDArray[np.int64],
    plan: AppendPlan,
    before: npt.NDArray[np.void],
) -> list[list[SegmentAppend]]:
    """Return the appends of each log in order of its segments; adjacent batches become one range.

    Args:
        log: (b,) place of each batch's log in `before`.
        plan: of the same batches.
        before: (n,) `APPEND_STATE` of the touched logs.
    """
    parts: list[dict[int, _SegmentParts]] = [{} for _ in before]
    end = staged.position + staged.size
    starts_run = np.ones(len(log), np.bool_)
    starts_run[1:] = (
        (np.diff(log) != 0)
        | (np.diff(plan.segment_base) != 0)
        | (np.diff(staged.file) != 0)
        | (staged.position[1:] != end[:-1])
    )
    first = np.flatnonzero(starts_run)
    last = np.append(first[1:], len(log)) - 1
    columns = (
        log[first],
        plan.segment_base[first],
        staged.file[first],
        staged.position[first],
        plan.position[first],
        end[last] - staged.position[first],
    )
    for each, segment, file, position, target, size in zip(*(column.tolist() for column in columns), strict=True):
        parts[each].setdefault(segment, _SegmentParts()).ranges.append(
            StagedRange(staged.files[file], position, target, size)
        )
    for each, segment, entries in _by_segment(plan.offset_entries):
        known = int(before[each]["offset_entries"]) if segment == before[each]["segment_base"] else 0
        packed = pack_offset_entries(entries[:, 0], entries[:, 1])
        parts[each].setdefault(segment, _SegmentParts()).offset_entries = (packed, known * 8)
    for each, segment, entries in _by_segment(plan.time_entries):
        known = int(before[each]["time_entries"]) if segment == before[each]["segment_base"] else 0
        packed = pack_time_entries(entries[:, 0], entries[:, 1])
        parts[each].setdefault(segment, _SegmentParts()).time_entries = (packed, known * 12)
    return [
        [
            SegmentAppend(segment, segment != active, tuple(part.ranges), part.offset_entries, part.time_entries)
            for segment, part in sorted(of_log.items())
        ]
        for active, of_log in zip(before["segment_base"].tolist(), parts, strict=True)
    ]


def _by_segment(entries: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
    """Yield (log, segment base, entries) for entries that lie sorted by both."""
    if not len(entries):
        return
    borders = np.flatnonzero((np.diff(entries[:, 0]) != 0) | (np.diff(entries[:, 1]) != 0)) + 1
    for part in np.split(entries, borders):
        yield int(part[0, 0]), int(part[0, 1]), part[:, 2:]
