"""Binary search in an index file without loading it: a few small reads, for any size.

The index of a live broker's active segment has its full size, 10 MiB by default, nearly all of it zeros. A look-up
halves the file until a block is left. A zero entry after the first one is the tail: keys increase strictly, so only the
first entry's can be 0.

Source: Kafka AbstractIndex.indexSlotRangeFor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["ReadAt", "last_entry_not_above"]

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""Returns bytes of a file, given position and size; fewer at its end."""

_BLOCK_BYTES: Final = 4096


def last_entry_not_above(
    read: ReadAt, size_bytes: int, entry: np.dtype[np.void], target: int
) -> tuple[int, int] | None:
    """Return the last entry whose first field is not above `target`, or None if there is none.

    If entries do not increase, the result is any entry or None; reads stay within the file.

    Args:
        size_bytes: of the file; a partial entry at its end is skipped.
        entry: the two fields of an entry; the first one increases strictly.
        target: to compare with the first field.
    """
    width = entry.itemsize
    low, high = 0, size_bytes // width
    while high - low > _BLOCK_BYTES // width:
        middle = (low + high) // 2
        found = np.frombuffer(read(middle * width, width), entry)
        if len(found) and any(found[0].item()) and int(found[0][0]) <= target:
            low = middle + 1
        else:
            high = middle
    first = max(low - 1, 0)  # the one before `low` is not above the target, and may be the last such
    data = read(first * width, (high - first) * width)
    entries = _used(np.frombuffer(data, entry, count=len(data) // width), first)
    keys: npt.NDArray[np.int64] = entries[(entry.names or ("",))[0]].astype(np.int64)
    slot = int(np.searchsorted(keys, target, side="right")) - 1
    return (int(entries[slot][0]), int(entries[slot][1])) if slot >= 0 else None


def _used(entries: npt.NDArray[np.void], first: int) -> npt.NDArray[np.void]:
    """Return the entries before the zero tail; a zero entry at the very start counts unless another zero follows."""
    if not len(entries) or any(entries[-1].item()):
        return entries
    zero: npt.NDArray[np.bool_] = (entries.view(np.uint8).reshape(len(entries), -1) == 0).all(axis=1)
    if first == 0 and zero[0]:
        zero[0] = len(zero) > 1 and bool(zero[1])
    return entries[: int(np.argmax(zero))] if zero.any() else entries
