"""Builds a segment's offset and time index from the headers of its batches.

Kafka has two ways to the same entries. An append adds one if more than `index.interval.bytes` were written since the
last one; a recovery scans the batches and adds one if more than that lie between the last entry's position and the next
batch. If each append is one batch, as a leader's are, both give the same bytes, and so does this builder. A follower,
and older brokers for uncompressed v0 and v1, append several batches at once and have fewer entries; a recovery of those
segments makes them denser, as this builder does.

Source: Kafka LogSegment.append, LogSegment.recover, OffsetIndex.append, TimeIndex.maybeAppend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from numba.types import int64, void

from sparklog.storage_core.index.offset_index import pack_offset_entries
from sparklog.storage_core.index.time_index import pack_time_entries
from sparklog.storage_core.kernels import READONLY_INT64, kernel

__all__ = ["BuiltIndexes", "IndexBuilder"]

_DEFAULT_INTERVAL_BYTES: Final = 4096

_LAST_POSITION, _MAX_TIMESTAMP, _MAX_OFFSET, _LAST_TIMESTAMP = range(4)


@dataclass(frozen=True, slots=True)
class BuiltIndexes:
    """The whole content of a segment's `.index` and `.timeindex`, trimmed."""

    offset_index: bytes
    time_index: bytes


class IndexBuilder:
    """Builds a segment's indexes from its batches, added in order, some at a time."""

    def __init__(self, base_offset: int, index_interval_bytes: int = _DEFAULT_INTERVAL_BYTES) -> None:
        self._base_offset = base_offset
        self._interval_bytes = index_interval_bytes
        self._state = np.array([0, -1, base_offset, -1], np.int64)
        self._offset_entries: list[npt.NDArray[np.int64]] = []
        self._time_entries: list[npt.NDArray[np.int64]] = []

    def add(
        self,
        position: npt.NDArray[np.int64],
        last_offset: npt.NDArray[np.int64],
        max_timestamp: npt.NDArray[np.int64],
    ) -> None:
        """Add batches, (b,) each.

        Args:
            position: where each batch starts in the `.log`.
            last_offset: of each batch.
            max_timestamp: of each header, -1 none.
        """
        offsets, times = np.empty((len(position), 2), np.int64), np.empty((len(position), 2), np.int64)
        counts = np.zeros(2, np.int64)
        _add_entries(
            np.ascontiguousarray(position, np.int64),
            np.ascontiguousarray(last_offset, np.int64),
            np.ascontiguousarray(max_timestamp, np.int64),
            self._interval_bytes,
            self._state,
            offsets,
            times,
            counts,
        )
        self._offset_entries.append(offsets[: counts[0]].copy())
        self._time_entries.append(times[: counts[1]].copy())

    def finish(self) -> BuiltIndexes:
        """Return both files of a closed segment, the final time entry included."""
        final = self._state[[_MAX_TIMESTAMP, _MAX_OFFSET]].reshape(1, 2)
        if self._state[_MAX_TIMESTAMP] <= self._state[_LAST_TIMESTAMP]:
            final = final[:0]
        empty = np.empty((0, 2), np.int64)
        offsets = np.concatenate([empty, *self._offset_entries])
        times = np.concatenate([empty, *self._time_entries, final])
        return BuiltIndexes(
            pack_offset_entries(offsets[:, 0] - self._base_offset, offsets[:, 1]),
            pack_time_entries(times[:, 0], times[:, 1] - self._base_offset),
        )


@kernel(
    void(READONLY_INT64, READONLY_INT64, READONLY_INT64, int64, int64[::1], int64[:, ::1], int64[:, ::1], int64[::1])
)
def _add_entries(
    position: npt.NDArray[np.int64],
    last_offset: npt.NDArray[np.int64],
    max_timestamp: npt.NDArray[np.int64],
    interval_bytes: int,
    state: npt.NDArray[np.int64],
    offset_entries: npt.NDArray[np.int64],
    time_entries: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
) -> None:
    """Fill entries as (offset, position) and (timestamp, offset), and `counts` of each.

    A larger timestamp alone makes a time entry, and the first batch that has it gives the offset.
    """
    for i in range(position.size):
        if max_timestamp[i] > state[_MAX_TIMESTAMP]:
            state[_MAX_TIMESTAMP] = max_timestamp[i]
            state[_MAX_OFFSET] = last_offset[i]
        if position[i] - state[_LAST_POSITION] > interval_bytes:
            offset_entries[counts[0], 0] = last_offset[i]
            offset_entries[counts[0], 1] = position[i]
            counts[0] += 1
            state[_LAST_POSITION] = position[i]
            if state[_MAX_TIMESTAMP] > state[_LAST_TIMESTAMP]:
                time_entries[counts[1], 0] = state[_MAX_TIMESTAMP]
                time_entries[counts[1], 1] = state[_MAX_OFFSET]
                counts[1] += 1
                state[_LAST_TIMESTAMP] = state[_MAX_TIMESTAMP]
