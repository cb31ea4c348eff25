"""Lines of several kinds in one order: those of batches, each before those of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.inspect.dump.line_kernels import place_lines
from sparklog.storage_core.inspect.dump.line_program import Lines

__all__ = ["PlacedLines", "interleaved", "merge_lines"]

_Int64s = npt.NDArray[np.int64]

PlacedLines = tuple[Lines, _Int64s]
"""Lines, and the place of each among all."""

_SLICE_ROWS: Final = 1 << 16
"""Records whose lines are in memory at a time: a small compressed batch may hold millions."""


def interleaved(
    batches: Lines | None, counts: _Int64s, render: Callable[[slice], Iterable[PlacedLines]]
) -> Iterator[Lines]:
    """Yield the lines of batches, each followed by those of its records.

    Args:
        batches: (b,) a line each; None where these are further records of one batch, whose line came before.
        counts: (b,) how many records each has.
        render: from a slice of records to their lines, with their places in the slice.
    """
    starts = np.cumsum(counts) - counts if batches is not None else np.empty(0, np.int64)
    rows = int(counts.sum())
    for first in range(0, max(rows, 1), _SLICE_ROWS):
        after = min(first + _SLICE_ROWS, rows)
        from_batch = int(np.searchsorted(starts, first)) if first else 0
        to_batch = int(np.searchsorted(starts, after)) if after < rows else len(starts)
        mine = starts[from_batch:to_batch]
        before = np.searchsorted(mine, np.arange(first, after), side="right")
        parts = []
        if batches is not None:
            parts.append((batches.some(slice(from_batch, to_batch)), np.arange(len(mine)) + mine - first))
        parts += [(lines, places + before[places]) for lines, places in render(slice(first, after))]
        yield merge_lines(parts)


def merge_lines(parts: Sequence[PlacedLines]) -> Lines:
    """Return lines of several kinds in one order.

    Args:
        parts: all places together are 0..n-1.
    """
    sizes = np.zeros(sum(len(lines) for lines, _ in parts), np.int64)
    for lines, places in parts:
        sizes[places] = np.diff(lines.ends, prepend=0)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for lines, places in parts:
        place_lines(lines.data, lines.ends, starts[places], out)
    return Lines(out, ends)
