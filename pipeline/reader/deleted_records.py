"""Tells a log that begins late from one whose first records were deleted.

Both start above offset 0. A log whose offsets are preserved begins with its first record's, and so does its first
segment; nobody deleted anything. Whoever deletes records raises the log's start in the ledger, then that of the first
leader epoch, and then takes the segments below away. So at each moment one of two things tells: a segment that begins
below the log's start, or a leader epoch that does not begin at 0.
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
    """Whether records may have been deleted from a store's log that starts above offset 0; in doubt it is so.

    The segments are looked at first: they go last.

    Args:
        directory: of the log.
        log_start_offset: of the log, as the ledger says.

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
