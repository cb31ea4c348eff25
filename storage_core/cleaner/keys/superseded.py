"""Which records have a later one of their key, for those who clean: from a map, or from somebody who has computed it.

Whoever cleans a group passes its records once, in the order of their offsets. So whoever knows which of them are
superseded can tell it in the same order, a few offsets at a time: nothing has to be held, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["LaterRecords", "SupersededOffsets"]

_Int64s = npt.NDArray[np.int64]


class LaterRecords(Protocol):
    """What is known of later records.

    Attributes:
        hash_key: of the digests.
        latest_offset: last offset that it speaks for.
    """

    hash_key: bytes
    latest_offset: int

    def has_later(self, digests: npt.NDArray[np.uint64], offsets: _Int64s, /) -> npt.NDArray[np.bool_]:
        """Return (n,) whether a later record of its key is known, for each record.

        Args:
            digests: (n, 2) of their keys.
            offsets: (n,) rising, and above those of the call before.
        """
        ...


class SupersededOffsets:
    """The superseded records of one group; holds those of a piece, and of the records asked about.

    Args:
        pieces: their offsets, rising over all pieces; taken as they are needed.
        latest_offset: last offset that they speak for.
        hash_key: of the round.
    """

    def __init__(self, pieces: Iterable[_Int64s], latest_offset: int, hash_key: bytes) -> None:
        self.latest_offset = latest_offset
        self.hash_key = hash_key
        self._pieces = iter(pieces)
        self._held = np.empty(0, np.int64)

    def has_later(self, _digests: npt.NDArray[np.uint64], offsets: _Int64s) -> npt.NDArray[np.bool_]:
        """Return (n,) whether each record is superseded; what their keys are does not matter."""
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
        """Return what is known up to an offset, and perhaps some more."""
        held = [self._held]
        while not len(held[-1]) or held[-1][-1] < offset:
            piece = next(self._pieces, None)
            if piece is None:
                break
            held.append(piece)
        return np.concatenate(held) if len(held) > 1 else self._held
