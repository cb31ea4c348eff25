"""The compiled half of the offset map: a table with open addressing.

A slot is three words: the digest, and the offset plus 1, so that a slot of zeros is empty. The first 32 bits of a
digest, as a share of the table, name its slot; if it is taken, the next free one. So tables of all sizes have the same
order, and a table grows in place: from its end on, one run of slots at a time moves to its slots in the larger table,
which are never before the run.

Slots a few digests ahead are fetched meanwhile: a table is mostly larger than a processor's cache.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.cleaner.keys.digest_kernels import prefetch
from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.kernel_memory import INT64S, address_of, inlined

__all__ = ["SLOT_WORDS", "export_slots", "find_run", "get_offsets", "move_run", "put_offsets"]

SLOT_WORDS: Final = 3

_SLOT_BYTES: Final = 24
_AHEAD: Final = 16
_U32: Final = np.uint64(32)

_TABLE: Final = "uint64[::1]"
_DIGESTS: Final = "Array(uint64, 2, 'C', True)"

_Table = npt.NDArray[np.uint64]
_Digests = npt.NDArray[np.uint64]
_Int64s = npt.NDArray[np.int64]


@inlined
def _home(digest: Any, slots: int) -> int:
    """Return the slot that a digest belongs to."""
    return np.int64(((digest >> _U32) * np.uint64(slots)) >> _U32)  # type: ignore[return-value]


@inlined
def _find(table: _Table, slots: int, first: Any, second: Any) -> int:
    """Return the place of a digest's slot in the table, or of the free slot for it."""
    slot = _home(first, slots)
    while True:
        at: int = slot * SLOT_WORDS
        if table[at + 2] == 0 or (table[at] == first and table[at + 1] == second):
            return at
        slot += 1
        if slot == slots:
            slot = 0


@kernel(f"UniTuple(int64, 2)({_TABLE}, int64, {_DIGESTS}, {INT64S}, int64, int64, int64)")
def put_offsets(
    table: _Table, slots: int, digests: _Digests, offsets: _Int64s, first: int, size: int, limit: int
) -> tuple[int, int]:
    """Set offsets of keys from one on, while the table has fewer than `limit` keys.

    A key that has a larger offset keeps it.

    Args:
        table: an array that begins with the slots; `limit` is below their number.
        slots: their number.
        digests: (n, 2) and `offsets` (n,).
        first: number of the first one to set.
        size: keys in the table.

    Returns:
        the number of the first one not set, and the keys in the table.
    """
    start = address_of(table)
    for place in range(first, offsets.size):
        if size >= limit:
            return place, size
        if place + _AHEAD < offsets.size:
            prefetch(start + _home(digests[place + _AHEAD, 0], slots) * _SLOT_BYTES)
        at = _find(table, slots, digests[place, 0], digests[place, 1])
        stored = np.uint64(offsets[place] + 1)
        if table[at + 2] == 0:
            table[at], table[at + 1] = digests[place, 0], digests[place, 1]
            size += 1
        table[at + 2] = max(table[at + 2], stored)
    return offsets.size, size


@kernel(f"void({_TABLE}, int64, {_DIGESTS}, int64[::1])")
def get_offsets(table: _Table, slots: int, digests: _Digests, offsets: _Int64s) -> None:
    """Fill in the offset of each key, -1 for an unknown key.

    Args:
        table: with a free slot among its first `slots`.
        digests: (n, 2).
        offsets: out, (n,).
    """
    start = address_of(table)
    for place in range(offsets.size):
        if place + _AHEAD < offsets.size:
            prefetch(start + _home(digests[place + _AHEAD, 0], slots) * _SLOT_BYTES)
        at = _find(table, slots, digests[place, 0], digests[place, 1])
        offsets[place] = np.int64(table[at + 2]) - 1


@kernel(f"void({_TABLE}, int64, uint64[:, ::1], int64[::1])")
def export_slots(table: _Table, slots: int, digests: _Digests, offsets: _Int64s) -> None:
    """Fill in the keys of a table.

    Args:
        digests: out, (n, 2) and `offsets` (n,) for the n keys.
    """
    found = 0
    for slot in range(slots):
        at = slot * SLOT_WORDS
        if table[at + 2] != 0:
            digests[found, 0], digests[found, 1] = table[at], table[at + 1]
            offsets[found] = np.int64(table[at + 2]) - 1
            found += 1


@kernel(f"int64({_TABLE}, int64)")
def find_run(table: _Table, slot: int) -> int:
    """Return the last slot up to `slot` that follows a free one, or 0."""
    while slot > 0 and table[(slot - 1) * SLOT_WORDS + 2] != 0:
        slot -= 1
    return slot


@kernel(f"void({_TABLE}, int64, int64, int64, uint64[::1])")
def move_run(table: _Table, first: int, end: int, slots: int, room: _Table) -> None:
    """Move the keys in slots from `first` to `end` to their slots in a table of `slots`.

    They are taken out before they are put back. The slots before `first` are moved later; as a free one comes before
    `first`, no key of the run belongs there. Only keys at the table's start may belong to its old end; they move last.

    Args:
        first: of `find_run`; slots after `end` have been moved.
        room: for the words of the run.
    """
    words = (end - first) * SLOT_WORDS
    room[:words] = table[first * SLOT_WORDS : end * SLOT_WORDS]
    table[first * SLOT_WORDS : end * SLOT_WORDS] = 0
    for taken in range(0, words, SLOT_WORDS):
        if room[taken + 2] != 0:
            at = _find(table, slots, room[taken], room[taken + 1])
            table[at], table[at + 1], table[at + 2] = room[taken], room[taken + 1], room[taken + 2]
