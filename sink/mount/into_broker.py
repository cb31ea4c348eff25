"""Puts a store's logs into the folders of a stopped broker, in place of its empty ones.

| step | done | killed after it: the broker's logs |
|---|---|---|
| 1 | files collected in `<log>.<id>-delete`, checked and synced (`mount.placed`) | are as they were |
| 2 | the marker of a clean shutdown goes: the broker checks what it gets (`mount.unclean`) | are as they were |
| 3 | empty directories get a `-delete` name (`mount.emptied`) | are empty: a broker makes their directories anew |
| 4 | `log-start-offset-checkpoint`: before the logs, or deleted records would be back (`mount.starts`) | are empty |
| 5 | each log gets its name (`mount.renamed`) | are empty, or whole |
| 6 | the other checkpoints, by which a broker does less at its start (`mount.finished`) | are whole |
| 7 | the empty directories are removed | are whole |

A broker removes `-delete` directories, and so does the next run. All logs are not one commit: run a killed mount again.

Source: Kafka LogManager.loadLogs, getOrCreateLog.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from sparklog.sink.mount.place_logs import LOG_STARTS, checkpoint_offsets, place_log, refuse_damage
from sparklog.sink.mount.plan_target import TargetLog, TargetPlan, read_offsets
from sparklog.sink.store.cleaner_checkpoint_files import CLEANER_CHECKPOINT, read_cleaner_checkpoint
from sparklog.storage_core.checkpoint.leader_epochs import EPOCHS_NAME, render_leader_epochs
from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.clean_shutdown import forget_clean_shutdown
from sparklog.storage_core.log.files.names import LOG, parse_base_offset
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.v2.batch_header import place_of
from sparklog.storage_core.storage.local import (
    storage_errors,
    sync_directories,
    sync_files,
    write_all,
    write_file,
)
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.owned_names import UNSHARED, remove_unique, rename, replace_file
from sparklog.storage_core.storage.share_file import Sharing

__all__ = ["mount_into"]

_EPOCH_AT: Final = place_of("partition_leader_epoch")
_V2: Final = 2


def mount_into(target: TargetPlan) -> set[Sharing]:
    """Put the logs into the broker's folders; return how closed segments got there. The caller holds their locks.

    Raises:
        CorruptFileError: a log is damaged; the broker's logs are as they were.
        StorageError: the disk refused: before step 2 the broker's logs are as they were, later the next run goes on.
    """
    with storage_errors("log.dirs"):
        _clear(target.logs)
        used = _stage(target)
        reach("mount.placed")
        if target.placing:
            _put_in(target)
        for root in target.roots:
            _merge(target, root)
        reach("mount.finished")
        for each in target.placing:
            remove_unique(each.replaced)
        sync_directories(target.roots)
    return used


def _clear(logs: Iterable[TargetLog]) -> None:
    """Undo what a killed run left: a log that it had emptied, and not filled, gets its directory back."""
    for each in logs:
        remove_unique(each.staged)
        if each.replaced.exists() and not each.directory.exists():
            rename(UNSHARED, each.replaced, each.directory)
        remove_unique(each.replaced)


def _stage(target: TargetPlan) -> set[Sharing]:
    """Collect the logs' files beside their places, durably; nothing is left if that fails."""
    used = set[Sharing]()
    try:
        for each in target.placing:
            used |= place_log(each.mounted, each.staged, may_link=target.may_link and each.lowered is None)
            if each.lowered is not None:
                _lower_epochs(each.staged, each.lowered)
            refuse_damage(each.mounted, each.staged)
            reach("mount.copied")
        directories = [each.staged for each in target.placing]
        sync_files([path for directory in directories for path in directory.iterdir()])
        sync_directories([*directories, *target.roots])
    except BaseException:
        for each in target.placing:
            remove_unique(each.staged)
        raise
    return used


def _lower_epochs(directory: Path, entries: tuple[tuple[int, int], ...]) -> None:
    """Write the entries of an epoch file, and lower higher epochs of batches to the last one.

    A batch's CRC does not cover its epoch.
    """
    newest = entries[-1][0]
    for path in directory.glob(f"*{LOG}"):
        files = SegmentFiles(parse_base_offset(path.name) or 0, path)
        descriptor = open_to_change(path, os.O_WRONLY)
        try:
            with SegmentReader(files) as reader:
                for chunk in reader.chunks():
                    above = (chunk.scan.leader_epoch > newest) & (chunk.scan.magic >= _V2)
                    for number in np.flatnonzero(above).tolist():
                        write_all(descriptor, newest.to_bytes(4), chunk.start_of(number) + _EPOCH_AT)
        finally:
            os.close(descriptor)
    write_file(directory / EPOCHS_NAME, render_leader_epochs(entries))


def _put_in(target: TargetPlan) -> None:
    """Replace empty directories by the collected ones."""
    for root in target.roots:
        forget_clean_shutdown(root)
    reach("mount.unclean")
    for each in target.placing:
        rename(UNSHARED, each.directory, each.replaced)
    sync_directories(target.roots)
    reach("mount.emptied")
    for root in target.roots:
        placed = [each for each in target.placing if each.root == root]
        starts = checkpoint_offsets(each.mounted for each in placed)[LOG_STARTS]
        logs = {each.mounted.log for each in placed}
        others = {log: offset for log, offset in read_offsets(root / LOG_STARTS).items() if log not in logs}
        replace_file(UNSHARED, root / LOG_STARTS, render_offset_checkpoint(others | starts))
    reach("mount.starts")
    for each in target.placing:
        rename(UNSHARED, each.staged, each.directory)
        reach("mount.renamed")
    sync_directories(target.roots)


def _merge(target: TargetPlan, root: Path) -> None:
    """Add the logs to a folder's other checkpoints; of a log that was there, a broker's higher offset stays."""
    logs = [each for each in target.logs if each.root == root]
    placed = {each.mounted.log for each in logs if not each.is_there}
    for name, ours in checkpoint_offsets(each.mounted for each in logs).items():
        if name == LOG_STARTS:
            continue
        path = root / name
        found = read_cleaner_checkpoint(root) if name == CLEANER_CHECKPOINT else read_offsets(path)
        kept = {log: offset for log, offset in found.items() if log not in placed}
        merged = kept | {log: max(offset, kept.get(log, offset)) for log, offset in ours.items()}
        if merged != found:
            replace_file(UNSHARED, path, render_offset_checkpoint(merged))
