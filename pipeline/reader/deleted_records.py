"""Tells a log that begins late from one whose first records were deleted.

Both start above offset 0. A log whose offsets are preserved begins with its first record's; nobody deleted anything.
Whoever deletes records lets the first leader epoch start at the log's new start, and until then it starts at 0.
"""

from pathlib import Path

from storage_core.checkpoint.leader_epochs import parse_leader_epochs
from storage_core.errors import CorruptFileError
from storage_core.storage.local import storage_errors

__all__ = ["has_deleted_records"]

_EPOCHS = "leader-epoch-checkpoint"


def has_deleted_records(directory: Path) -> bool:
    """Whether records may have been deleted from a store's log that starts above offset 0.

    Raises:
        StorageError: the directory can't be read.
    """
    path = directory / _EPOCHS
    with storage_errors(path):
        data = path.read_bytes() if path.is_file() else b""
    try:
        epochs = parse_leader_epochs(data)
    except CorruptFileError:
        return True
    return not epochs or epochs[0][1] > 0
