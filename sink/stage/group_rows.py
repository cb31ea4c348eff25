"""Groups rows by log, without a sort."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba.types import int64, void

from sparklog.storage_core.kernels import READONLY_INT64, kernel

__all__ = ["LogGroups", "group_rows"]


@dataclass(frozen=True, slots=True)
class LogGroups:
    """Rows by log.

    Attributes:
        rows: (r,) row numbers by log, in order inside a log.
        starts: (g + 1,) borders of the groups in `rows`.
        logs: (g,) id of each group's log, ascending.
    """

    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    logs: npt.NDArray[np.int64]


def group_rows(log: npt.NDArray[np.int64], logs: int) -> LogGroups:
    """Sort rows by log in one counting pass.

    Args:
        log: (n,) id of each row's log, below `logs`; rows of log -1 are skipped.
    """
    borders = np.zeros(logs + 2, np.int64)
    rows = np.empty(int(np.count_nonzero(log >= 0)), np.int64)
    _sort_rows(log, borders, rows)
    counts = np.diff(borders[: logs + 1])
    present = np.flatnonzero(counts)
    return LogGroups(rows, np.concatenate([[0], np.cumsum(counts[present])]), present)


@kernel(void(READONLY_INT64, int64[::1], int64[::1]))
def _sort_rows(log: npt.NDArray[np.int64], borders: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
    """Counting sort; afterwards `borders[k]` is where log k starts."""
    for each in log:
        if each >= 0:
            borders[each + 2] += 1
    for k in range(2, len(borders)):
        borders[k] += borders[k - 1]
    for row in range(len(log)):
        if log[row] >= 0:
            rows[borders[log[row] + 1]] = row
            borders[log[row] + 1] += 1
