"""The leader epochs of a log's own batches, as its `leader-epoch-checkpoint` names them.

A ledger has the epoch of the batches that are appended next. The file gets a line for it before the first of them is
written: so a batch always has its line, and a line without a batch decides nothing.

Source: Kafka LeaderEpochFileCache.assign.
"""

import logging
from pathlib import Path

from sparklog.storage_core.checkpoint.leader_epochs import (
    EPOCHS_NAME,
    assign_leader_epoch,
    parse_leader_epochs,
    render_leader_epochs,
)
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import Owner, replace_file

__all__ = ["begin_epoch", "epoch_below"]

logger = logging.getLogger(__name__)


def begin_epoch(directory: Path, epoch: int, offset: int, owner: Owner) -> None:
    """Let batches from an offset on be of an epoch, durably; lines that contradict it go.

    A damaged file is left to `repair`, which makes it from the batches.

    Raises:
        StorageError: the disk refused.
        WriterFencedError: another writer owns the store.
    """
    path = directory / EPOCHS_NAME
    entries = _read(path)
    if entries is None:
        return
    assigned = assign_leader_epoch(entries, epoch, offset)
    if assigned != entries:
        with storage_errors(path):
            replace_file(owner, path, render_leader_epochs(assigned))


def epoch_below(directory: Path, offset: int) -> int | None:
    """Return the epoch of the batch that ends at an offset, None if the file has none."""
    entries = _read(directory / EPOCHS_NAME) or []
    return max((epoch for epoch, start in entries if start < offset), default=None)


def _read(path: Path) -> list[tuple[int, int]] | None:
    with storage_errors(path):
        data = read_if_there(path)
    try:
        return parse_leader_epochs(data) if data else []
    except CorruptFileError as error:
        logger.warning("Leader epochs are damaged, `sparklog repair` mends them: path=%s (%s)", path, error)
        return None
