"""Lines of several kinds in one order: those of batches, each before those of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from storage_core.inspect.line_program import Lines
from storage_core.record.decode_kernels import copy_ranges

__all__ = ["PlacedLines", "interleaved", "merge_lines"]

_Int64s = npt.NDArray[np.int64]

PlacedLines = tuple[Lines, _Int64s]
"""Lines, and the place of each among all."""

_SLICE_ROWS: Final = 1 << 16
"""Records whose lines are in memory at a time: a small compressed batch may hold millions."""


def interleaved(batches: Lines, counts: _Int64s, render: Callable[[slice], Iterable[PlacedLines]]) -> Iterator[Lines]:
    """Yield the lines of batches, each followed by those of its records.

    Args:
        batches: (b,) a line each.
        counts: (b,) how many records each has.
        render: from a slice of records to their lines, with their places in the slice.
    """
    starts = np.cumsum(counts) - counts
    rows = int(counts.sum())
    for first in range(0, max(rows, 1), _SLICE_ROWS):
        after = min(first + _SLICE_ROWS, rows)
        from_batch = int(np.searchsorted(starts, first)) if first else 0
        to_batch = int(np.searchsorted(starts, after)) if after < rows else len(starts)
        mine = starts[from_batch:to_batch]
        before = np.searchsorted(mine, np.arange(first, after), side="right")
        parts = [(batches.some(slice(from_batch, to_batch)), np.arange(len(mine)) + mine - first)]
        parts += [(lines, places + before[places]) for lines, places in render(slice(first, after))]
        yield merge_lines(parts)


def merge_lines(parts: Sequence[PlacedLines]) -> Lines:
    """Return lines of several kinds in one order.

    Args:
        parts: all places together are 0..n-1.
    """
    count = sum(len(lines) for lines, _ in parts)
    starts, sizes, base = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for lines, places in parts:
        own = np.diff(lines.ends, prepend=0)
        starts[places], sizes[places] = base + lines.ends - own, own
        base += len(lines.data)
    borders = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=borders[1:])
    out = np.empty(int(borders[-1]), np.uint8)
    copy_ranges(np.concatenate([lines.data for lines, _ in parts]), starts, borders.astype(np.int32), out)
    return Lines(out, borders[1:])
