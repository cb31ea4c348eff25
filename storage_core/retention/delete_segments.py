"""Takes the oldest segments out of a log, as a plan says, once the ledger lets the log start behind them.

In this order, so that the last step may be any: the ledger's log start, the leader epochs, the names. What was not
renamed ends below the log start: no reader looks at it, and the next plan names it again.

Source: Kafka UnifiedLog.deleteSegments, LeaderEpochFileCache.truncateFromStartAsyncFlush.
"""

from collections.abc import Callable
from pathlib import Path

from storage_core.checkpoint.leader_epochs import (
    parse_leader_epochs,
    render_leader_epochs,
    truncate_epochs_from_start,
)
from storage_core.errors import CorruptFileError
from storage_core.fault_points import reach
from storage_core.log.deleted_files import mark_deleted
from storage_core.retention.log_facts import ListedLog
from storage_core.retention.plan_retention import RetentionPlan
from storage_core.storage.local import replace_file, storage_errors

__all__ = ["delete_segments", "fits"]

_EPOCHS = "leader-epoch-checkpoint"


def fits(plan: RetentionPlan, listed: ListedLog) -> bool:
    """Whether the segments that a plan names are still the first ones of a log, as they were when it was made."""
    planned = [(each.base_offset, each.next_offset, each.size_bytes) for each in plan.deletions]
    found = [(each.base_offset, each.next_offset, each.size_bytes) for each in listed.segments]
    if planned != found[: len(planned)]:
        return False
    return plan.rolls == (len(planned) == len(found)) and plan.log_start_offset <= listed.segments[-1].next_offset


def delete_segments(directory: Path, first_offset: int, log_start_offset: int, check_owner: Callable[[], None]) -> None:
    """Rename the segments in front of an offset to `.deleted`, and forget the leader epochs in front of the log start.

    Args:
        directory: of the log.
        first_offset: base offset of the first segment that stays.
        log_start_offset: that the ledger says by now.
        check_owner: raises once somebody else owns the log.

    Raises:
        StorageError: the disk refused; the next call goes on. On a full one the names change all the same.
    """
    try:
        _forget_epochs(directory, log_start_offset, check_owner)
    finally:
        mark_deleted(directory, lambda base_offset: base_offset < first_offset, check_owner)
    reach("retain.renamed")


def _forget_epochs(directory: Path, log_start_offset: int, check_owner: Callable[[], None]) -> None:
    """Let the first epoch start where the log does; a damaged file is left to a repair."""
    path = directory / _EPOCHS
    with storage_errors(path):
        if not path.is_file():
            return
        try:
            epochs = parse_leader_epochs(path.read_bytes())
        except CorruptFileError:
            return
        kept = truncate_epochs_from_start(epochs, log_start_offset)
        if kept != epochs:
            check_owner()
            replace_file(path, render_leader_epochs(kept))
