"""Common form of both index files: fixed-size entries, no header, a tail of zeros while the segment is active.

A broker extends a new index file with zeros to its full size and trims it when the segment is closed; both forms are
read alike.

Source: Kafka AbstractIndex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import OffsetOutOfRangeError
from sparklog.storage_core.log_config import INT32_MAX

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["check_relative_offsets", "drop_zero_tail", "max_entries", "read_entries"]


def max_entries(index_bytes: int, entry_bytes: int) -> int:
    """Return the number of whole entries in a file of `index_bytes`."""
    return index_bytes // entry_bytes


def read_entries(data: Buffer, entry: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return every complete entry of a file, zero tail included, as a view of `data`.

    Args:
        data: a whole index file.
        entry: the entry's big-endian fields.
    """
    view = memoryview(data)
    return np.frombuffer(view, entry, count=view.nbytes // entry.itemsize)


def drop_zero_tail(entries: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the written entries, without the zeros after them.

    A single entry stays even if it is all zeros: a trimmed time index may hold timestamp 0 at its base offset.
    """
    if len(entries) <= 1 or entries[-1].tobytes() != bytes(entries.itemsize):
        return entries
    used = np.flatnonzero(entries.view(np.int32))
    return entries[: int(used[-1]) * 4 // entries.itemsize + 1] if len(used) else entries[:0]


def check_relative_offsets(relative_offsets: npt.NDArray[np.int64]) -> None:
    """Refuse offsets outside of an entry's range.

    Raises:
        OffsetOutOfRangeError: an offset minus its segment's base is not within 0..2147483647.
    """
    if len(relative_offsets) and not 0 <= relative_offsets.min() <= relative_offsets.max() <= INT32_MAX:
        low, high = int(relative_offsets.min()), int(relative_offsets.max())
        raise OffsetOutOfRangeError(f"relative offsets do not fit an index entry: lowest={low} highest={high}")
