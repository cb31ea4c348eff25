"""The time index of a segment: from a timestamp to an offset below which all records are earlier.

| pos | type | value                                                                      |
|-----|------|----------------------------------------------------------------------------|
| 0   | i64  | largest timestamp so far in the segment                                    |
| 8   | i32  | last offset of the batch that has it, minus the segment's base offset      |

Every record with a larger timestamp has a larger offset. Timestamps increase strictly, offsets never go back.

Source: Kafka TimeIndex; KIP-33.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.index.index_entries import check_relative_offsets, drop_zero_tail, read_entries
from sparklog.storage_core.index.index_search import ReadAt, last_entry_not_above

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["TIME_ENTRY", "TIME_ENTRY_BYTES", "TimeIndex", "find_time_entry", "pack_time_entries"]


TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
TIME_ENTRY_BYTES: Final = TIME_ENTRY.itemsize


class TimeIndex:
    """The entries of one `.timeindex` file; copied, so the file may change afterwards.

    Attributes:
        timestamps: (n,) ms since the epoch, int64.
        offsets: (n,) absolute offsets, int64.
        size_bytes: size of the file, zero tail included.
    """

    __slots__ = ("_ends", "base_offset", "offsets", "size_bytes", "timestamps")

    def __init__(self, data: Buffer, base_offset: int) -> None:
        in_file = read_entries(data, TIME_ENTRY)
        entries = drop_zero_tail(in_file)
        self.base_offset = base_offset
        self.size_bytes = memoryview(data).nbytes
        self.timestamps: npt.NDArray[np.int64] = entries["timestamp"].astype(np.int64)
        self.offsets: npt.NDArray[np.int64] = entries["offset"].astype(np.int64) + base_offset
        self._ends = in_file[[0, -1]] if len(in_file) else in_file[:0].copy()

    def __len__(self) -> int:
        return len(self.offsets)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry with a timestamp not above the target.

        The first record at or after a larger timestamp has a larger offset. Without such an entry: (-1, base offset).
        """
        slot = int(np.searchsorted(self.timestamps, timestamp, side="right")) - 1
        return (int(self.timestamps[slot]), int(self.offsets[slot])) if slot >= 0 else (-1, self.base_offset)

    def sanity_check(self) -> None:
        """Apply Kafka's own check, zero tail included: a padded file fails it, as it does in Kafka.

        Raises:
            CorruptFileError: the size is no multiple of 12, or the last entry lies below the first or the base offset.
        """
        if self.size_bytes % TIME_ENTRY_BYTES:
            raise CorruptFileError(f"time index has {self.size_bytes} bytes, not a multiple of {TIME_ENTRY_BYTES}")
        if not len(self._ends):
            return
        (first, _), (last, relative_offset) = self._ends.tolist()
        if last < first:
            raise CorruptFileError(f"time index goes back: first_timestamp={first} last_timestamp={last}")
        if relative_offset < 0:
            raise CorruptFileError(
                f"time index ends below its segment: last_offset={self.base_offset + relative_offset} "
                f"base_offset={self.base_offset}"
            )


def find_time_entry(read: ReadAt, size_bytes: int, base_offset: int, timestamp: int) -> tuple[int, int]:
    """As `TimeIndex.lookup`, without loading the file."""
    found = last_entry_not_above(read, size_bytes, TIME_ENTRY, timestamp)
    return (found[0], base_offset + found[1]) if found else (-1, base_offset)


def pack_time_entries(timestamps: npt.ArrayLike, relative_offsets: npt.ArrayLike) -> bytes:
    """Return the bytes of entries to append to a `.timeindex` file.

    Args:
        timestamps: (n,) largest timestamp so far, ms.
        relative_offsets: (n,) last offset of the batch that has it minus the base offset, 0..2147483647.

    Raises:
        OffsetOutOfRangeError: a relative offset does not fit; the segment should have been rolled.
    """
    relative = np.asarray(relative_offsets, dtype=np.int64)
    check_relative_offsets(relative)
    entries = np.empty(len(relative), TIME_ENTRY)
    entries["timestamp"], entries["offset"] = timestamps, relative
    return entries.tobytes()
