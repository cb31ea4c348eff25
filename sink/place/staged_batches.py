"""The batches that the tasks of a micro-batch have staged, as columns."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["StagedBatches"]


@dataclass(frozen=True, slots=True)
class StagedBatches:
    """Staged batches of all tasks of a micro-batch, sorted by log, in (task, position) order inside a log.

    Attributes:
        files: paths of staging files; names of objects where a store keeps them as they are.
        row: (b,) ledger row of the log.
        file: (b,) index in `files`.
        position, size: (b,) where the batch lies in its file.
        records_count, last_offset_delta, base_offset, max_timestamp: (b,) of its header.
    """

    files: list[Path]
    row: npt.NDArray[np.int64]
    file: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    records_count: npt.NDArray[np.int64]
    last_offset_delta: npt.NDArray[np.int64]
    base_offset: npt.NDArray[np.int64]
    max_timestamp: npt.NDArray[np.int64]
