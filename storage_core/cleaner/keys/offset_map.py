"""The latest offset of each key of a log's dirty range, in a fixed amount of memory.

16 bytes stand for a key: its SipHash-2-4-128 under a random key of the round. So a slot takes 24 bytes for any key, and
two keys with one digest are one key: among 2^32 keys the odds of any such pair are 2^-65, and without the round's key
no attacker can make one.

Source: Kafka SkimpyOffsetMap, which takes MD5.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.cleaner.keys.digest_kernels import digest_ranges
from sparklog.storage_core.cleaner.keys.offset_map_kernels import (
    SLOT_WORDS,
    export_slots,
    find_run,
    get_offsets,
    move_run,
    put_offsets,
)
from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["HASH_KEY_BYTES", "SLOT_BYTES", "KeySet", "OffsetMap", "digest_keys", "hash_key_words"]

HASH_KEY_BYTES: Final = 16
SLOT_BYTES: Final = 24

_LOAD_FACTOR: Final = 0.9
_MAX_SLOTS: Final = 1 << 31
_FIRST_SLOTS: Final = 1 << 12
_GROWS_AT: Final = 2
"""A table that may still grow stays half empty, for speed; the last one is filled up."""
_RUN_SLOTS: Final = 1 << 16

_Int64s = npt.NDArray[np.int64]
_Digests = npt.NDArray[np.uint64]


def hash_key_words(hash_key: bytes) -> tuple[np.uint64, np.uint64]:
    """Return a hash key for the kernels.

    Raises:
        InvalidConfigError: it does not have `HASH_KEY_BYTES`.
    """
    if len(hash_key) != HASH_KEY_BYTES:
        raise InvalidConfigError(f"hash key does not have {HASH_KEY_BYTES} bytes: bytes={len(hash_key)}")
    return np.uint64(int.from_bytes(hash_key[:8], "little")), np.uint64(int.from_bytes(hash_key[8:], "little"))


def digest_keys(keys: pa.Array, hash_key: bytes) -> _Digests:
    """Return (n, 2) the digest of each key; a null has digest 0.

    Args:
        keys: binary or string, large or not.
    """
    digests = np.empty((len(keys), 2), np.uint64)
    if not len(keys):
        return digests
    width = np.int64 if pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type) else np.int32
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    starts, sizes = ends[:-1].copy(), np.diff(ends)
    if keys.null_count:
        starts[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    source = np.frombuffer(data if data is not None else b"", np.uint8)
    digest_ranges(source, starts, sizes, *hash_key_words(hash_key), digests)
    return digests


class OffsetMap:
    """Latest offset by key.

    Attributes:
        capacity: its largest number of keys.
        latest_offset: last covered offset; -1 of an empty map.

    Args:
        memory_bytes: of the slots, allocated as needed; 2 MiB more while it grows.
        hash_key: `HASH_KEY_BYTES`, random for the round.

    Raises:
        InvalidConfigError: no key fits.
    """

    def __init__(self, memory_bytes: int, hash_key: bytes) -> None:
        hash_key_words(hash_key)
        self.hash_key = hash_key
        self.latest_offset = -1
        self._max_slots = min(memory_bytes // SLOT_BYTES, _MAX_SLOTS)
        self.capacity = int(self._max_slots * _LOAD_FACTOR)
        if self.capacity < 1:
            raise InvalidConfigError(f"memory of an offset map holds no key: memory_bytes={memory_bytes}")
        self._size = 0
        self._slots = min(_FIRST_SLOTS, self._max_slots)
        self._table = np.zeros(self._max_slots * SLOT_WORDS, np.uint64)  # the system allocates a page at its first use

    @classmethod
    def from_columns(cls, digests: _Digests, offsets: _Int64s, latest_offset: int, hash_key: bytes) -> OffsetMap:
        """Return a map that was computed elsewhere, e.g. by a shuffle; the largest offset of a digest counts."""
        slots = int(len(offsets) / _LOAD_FACTOR) + 2
        found = cls(slots * SLOT_BYTES, hash_key)
        found.put(np.ascontiguousarray(digests, np.uint64), np.ascontiguousarray(offsets, np.int64))
        found.latest_offset = latest_offset
        return found

    def __len__(self) -> int:
        return self._size

    @property
    def memory_bytes(self) -> int:
        """Present size of its slots."""
        return self._slots * SLOT_BYTES

    def put(self, digests: _Digests, offsets: _Int64s) -> int:
        """Set the offsets of keys in order; return the number set, fewer than given if the map is full.

        As in Kafka a full map takes no further offset, not even of a present key.

        Args:
            digests: (n, 2).
            offsets: (n,); a larger offset of the same key stays.
        """
        placed = 0
        while True:
            limit = self.capacity if self._slots == self._max_slots else self._slots // _GROWS_AT
            placed, self._size = put_offsets(self._table, self._slots, digests, offsets, placed, self._size, limit)
            if placed == len(offsets) or self._size >= self.capacity:
                return placed
            self._grow()

    def get(self, digests: _Digests) -> _Int64s:
        """Return (n,) the offset of each key, -1 for an unknown key."""
        offsets = np.empty(len(digests), np.int64)
        get_offsets(self._table, self._slots, digests, offsets)
        return offsets

    def has_later(self, digests: _Digests, offsets: _Int64s) -> npt.NDArray[np.bool_]:
        """Return (n,) whether each record's key has an offset above the record's."""
        later: npt.NDArray[np.bool_] = self.get(digests) > offsets
        return later

    def columns(self) -> tuple[_Digests, _Int64s]:
        """Return (k, 2) the digests and (k,) the offsets of all keys, in no order."""
        digests, offsets = np.empty((self._size, 2), np.uint64), np.empty(self._size, np.int64)
        export_slots(self._table, self._slots, digests, offsets)
        return digests, offsets

    def _grow(self) -> None:
        slots, end = min(self._slots * _GROWS_AT, self._max_slots), self._slots
        room = np.empty(0, np.uint64)
        while end:
            first = find_run(self._table, max(end - _RUN_SLOTS, 0))
            if room.size < (end - first) * SLOT_WORDS:
                room = np.empty((end - first) * SLOT_WORDS, np.uint64)
            move_run(self._table, first, end, slots, room)
            end = first
        self._slots = slots


class KeySet:
    """Keys to erase.

    Args:
        keys: binary, without nulls.
    """

    def __init__(self, keys: pa.Array, hash_key: bytes) -> None:
        self._set(digest_keys(keys, hash_key), hash_key)

    @classmethod
    def from_digests(cls, digests: _Digests, hash_key: bytes) -> KeySet:
        """Return the set of keys with these digests under a hash key."""
        found = cls.__new__(cls)
        found._set(digests, hash_key)
        return found

    def _set(self, digests: _Digests, hash_key: bytes) -> None:
        self._keys = OffsetMap.from_columns(digests, np.zeros(len(digests), np.int64), 0, hash_key)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def hash_key(self) -> bytes:
        """Of the digests."""
        return self._keys.hash_key

    def contains(self, digests: _Digests) -> npt.NDArray[np.bool_]:
        """Return (n,) whether each key is one of them."""
        found: npt.NDArray[np.bool_] = self._keys.get(digests) >= 0
        return found
