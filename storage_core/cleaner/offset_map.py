"""The latest offset of each key of a log's dirty range, in a fixed amount of memory.

A key is stood for by 16 bytes, its SipHash-2-4-128 under a key drawn for the round. So a slot takes 24 bytes, whatever
the keys are, and two keys with one digest are one key: among 2^32 keys the odds of any such pair are 2^-65, and as
nobody knows the round's key, nobody can make one.

Source: Kafka SkimpyOffsetMap, which takes MD5.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["HASH_KEY_BYTES", "SLOT_BYTES", "KeySet", "OffsetMap"]

HASH_KEY_BYTES = 16
SLOT_BYTES = 24

_Int64s = npt.NDArray[np.int64]
_Digests = npt.NDArray[np.uint64]


class OffsetMap:
    """Latest offset by key.

    Attributes:
        hash_key: of the digests.
        capacity: most keys it takes.
        latest_offset: last offset it speaks for; -1 of an empty one. What lies above is unknown to it.

    Args:
        memory_bytes: of the slots; a thirty-second part more while it grows.
        hash_key: `HASH_KEY_BYTES`, drawn for the round.

    Raises:
        InvalidConfigError: not one key fits.
    """

    hash_key: bytes
    capacity: int
    latest_offset: int

    def __init__(self, memory_bytes: int, hash_key: bytes) -> None:
        raise NotImplementedError

    @classmethod
    def from_columns(cls, digests: _Digests, offsets: _Int64s, latest_offset: int, hash_key: bytes) -> OffsetMap:
        """Return a map that somebody else computed, e.g. by a shuffle; the largest offset of a digest counts."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def put(self, digests: _Digests, offsets: _Int64s) -> int:
        """Set the offsets of keys in order; return how many were set, fewer than given once the map is full.

        As in Kafka a full map takes no further offset, not even of a key that it knows.

        Args:
            digests: (n, 2).
            offsets: (n,) rising.
        """
        raise NotImplementedError

    def get(self, digests: _Digests) -> _Int64s:
        """Return (n,) the offset of each key, -1 where it is unknown."""
        raise NotImplementedError

    def columns(self) -> tuple[_Digests, _Int64s]:
        """Return (k, 2) the digests and (k,) the offsets of all keys, in no order."""
        raise NotImplementedError


class KeySet:
    """Keys whose records all go.

    Args:
        keys: binary, without nulls.
        hash_key: that of the map of the same round.
    """

    def __init__(self, keys: pa.Array, hash_key: bytes) -> None:
        raise NotImplementedError
