"""Kafka's `cleaner-offset-checkpoint` in every root: the first dirty offset of each log, for brokers.

A maintenance run writes it from the control tables. A sink only adds an empty one to a root without one. A broker that
finds an offset outside a log begins at the log's start.
"""

import contextlib
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint, render_offset_checkpoint
from sparklog.storage_core.errors import CorruptFileError, StorageError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import Owner, replace_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "CLEANER_CHECKPOINT",
    "drop_cleaner_checkpoints",
    "lower_cleaner_checkpoint",
    "read_cleaner_checkpoint",
    "write_cleaner_checkpoints",
]

logger = logging.getLogger(__name__)

CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"


def write_cleaner_checkpoints(
    store: Store, states: Mapping[TopicPartition, LogState], offsets: Mapping[TopicPartition, int], owner: Owner
) -> None:
    """Write the file of every root that is not offline; a failure only warns.

    Args:
        states: of its logs.
        offsets: first dirty offsets of logs that were cleaned.
    """
    by_root: dict[str, dict[TopicPartition, int]] = {}
    for log, state in states.items():
        found = by_root.setdefault(state.log_dir, {})
        if log in offsets:
            found[log] = offsets[log]
    for name, entries in by_root.items():
        root = store.log_dir(name)
        try:
            if check_root(store, name) is not None:
                continue
            with storage_errors(root):
                replace_file(owner, root / CLEANER_CHECKPOINT, render_offset_checkpoint(entries))
        except StorageError as error:
            logger.warning("A cleaner checkpoint was not written, the next run retries: %s", error)


def lower_cleaner_checkpoint(root: Path, log: TopicPartition, offset: int, owner: Owner) -> None:
    """Lower the log's cleaner checkpoint to its truncation offset.

    Source: Kafka LogCleanerManager.maybeTruncateCheckpoint.
    """
    path = root / CLEANER_CHECKPOINT
    found = read_cleaner_checkpoint(root)
    if found.get(log, 0) > offset:
        with storage_errors(path):
            replace_file(owner, path, render_offset_checkpoint({**found, log: offset}))


def drop_cleaner_checkpoints(root: Path, logs: Collection[TopicPartition], owner: Owner) -> None:
    """Drop a root's entries of logs that do not exist any more: a later log of that name is not clean.

    Args:
        logs: existing ones.
    """
    path = root / CLEANER_CHECKPOINT
    kept = {log: offset for log, offset in read_cleaner_checkpoint(root).items() if log in logs}
    with storage_errors(path):
        replace_file(owner, path, render_offset_checkpoint(kept))


def read_cleaner_checkpoint(root: Path) -> dict[TopicPartition, int]:
    """Return the entries of a root's file; none of a missing or damaged one."""
    path = root / CLEANER_CHECKPOINT
    with storage_errors(path), contextlib.suppress(CorruptFileError):
        return parse_offset_checkpoint(read_if_there(path) or b"")
    return {}
