"""A round over a log in parts, without Spark: its shuffle is a sort of columns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparklog.pipeline.maintenance.stop_file import StopFile
from sparklog.storage_core.cleaner.cleaning_part import (
    CleaningPart,
    cut_into_parts,
    part_keys,
    result_of_parts,
    swap_in_parts,
    write_part,
)
from sparklog.storage_core.cleaner.cleaning_round import CleanedLog, CleaningRound, LogToClean, prepare_round
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner

__all__ = ["StopAtOnce", "StopBehindOneGroup", "clean_parts", "superseded_offsets"]

_PIECE = 3
"""Offsets that a part is told in one go."""


@dataclass(frozen=True)
class StopAtOnce:
    """A check of the owner that asks the run to stop; travels to tasks."""

    stop: StopFile

    def __call__(self) -> None:
        """Ask."""
        self.stop.ask()


@dataclass(frozen=True)
class StopBehindOneGroup:
    """A check of the owner that asks the run to stop once a segment of a log was written anew; travels to tasks."""

    directory: Path
    stop: StopFile

    def __call__(self) -> None:
        """Look whether there is one."""
        if any(self.directory.glob("*.timeindex.cleaned")):
            self.stop.ask()


def superseded_offsets(shared: CleaningRound, parts: Sequence[CleaningPart]) -> list[npt.NDArray[np.int64]]:
    """Return of each part the offsets of the records that have a later dirty one of their key, rising."""
    found = [[np.empty((0, 4), np.int64)] for _ in parts]
    for part, rows in zip(parts, found, strict=True):
        for digests, offsets, dirty in part_keys(shared, part, UNSHARED.check):
            rows.append(np.column_stack([digests.view(np.int64), offsets, dirty]))
    columns = [np.concatenate(rows) for rows in found]
    keys = np.concatenate(columns)[:, :2]
    _, key = np.unique(keys, axis=0, return_inverse=True)
    latest = np.full(len(keys), -1)
    np.maximum.at(latest, key.ravel(), np.concatenate(columns)[:, 3])
    is_superseded = latest[key.ravel()] > np.concatenate(columns)[:, 2]
    borders = np.cumsum([len(rows) for rows in columns])[:-1]
    return [rows[mask, 2] for rows, mask in zip(columns, np.split(is_superseded, borders), strict=True)]


def clean_parts(
    log: LogToClean, in_order: Callable[[int], Iterable[int]] = range, owner: Owner = UNSHARED
) -> CleanedLog:
    """Clean the parts of a log that are chosen, in the order in which they are; the others are never done.

    Args:
        log: to clean.
        in_order: given their number, the parts to clean.
        owner: as of a cleaning.
    """
    shared, some = cut_into_parts(prepare_round(log, owner))
    parts = list(some)
    told = superseded_offsets(shared, parts) if parts else []
    done = []
    for number in in_order(len(parts)):
        offsets = told[number]
        pieces = [offsets[start : start + _PIECE] for start in range(0, len(offsets), _PIECE)]
        done.append(write_part(shared, parts[number], pieces, owner))
    swap_in_parts(shared, done, owner)
    return result_of_parts(shared, len(parts), done)
