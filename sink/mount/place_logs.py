"""Fills a broker's log directory with logs of a store: segments, indexes, Kafka's small files.

| file | how |
|---|---|
| `.log` of a closed segment | shared blocks, else a second name, else a copy; of several replicas copies |
| `.log` of the active segment | a copy of its committed bytes: store and broker both append |
| indexes of closed segments | copies: a broker maps index files for writing |
| indexes of the active segment | built from the copy |
| a producer snapshot at the active segment's base | empty, as no record of a store has a producer |
| `leader-epoch-checkpoint`, `partition.metadata` | from the ledger |

There is no clean-shutdown marker: the broker checks each log from its recovery point on, which is the active segment.
What has two names is one file: a follower that truncates its log would truncate the store's.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparklog.sink.mount.plan_mount import MountedLog
from sparklog.sink.store.cleaner_checkpoint_files import CLEANER_CHECKPOINT, read_cleaner_checkpoint
from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.checkpoint.producer_snapshot import render_producer_snapshot
from sparklog.storage_core.log.files.names import SNAPSHOT, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.recover_segment import scan_segment
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.storage.share_file import Sharing, copy_file, share_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["place_log", "write_checkpoints"]

_EPOCHS: Final = "leader-epoch-checkpoint"
_LOG_STARTS: Final = "log-start-offset-checkpoint"
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"


def place_log(each: MountedLog, target: Path, *, may_link: bool) -> set[Sharing]:
    """Put a log's files into a new directory, without a sync; return how closed segments got there.

    Raises:
        StorageError: the disk refused, or a file has fewer bytes than were committed.
    """
    used = set[Sharing]()
    with storage_errors(target):
        target.mkdir()
        for segment in each.closed:
            used.add(share_file(segment.log_path, target / segment.log_path.name, may_link=may_link))
            for index in (segment.index_path, segment.time_index_path):
                copy_file(index, target / index.name, index.stat().st_size)
        if each.active_path.exists():
            copy_file(each.active_path, target / each.active_path.name, each.state.active_size_bytes)
            _write_indexes(SegmentFiles(each.state.active_base_offset, target / each.active_path.name), each)
        snapshot = segment_file_name(each.state.active_base_offset, SNAPSHOT)
        write_file(target / snapshot, render_producer_snapshot([]))
        epochs = [(each.state.leader_epoch, each.state.log_start_offset)]
        write_file(target / _EPOCHS, render_leader_epochs(epochs))
        write_file(target / "partition.metadata", render_partition_metadata(each.state.topic_id))
    return used


def _write_indexes(active: SegmentFiles, each: MountedLog) -> None:
    found = scan_segment(active, each.index_interval_bytes, ProducerStates())
    write_file(active.index_path, found.offset_index)
    write_file(active.time_index_path, found.time_index)


def write_checkpoints(logs: Iterable[MountedLog], root: Path) -> None:
    """Write the checkpoint files of a log directory with these logs, without a sync."""
    placed = list(logs)
    starts = {
        each.log: each.state.log_start_offset for each in placed if each.state.log_start_offset > each.first_base_offset
    }
    points = {each.log: each.state.active_base_offset for each in placed}
    for name, offsets in (
        (_LOG_STARTS, starts),
        (_RECOVERY_POINTS, points),
        (CLEANER_CHECKPOINT, _first_dirty_offsets(placed)),
    ):
        if offsets:
            with storage_errors(root / name):
                write_file(root / name, render_offset_checkpoint(offsets))


def _first_dirty_offsets(logs: Iterable[MountedLog]) -> dict[TopicPartition, int]:
    """Return how far the logs are compacted: a broker would begin again at their starts."""
    found: dict[TopicPartition, int] = {}
    known: dict[Path, dict[TopicPartition, int]] = {}
    for each in logs:
        root, limit = each.directory.parent, each.state.cleaner_limit_offset
        if root not in known:
            known[root] = read_cleaner_checkpoint(root)
        if each.log in known[root]:
            offset = known[root][each.log] if limit < 0 else min(known[root][each.log], limit)
            found[each.log] = min(offset, each.state.log_end_offset)
    return found
