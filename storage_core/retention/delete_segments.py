"""Takes the oldest segments out of a log, as a plan says, once the ledger lets the log start behind them.

In this order, so that the last step may be any: the ledger's log start, the leader epochs, the names. What was not
renamed ends below the log start: no reader looks at it, and the next plan names it again. And while a name still tells
that there were records below, the epochs need not; afterwards nothing else does (a stream's reader asks).

Source: Kafka UnifiedLog.deleteSegments, LeaderEpochFileCache.truncateFromStartAsyncFlush.
"""

import contextlib
import errno
import os
from pathlib import Path

from sparklog.storage_core.checkpoint.leader_epochs import (
    parse_leader_epochs,
    render_leader_epochs,
    truncate_epochs_from_start,
)
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.deleted_files import mark_deleted
from sparklog.storage_core.retention.log_facts import ListedLog
from sparklog.storage_core.retention.plan_retention import RetentionPlan
from sparklog.storage_core.storage.local import storage_errors, write_all
from sparklog.storage_core.storage.open_regular import open_to_change, read_file
from sparklog.storage_core.storage.owned_names import Owner, remove_file, replace_file

__all__ = ["delete_segments", "fits"]

_EPOCHS = "leader-epoch-checkpoint"


def fits(plan: RetentionPlan, listed: ListedLog) -> bool:
    """Whether the segments that a plan names are still the first ones of a log, as they were when it was made."""
    planned = [(each.base_offset, each.next_offset, each.size_bytes) for each in plan.deletions]
    found = [(each.base_offset, each.next_offset, each.size_bytes) for each in listed.segments]
    if planned != found[: len(planned)]:
        return False
    return plan.rolls == (len(planned) == len(found)) and plan.log_start_offset <= listed.segments[-1].next_offset


def delete_segments(directory: Path, first_offset: int, log_start_offset: int, owner: Owner) -> None:
    """Rename the segments in front of an offset to `.deleted`, and forget the leader epochs in front of the log start.

    Args:
        directory: of the log.
        first_offset: base offset of the first segment that stays.
        log_start_offset: that the ledger says by now.
        owner: its check raises once another one owns the log.

    Raises:
        StorageError: the disk refused; the next call goes on. On a full one the names change all the same.
    """
    try:
        _forget_epochs(directory, log_start_offset, owner)
    finally:
        mark_deleted(directory, lambda base_offset: base_offset < first_offset, owner)
    reach("retain.renamed")


def _forget_epochs(directory: Path, log_start_offset: int, owner: Owner) -> None:
    """Let the first epoch start where the log does; a damaged file is left to a repair."""
    path = directory / _EPOCHS
    with storage_errors(path):
        if not path.is_file():
            return
        try:
            epochs = parse_leader_epochs(read_file(path))
        except CorruptFileError:
            return
        kept = truncate_epochs_from_start(epochs, log_start_offset)
        if kept != epochs:
            _write_epochs(owner, path, render_leader_epochs(kept))


def _write_epochs(owner: Owner, path: Path, data: bytes) -> None:
    """Replace the file, or write it in its place where that fails; one that can't be written at all goes.

    Epochs that are torn or missing leave it open whether records were deleted, old ones would deny it.
    """
    try:
        replace_file(owner, path, data)
    except OSError as error:
        try:
            _overwrite(path, data)
        except OSError:
            with contextlib.suppress(OSError):
                remove_file(owner, path)
            raise error from None
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _overwrite(path: Path, data: bytes) -> None:
    """Write over a file of less than a block, which takes no room."""
    descriptor = open_to_change(path, os.O_WRONLY)
    try:
        write_all(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
