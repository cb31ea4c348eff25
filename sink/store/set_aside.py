"""Removes log directories in two steps: rename to `-delete`, remove later.

A renamed directory is not a log any more, neither for a broker, also after a crash in the middle of its removal. The
next opening of the store removes the rest.

Source: Kafka LogManager.asyncDelete, UnifiedLog.renameDir.
"""

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from sparklog.storage_core.checkpoint.partition_metadata import parse_partition_metadata
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.storage.local import storage_errors, sync_directories, sync_directory
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import Owner, remove_unique, rename
from sparklog.storage_core.topic_partition import TopicPartition, parse_set_aside_name, set_aside_name

__all__ = ["find_deleted", "remove_deleted", "set_aside", "stored_topic_id"]

logger = logging.getLogger(__name__)

_METADATA = "partition.metadata"


def set_aside(log: TopicPartition, directory: Path, owner: Owner) -> Path:
    """Give a log's directory a `-delete` name, durably, and return its new path.

    Raises:
        StoreLockedError: a task of a dead maintenance run still holds the log, and would continue in the next log of
            that name.
    """
    target = directory.with_name(set_aside_name(log, uuid.uuid4().hex, "delete"))
    with held_alone(directory), storage_errors(directory):
        rename(owner, directory, target)
        sync_directory(target.parent)
    return target


def find_deleted(root: Path) -> list[Path]:
    """Return the `-delete` directories of a root."""
    with storage_errors(root), os.scandir(root) as entries:
        return sorted(root / each.name for each in entries if each.is_dir() and _is_deleted(each.name))


def remove_deleted(directories: Sequence[Path], removed: Callable[[Path], None] = lambda _path: None) -> None:
    """Remove `-delete` directories with all files, durably; missing ones are skipped.

    Args:
        removed: called after each.
    """
    for directory in directories:
        if not _is_deleted(directory.name):
            raise ValueError(f"not set aside to be deleted: {directory}")
        with storage_errors(directory):
            if directory.exists():
                remove_unique(directory)
                logger.info("Removed a deleted log path=%s", directory)
        removed(directory)
    with storage_errors("log directories"):
        sync_directories([root for root in sorted({each.parent for each in directories}) if root.is_dir()])


def stored_topic_id(directory: Path) -> str | None:
    """Return the topic id in a log's directory, None without a readable one."""
    path = directory / _METADATA
    with storage_errors(path):
        data = read_if_there(path) or b""
    try:
        return parse_partition_metadata(data)
    except CorruptFileError:
        return None


def _is_deleted(name: str) -> bool:
    if not name.endswith("-delete"):
        return False
    found = parse_set_aside_name(name)
    return found is not None and found.kind == "delete"
