"""Superseded records, those with a later one of their key: from an offset map, or computed elsewhere.

A cleaning reads the records of a group once, in offset order. So their superseded offsets can be streamed in the same
order, in a fixed amount of memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["LaterRecords", "SupersededOffsets"]

_Int64s = npt.NDArray[np.int64]


class LaterRecords(Protocol):
    """Later records of keys.

    Attributes:
        latest_offset: last covered offset.
    """

    hash_key: bytes
    latest_offset: int

    def has_later(self, digests: npt.NDArray[np.uint64], offsets: _Int64s, /) -> npt.NDArray[np.bool_]:
        """Return (n,) whether each record has a later one of its key.

        Args:
            digests: (n, 2) of their keys.
            offsets: (n,) rising, and above those of the previous call.
        """
        ...


class SupersededOffsets:
    """The superseded records of one group; holds one piece of them at a time.

    Args:
        pieces: their offsets, rising over all pieces; read as needed.
        latest_offset: last covered offset.
    """

    def __init__(self, pieces: Iterable[_Int64s], latest_offset: int, hash_key: bytes) -> None:
        self.latest_offset = latest_offset
        self.hash_key = hash_key
        self._pieces = iter(pieces)
        self._held = np.empty(0, np.int64)

    def has_later(self, _digests: npt.NDArray[np.uint64], offsets: _Int64s) -> npt.NDArray[np.bool_]:
        """Return (n,) whether each record is superseded; ignores the digests."""
        if not len(offsets):
            return np.zeros(0, np.bool_)
        held = self._hold_up_to(int(offsets[-1]))
        if not len(held):
            return np.zeros(len(offsets), np.bool_)
        places = np.minimum(np.searchsorted(held, offsets), len(held) - 1)
        self._held = held[np.searchsorted(held, offsets[-1], side="right") :].copy()
        found: npt.NDArray[np.bool_] = held[places] == offsets
        return found

    def _hold_up_to(self, offset: int) -> _Int64s:
        """Return the superseded offsets up to an offset, and perhaps some more."""
        held = [self._held]
        while not len(held[-1]) or held[-1][-1] < offset:
            piece = next(self._pieces, None)
            if piece is None:
                break
            held.append(piece)
        return np.concatenate(held) if len(held) > 1 else self._held
