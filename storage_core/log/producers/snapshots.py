"""Producer snapshots of a log directory: which there are, which to load, which to keep.

A snapshot holds the state of the log's producers below the offset in its name. One is taken when a segment is rolled,
after a recovery and at a clean close. Kept are those of the segments' base offsets and the newest.

Source: Kafka ProducerStateManager.loadFromSnapshot, takeSnapshot, removeStraySnapshots.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState, parse_producer_snapshot
from sparklog.storage_core.errors import CorruptFileError, StorageError
from sparklog.storage_core.log.files.names import SNAPSHOT, parse_base_offset, segment_file_name
from sparklog.storage_core.log.scan.log_walk import is_gone
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_file

__all__ = ["FoundSnapshot", "find_snapshot", "list_snapshots", "stray_snapshots"]


@dataclass(frozen=True, slots=True)
class FoundSnapshot:
    """The newest snapshot that can be read.

    Attributes:
        offset: after the batches it covers; None if there is no such snapshot.
        producers: state of each producer there.
        damaged: offsets of newer ones that can't be read, newest first. A broker deletes them.
    """

    offset: int | None
    producers: tuple[ProducerState, ...]
    damaged: tuple[int, ...]


def list_snapshots(directory: Path) -> list[int]:
    """Return the offsets of a log's snapshots, in order.

    Raises:
        StorageError: the directory can't be read.
    """
    with storage_errors(directory):
        names = [name for name in os.listdir(directory) if name.endswith(SNAPSHOT)]
    return sorted(offset for name in names if (offset := parse_base_offset(name)) is not None)


def find_snapshot(directory: Path, after_offset: int, up_to_offset: int) -> FoundSnapshot:
    """Return the newest snapshot of (after, up to] that can be read; one that is gone meanwhile is passed over.

    Args:
        directory: of the log.
        after_offset: the log's start: a snapshot there or below is of no use.
        up_to_offset: the log's end, or where a state is wanted.

    Raises:
        StorageError: the disk refused.
    """
    damaged = []
    for offset in reversed(list_snapshots(directory)):
        if not after_offset < offset <= up_to_offset:
            continue
        path = directory / segment_file_name(offset, SNAPSHOT)
        try:
            with storage_errors(path):
                producers = parse_producer_snapshot(read_file(path))
        except CorruptFileError:
            damaged.append(offset)
        except StorageError as error:
            if not is_gone(error):
                raise
        else:
            return FoundSnapshot(offset, tuple(producers), tuple(damaged))
    return FoundSnapshot(None, (), tuple(damaged))


def stray_snapshots(offsets: Iterable[int], base_offsets: Collection[int]) -> list[int]:
    """Return which snapshots go: those of no segment, except the newest if it lies at the last segment or above."""
    strays = sorted(set(offsets) - set(base_offsets))
    if strays and (not base_offsets or strays[-1] >= max(base_offsets)):
        strays.pop()
    return strays
