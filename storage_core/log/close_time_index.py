"""The last time entry of a segment that takes no more batches, durably.

Source: Kafka LogSegment.onBecomeInactiveSegment.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage_core.index.time_index import pack_time_entries
from storage_core.log.log_files import TIMEINDEX, segment_file_name
from storage_core.storage.local import storage_errors, write_all

__all__ = ["close_time_index"]


def close_time_index(directory: Path, state: npt.NDArray[np.void] | np.void, check_owner: Callable[[], None]) -> None:
    """Write the largest timestamp of a segment as its last time entry, unless it is that already.

    Args:
        directory: of the log.
        state: () `APPEND_STATE` of the segment.
        check_owner: raises once another writer owns the store; the file is opened before it is asked.

    Raises:
        StorageError: the disk refused.
    """
    if state["segment_base"] < 0 or state["max_timestamp"] <= state["last_entry_timestamp"]:
        return
    path = directory / segment_file_name(int(state["segment_base"]), TIMEINDEX)
    entry = pack_time_entries([state["max_timestamp"]], [state["max_timestamp_offset"] - state["segment_base"]])
    with storage_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            check_owner()
            write_all(descriptor, entry, int(state["time_entries"]) * len(entry))
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
