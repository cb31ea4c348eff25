"""Fills a broker's log directory with logs of a store: segments, indexes, Kafka's small files.

| file | how |
|---|---|
| `.log` of a closed segment | shared blocks, else a second name, else a copy; of several replicas copies |
| `.log` of the active segment | a copy of its committed bytes: store and broker both append |
| of an earlier state: `.log` of the segment that holds its end | the same, up to that end |
| indexes of closed segments, `.txnindex` too | copies: a broker maps index files for writing |
| indexes of the active segment | built from the copy |
| a producer snapshot at the active segment's base | the newest one: only imported records have producers |
| `leader-epoch-checkpoint` | the log's, from its start on |
| `partition.metadata` | from the ledger |

There is no clean-shutdown marker: the broker checks each log from its recovery point on, which is the active segment.
What has two names is one file. The store never changes such a file: it first gets an inode of its own (`renew_files`).
A follower that truncates its log would truncate the store's, and so may a broker whose log has offsets without an
epoch: these get copies.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparklog.sink.mount.plan_mount import MountedLog
from sparklog.sink.store.cleaner_checkpoint_files import CLEANER_CHECKPOINT, read_cleaner_checkpoint
from sparklog.storage_core.checkpoint.leader_epochs import (
    EPOCHS_NAME,
    parse_leader_epochs,
    render_leader_epochs,
    truncate_epochs_from_end,
    truncate_epochs_from_start,
)
from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.checkpoint.producer_snapshot import render_producer_snapshot
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS
from sparklog.storage_core.inspect.verify.verify_log import VerifyOptions, verify_directory
from sparklog.storage_core.log.files.names import SNAPSHOT, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.recover_segment import scan_segment
from sparklog.storage_core.log.producers.snapshots import find_snapshot
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.share_file import Sharing, copy_file, share_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "LOG_STARTS",
    "RECOVERY_POINTS",
    "checkpoint_offsets",
    "leader_epochs",
    "may_be_linked",
    "place_log",
    "refuse_damage",
    "write_checkpoints",
]

LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_HIGH_WATERMARKS: Final = "replication-offset-checkpoint"


def place_log(each: MountedLog, target: Path, *, may_link: bool) -> set[Sharing]:
    """Put a log's files into a new directory, without a sync; return how closed segments got there.

    Raises:
        StorageError: the disk refused, or a file has fewer bytes than were committed.
    """
    used = set[Sharing]()
    with storage_errors(target):
        target.mkdir()
        epochs, start = leader_epochs(each), each.state.log_start_offset
        may_link = may_link and may_be_linked(each)
        for segment in each.closed:
            path, may_reflink = target / segment.log_path.name, used <= {"reflink"}
            used.add(share_file(segment.log_path, path, may_link=may_link, may_reflink=may_reflink))
            aborted = [segment.txn_index_path] if segment.txn_index_path.exists() else []
            for index in (segment.index_path, segment.time_index_path, *aborted):
                copy_file(index, target / index.name, index.stat().st_size)
        if each.active_path.exists():
            copy_file(each.active_path, target / each.active_path.name, each.state.active_size_bytes)
            _write_indexes(SegmentFiles(each.state.active_base_offset, target / each.active_path.name), each)
        snapshot = segment_file_name(each.state.active_base_offset, SNAPSHOT)
        producers = find_snapshot(each.directory, -1, each.state.active_base_offset).producers
        write_file(target / snapshot, render_producer_snapshot(producers))
        write_file(target / EPOCHS_NAME, render_leader_epochs(epochs or [(each.state.leader_epoch, start)]))
        write_file(target / "partition.metadata", render_partition_metadata(each.state.topic_id))
    return used


def may_be_linked(each: MountedLog) -> bool:
    """Return whether a broker has an epoch for each offset of a log: otherwise it may truncate closed segments."""
    epochs = leader_epochs(each)
    return bool(epochs) and epochs[0][1] <= each.state.log_start_offset


def refuse_damage(each: MountedLog, directory: Path) -> None:
    """Check a log that was placed as `verify` does, by what the ledger has of it.

    Raises:
        CorruptFileError: it is damaged.
    """
    report = verify_directory(directory, each.expected, VerifyOptions(known_lost=each.lost))
    found = [finding for finding in report.findings if finding.kind not in HARMLESS_KINDS]
    if found:
        more = f" and {len(found) - 1} more findings" if found[1:] else ""
        raise CorruptFileError(
            f"a log of the store is damaged: {found[0]}{more}: path={each.directory}; repair the store"
        )


def leader_epochs(each: MountedLog) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) entries of the mounted offsets, none where the file is lost."""
    start, newest = each.state.log_start_offset, each.state.leader_epoch
    entries = parse_leader_epochs(read_if_there(each.directory / EPOCHS_NAME) or b"")
    below = truncate_epochs_from_end([entry for entry in entries if entry[0] <= newest], each.state.log_end_offset)
    return truncate_epochs_from_start(below, start)


def _write_indexes(active: SegmentFiles, each: MountedLog) -> None:
    found = scan_segment(active, each.index_interval_bytes, ProducerStates())
    write_file(active.index_path, found.offset_index)
    write_file(active.time_index_path, found.time_index)


def write_checkpoints(logs: Iterable[MountedLog], root: Path) -> None:
    """Write the checkpoint files of a log directory with these logs, without a sync."""
    for name, offsets in checkpoint_offsets(logs).items():
        if offsets:
            with storage_errors(root / name):
                write_file(root / name, render_offset_checkpoint(offsets))


def checkpoint_offsets(logs: Iterable[MountedLog]) -> dict[str, dict[TopicPartition, int]]:
    """Return the entries of a log directory's checkpoint files, by file.

    Each replica gets all of a log, so its end is the high watermark. Without one a broker begins at the log's start,
    and goes back with a warning if that is inside a batch.
    """
    placed = list(logs)
    starts = {
        each.log: each.state.log_start_offset for each in placed if each.state.log_start_offset > each.first_base_offset
    }
    points = {each.log: each.state.active_base_offset for each in placed}
    return {
        LOG_STARTS: starts,
        RECOVERY_POINTS: points,
        _HIGH_WATERMARKS: {each.log: each.state.log_end_offset for each in placed},
        CLEANER_CHECKPOINT: _first_dirty_offsets(placed),
    }


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
