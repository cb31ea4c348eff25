"""Deletes a log's oldest segments by a plan, after the ledger has raised the log start above them.

The order, safe for a crash after any step: the ledger's log start, the leader epochs, the names. Segments that were not
renamed lie below the log start: readers skip them, and the next plan has them again. Until the names change they show a
stream's reader that there were records below; afterwards only the epochs do.

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
    """Whether a plan's segments are still the first ones of the log, unchanged."""
    planned = [(each.base_offset, each.next_offset, each.size_bytes) for each in plan.deletions]
    found = [(each.base_offset, each.next_offset, each.size_bytes) for each in listed.segments]
    if planned != found[: len(planned)]:
        return False
    return plan.rolls == (len(planned) == len(found)) and plan.log_start_offset <= listed.segments[-1].next_offset


def delete_segments(directory: Path, first_offset: int, log_start_offset: int, owner: Owner) -> None:
    """Rename the segments below an offset to `.deleted`, and drop the leader epochs below the log start.

    Args:
        first_offset: base offset of the first kept segment.
        log_start_offset: of the ledger, already raised.

    Raises:
        StorageError: the disk refused; the next call continues. A full disk does not prevent the renames.
    """
    try:
        _forget_epochs(directory, log_start_offset, owner)
    finally:
        mark_deleted(directory, lambda base_offset: base_offset < first_offset, owner)
    reach("retain.renamed")


def _forget_epochs(directory: Path, log_start_offset: int, owner: Owner) -> None:
    """Raise the first epoch's start to the log start; a damaged file is kept for a repair."""
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
    """Replace the file; if that fails overwrite it in place, else remove it.

    After torn or missing epochs a reader assumes that records were deleted; stale ones would hide it.
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
    """Overwrite a file of less than a block, which needs no free disk space."""
    descriptor = open_to_change(path, os.O_WRONLY)
    try:
        write_all(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
