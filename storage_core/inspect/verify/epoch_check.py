"""Compares the leader epochs in batches with the log's epoch file; they lie outside the CRC.

Source: Kafka LeaderEpochFileCache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["EpochCheck", "WrongEpochs"]

_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class WrongEpochs:
    """Batches that follow each other and have a wrong epoch.

    Attributes:
        first, last: their numbers.
        due: the epoch they should have, -1 if that is not known.
    """

    first: int
    last: int
    what: str
    due: int


class EpochCheck:
    """Finds batches with another epoch than the one that wrote at their offset.

    Args:
        entries: (epoch, start offset) of the epoch file, or None without one. Without it epochs may only not go back:
            where they do, the one of the two batches that also disagrees with its other neighbour is wrong.
        is_required: whether every batch from the first entry on must have an epoch; a log put together elsewhere may
            have none (-1).

    Attributes:
        first_unnamed: lowest offset of a batch that has an epoch and lies below the first entry; None without one.
            Batches of v0 and v1 have none, and what wrote them no entry.
    """

    def __init__(self, entries: Sequence[tuple[int, int]] | None, is_required: bool) -> None:
        self._epochs = np.array([epoch for epoch, _ in entries or ()], np.int64)
        self._starts = np.array([start for _, start in entries or ()], np.int64)
        self._is_required = is_required
        self._before: list[int] = []
        self.first_unnamed: int | None = None

    def wrong(self, base_offset: npt.NDArray[np.int64], epoch: npt.NDArray[np.int32]) -> list[WrongEpochs]:
        """Return each run of batches with a wrong epoch; numbers count from 0 in this call.

        -1 as a first number means the last batch of the call before.
        """
        if not len(epoch):
            return []
        self._note_unnamed(base_offset, epoch)
        bad = self._contradicting(base_offset, epoch) if len(self._epochs) else self._going_back(epoch)
        if not len(bad):
            return []
        due = self._due(base_offset, bad)
        borders = np.flatnonzero((np.diff(bad) != 1) | (np.diff(due) != 0)) + 1
        return [
            WrongEpochs(int(run[0]), int(run[-1]), self._what(epoch, int(run[-1]), int(dues[0])), int(dues[0]))
            for run, dues in zip(np.split(bad, borders), np.split(due, borders), strict=True)
        ]

    def _note_unnamed(self, base_offset: npt.NDArray[np.int64], epoch: npt.NDArray[np.int32]) -> None:
        first = self._starts[0] if len(self._starts) else np.iinfo(np.int64).max
        unnamed = base_offset[(epoch >= 0) & (base_offset < first)]
        if self.first_unnamed is None and len(unnamed):
            self.first_unnamed = int(unnamed[0])

    def _due(self, base_offset: npt.NDArray[np.int64], bad: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the epoch that the file names for each batch, -1 where it names none."""
        if not len(self._epochs):
            return np.full(len(bad), _NO_EPOCH, np.int64)
        entry = np.searchsorted(self._starts, base_offset[bad], side="right") - 1
        return np.where(entry >= 0, self._epochs[np.maximum(entry, 0)], _NO_EPOCH).astype(np.int64)

    def _contradicting(self, base_offset: npt.NDArray[np.int64], epoch: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        entry = np.searchsorted(self._starts, base_offset, side="right") - 1
        due = self._epochs[np.maximum(entry, 0)]
        is_wrong = np.where(entry >= 0, epoch != due, (epoch > due) | (epoch < _NO_EPOCH))
        if not self._is_required:
            is_wrong &= epoch != _NO_EPOCH
        return np.flatnonzero(is_wrong).astype(np.int64)

    def _going_back(self, epoch: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        known = len(self._before)
        column = np.concatenate([np.array(self._before, np.int64), epoch])
        self._before = column[-2:].tolist()
        later = np.flatnonzero(column[1:] < column[:-1]) + 1
        later = later[later >= known]
        two_before = np.where(later >= 2, column[later - 2], _NO_EPOCH)
        culprit = np.where(column[later] >= two_before, later - 1, later)
        negative = np.flatnonzero(epoch < _NO_EPOCH)
        return np.unique(np.concatenate([culprit - known, negative])).astype(np.int64)

    def _what(self, epoch: npt.NDArray[np.int32], number: int, due: int) -> str:
        if not len(self._epochs) or number < 0:
            return "leader epoch disagrees with the batches around it"
        if due == _NO_EPOCH:
            return f"leader epoch {epoch[number]} stands before the first one of leader-epoch-checkpoint"
        return f"leader epoch {epoch[number]} disagrees with leader-epoch-checkpoint, which says {due}"
