"""The offset index of a segment: from an offset to a position in `.log` at or before its batch.

| pos | type | value                                                                      |
|-----|------|----------------------------------------------------------------------------|
| 0   | i32  | last offset of the append, minus the segment's base offset                 |
| 4   | i32  | position where that append starts                                          |

Source: Kafka OffsetIndex.
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

__all__ = ["OFFSET_ENTRY", "OFFSET_ENTRY_BYTES", "OffsetIndex", "find_offset_entry", "pack_offset_entries"]


OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
OFFSET_ENTRY_BYTES: Final = OFFSET_ENTRY.itemsize


class OffsetIndex:
    """The entries of one `.index` file; copied, so the file may change afterwards.

    Attributes:
        offsets: (n,) absolute offsets, int64.
        positions: (n,) positions in the `.log` file, int64.
        size_bytes: size of the file, zero tail included.
    """

    __slots__ = ("_last_offset", "base_offset", "offsets", "positions", "size_bytes")

    def __init__(self, data: Buffer, base_offset: int) -> None:
        in_file = read_entries(data, OFFSET_ENTRY)
        entries = drop_zero_tail(in_file)
        self.base_offset = base_offset
        self.size_bytes = memoryview(data).nbytes
        self.offsets: npt.NDArray[np.int64] = entries["offset"].astype(np.int64) + base_offset
        self.positions: npt.NDArray[np.int64] = entries["position"].astype(np.int64)
        self._last_offset = base_offset + int(in_file["offset"][-1]) if len(in_file) else base_offset

    def __len__(self) -> int:
        return len(self.offsets)

    def lookup(self, target_offset: int) -> tuple[int, int]:
        """Return (offset, position) of the last entry with an offset not above the target.

        A scan from that position finds the batch of `target_offset`. Without such an entry: (base offset, 0).
        """
        slot = int(np.searchsorted(self.offsets, target_offset, side="right")) - 1
        return (int(self.offsets[slot]), int(self.positions[slot])) if slot >= 0 else (self.base_offset, 0)

    def sanity_check(self) -> None:
        """Apply Kafka's own check, zero tail included; it finds only damage that prevents look-ups.

        Raises:
            CorruptFileError: the size is no multiple of 8, or the last entry lies below the base offset.
        """
        if self.size_bytes % OFFSET_ENTRY_BYTES:
            raise CorruptFileError(f"offset index has {self.size_bytes} bytes, not a multiple of {OFFSET_ENTRY_BYTES}")
        if self._last_offset < self.base_offset:
            raise CorruptFileError(
                f"offset index ends below its segment: last_offset={self._last_offset} base_offset={self.base_offset}"
            )


def find_offset_entry(read: ReadAt, size_bytes: int, base_offset: int, target_offset: int) -> tuple[int, int]:
    """As `OffsetIndex.lookup`, without loading the file."""
    found = last_entry_not_above(read, size_bytes, OFFSET_ENTRY, target_offset - base_offset)
    return (base_offset + found[0], found[1]) if found else (base_offset, 0)


def pack_offset_entries(relative_offsets: npt.ArrayLike, positions: npt.ArrayLike) -> bytes:
    """Return the bytes of entries to append to an `.index` file.

    Args:
        relative_offsets: (n,) last offset of each append minus the base offset, 0..2147483647.
        positions: (n,) start of each append in the `.log` file.

    Raises:
        OffsetOutOfRangeError: a relative offset does not fit; the segment should have been rolled.
    """
    relative = np.asarray(relative_offsets, dtype=np.int64)
    check_relative_offsets(relative)
    entries = np.empty(len(relative), OFFSET_ENTRY)
    entries["offset"], entries["position"] = relative, positions
    return entries.tobytes()
