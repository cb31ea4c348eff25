"""Distinguishes a log whose first record has an offset above 0 from a log whose first records were deleted.

Both start above offset 0. With preserved offsets, a new log and its first segment start at the first record's offset.
A deletion first raises the log's start in the ledger, then the start of the first leader epoch, and then removes the
segments below. So a deletion shows at each moment: a segment starts below the log's start, or the first leader epoch
does not start at 0.
"""

from pathlib import Path

from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.segments import list_readable_segments
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there

__all__ = ["has_deleted_records"]

_EPOCHS = "leader-epoch-checkpoint"


def has_deleted_records(directory: Path, log_start_offset: int) -> bool:
    """Whether records may have been deleted from a store's log that starts above offset 0; True if unclear.

    Checks the segments first, because a deletion removes them last.

    Args:
        log_start_offset: from the ledger.

    Raises:
        StorageError: the directory can't be read.
    """
    if any(each.base_offset < log_start_offset for each in list_readable_segments(directory)):
        return True
    path = directory / _EPOCHS
    with storage_errors(path):
        data = read_if_there(path) or b""
    try:
        epochs = parse_leader_epochs(data)
    except CorruptFileError:
        return True
    return not epochs or epochs[0][1] > 0
