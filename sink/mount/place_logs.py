"""Fills a broker's log directory with logs of a store: segments, indexes, Kafka's small files.

| file | how |
|---|---|
| `.log` of a closed segment | blocks shared, else a second name, else a copy: a broker appends to none of them |
| `.log` of the active segment | a copy of its committed bytes: store and broker both append |
| indexes of closed segments, producer snapshots | copies: a broker maps index files for writing |
| indexes of the active segment | none: the broker's start rebuilds them |
| `leader-epoch-checkpoint` | a copy; `partition.metadata` is written from the ledger |

There is no clean-shutdown marker: the broker checks each log from its recovery point on, which is the active segment.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparklog.sink.mount.plan_mount import MountedLog
from sparklog.sink.store.cleaner_checkpoint_files import CLEANER_CHECKPOINT
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint, render_offset_checkpoint
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.log.files.names import SNAPSHOT, parse_base_offset
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.share_file import Sharing, copy_file, share_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["place_logs"]

_EPOCHS: Final = "leader-epoch-checkpoint"
_LOG_STARTS: Final = "log-start-offset-checkpoint"
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"


def place_logs(logs: Iterable[MountedLog], root: Path) -> set[Sharing]:
    """Put logs into a new log directory, without a sync; return how closed segments got there.

    Raises:
        StorageError: the disk refused.
        CorruptFileError: a checkpoint of the store is damaged.
    """
    placed, used = list(logs), set[Sharing]()
    with storage_errors(root):
        for each in placed:
            used |= _place(each, root / each.log.directory_name)
        starts = {
            each.log: each.state.log_start_offset
            for each in placed
            if each.state.log_start_offset > each.first_base_offset
        }
        points = {each.log: each.state.active_base_offset for each in placed}
        cleaned = _first_dirty_offsets(placed)
        for name, offsets in ((_LOG_STARTS, starts), (_RECOVERY_POINTS, points), (CLEANER_CHECKPOINT, cleaned)):
            if offsets:
                write_file(root / name, render_offset_checkpoint(offsets))
    return used


def _place(each: MountedLog, target: Path) -> set[Sharing]:
    target.mkdir()
    used = set[Sharing]()
    for segment in each.closed:
        used.add(share_file(segment.log_path, target / segment.log_path.name))
        for index in (segment.index_path, segment.time_index_path, segment.txn_index_path):
            _copy_if_there(index, target)
    copy_file(each.active.log_path, target / each.active.log_path.name, each.state.active_size_bytes)
    for path in each.directory.glob(f"*{SNAPSHOT}"):
        if (parse_base_offset(path.name) or 0) <= each.state.log_end_offset:
            _copy_if_there(path, target)
    _copy_if_there(each.directory / _EPOCHS, target)
    write_file(target / "partition.metadata", render_partition_metadata(each.state.topic_id))
    return used


def _copy_if_there(path: Path, target: Path) -> None:
    if path.exists():
        copy_file(path, target / path.name, path.stat().st_size)


def _first_dirty_offsets(logs: Iterable[MountedLog]) -> dict[TopicPartition, int]:
    """Return how far the logs are compacted: a broker would begin again at their starts."""
    found: dict[TopicPartition, int] = {}
    by_root: dict[Path, list[TopicPartition]] = {}
    for each in logs:
        by_root.setdefault(each.directory.parent, []).append(each.log)
    for root, names in by_root.items():
        offsets = parse_offset_checkpoint(read_if_there(root / CLEANER_CHECKPOINT) or b"0\n0\n")
        found |= {log: offsets[log] for log in names if log in offsets}
    return found
