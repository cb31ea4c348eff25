"""Carries truncations out behind their commit, and finishes those that a crash or an offline disk stopped.

A truncation takes whole batches, so a log may end before the offset that it was truncated to. Until a batch stands for
the offsets in between, the ledger lets it end with its last one: a log that ends in offsets without a batch can't be
read to its end. Each step can be done again, so what is written down is carried out from its beginning.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.pending_truncations import PendingTruncation, read_truncations, write_truncations
from sparklog.sink.opening.undo import committed_end
from sparklog.sink.store.forgotten_keys import lower_ends
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.append.cut_back import cut_back
from sparklog.storage_core.log.files.deleted_files import drop_deleted, list_deleted, mark_deleted
from sparklog.storage_core.log.files.empty_segment import add_empty_segment
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.record.v2.empty_batch import pack_empty_batch
from sparklog.storage_core.storage.local import storage_errors, write_all
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.owned_names import replace_file

__all__ = ["carry_out", "finish_truncations"]

logger = logging.getLogger(__name__)


def finish_truncations(
    store: Store,
    ledger: Ledger,
    lock: WriterLock,
    offline: Collection[str],
    keep_maintenance_out: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Finish what is written down and happened, drop what did not; the logs are cut back to the ledger.

    Args:
        store: open for writing.
        ledger: open for writing.
        lock: the writer lock.
        offline: log directories whose logs have to wait.
        keep_maintenance_out: is entered where there is anything to do: a truncation needs both locks.

    Raises:
        CorruptFileError: the list can't be read.
        StoreLockedError: a maintenance runs meanwhile.
        StorageError: the disk refused; the next opening goes on.
    """
    due = [each for each in read_truncations(store) if not _is_offline(each, ledger, offline)]
    if not due:
        return
    with keep_maintenance_out():
        for each in due:
            row = ledger.rows.get(each.log)
            if row is not None and each.is_committed(ledger.state(row)):
                carry_out(store, ledger, lock, each)
                logger.info("Finished a truncation log=%s offset=%d", each.log, each.offset)
        write_truncations(store, [each for each in read_truncations(store) if each not in due], lock)


def carry_out(store: Store, ledger: Ledger, lock: WriterLock, truncation: PendingTruncation) -> None:
    """Do what a truncation that the ledger shows takes: lists of losses and forgotten keys, files, end, start."""
    row = ledger.rows[truncation.log]
    state = ledger.state(row)
    directory = store.log_path(state)
    lock.check()
    _write_down_lost(store, truncation, directory)
    lower_ends(store, state.topic_id, truncation.partition, truncation.offset, lock)
    if truncation.is_emptying:
        _begin_anew(directory, state, lock)
    else:
        cut_back(directory, committed_end(state), lock)
        if not truncation.size_bytes:
            add_empty_segment(directory, truncation.segment_base, lock.token, lock)
    if truncation.next_offset < truncation.offset:
        _fill_up(ledger, row, directory, truncation, lock)
    reach("truncate.finished")


def _write_down_lost(store: Store, truncation: PendingTruncation, directory: Path) -> None:
    """Write down what went with a batch that reached across the cut, and forget what is known of offsets behind it."""
    first, offset = truncation.lost_from, truncation.offset
    gap = LostRange(
        topic=truncation.topic,
        partition=truncation.partition,
        first_offset=first,
        last_offset=offset - 1,
        file=directory.name,
        reason=f"truncated to offset {offset}, with the batch that reaches across it",
        found_ms=truncation.began_ms,
    )
    from_offset = 0 if truncation.is_emptying else offset
    table = LostRangeTable(store.root / "control" / "lost_ranges")
    table.truncate(truncation.topic, truncation.partition, from_offset, gap if first < offset else None)


def _fill_up(ledger: Ledger, row: int, directory: Path, truncation: PendingTruncation, lock: WriterLock) -> None:
    """Let a batch without records stand for the offsets from a log's end to where it has to end."""
    state = ledger.state(row)
    batch = pack_empty_batch(state.log_end_offset, truncation.offset - 1, state.leader_epoch)
    path = directory / segment_file_name(state.active_base_offset, LOG)
    with storage_errors(path):
        descriptor = open_to_change(path, os.O_WRONLY)
        try:
            lock.check()
            write_all(descriptor, batch, state.active_size_bytes)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    start = max(state.log_start_offset, truncation.log_start_offset)
    is_flushed = state.recovery_point == state.log_end_offset
    values = {
        "log_start_offset": start,
        "log_end_offset": truncation.offset,
        "recovery_point": truncation.offset if is_flushed else max(state.recovery_point, start),
        "active_size_bytes": state.active_size_bytes + len(batch),
    }
    ledger.correct(np.array([row]), {name: np.array([value], np.int64) for name, value in values.items()})


def _begin_anew(directory: Path, state: LogState, lock: WriterLock) -> None:
    """Let an empty segment be all of a log, which starts and ends there under the leader epoch that it has."""
    mark_deleted(directory, lambda _base: True, lock)
    drop_deleted(directory, [each.name for each in list_deleted(directory)])
    add_empty_segment(directory, state.log_end_offset, lock.token, lock)
    with storage_errors(directory):
        epochs = render_leader_epochs([(state.leader_epoch, state.log_end_offset)])
        replace_file(lock, directory / "leader-epoch-checkpoint", epochs)


def _is_offline(truncation: PendingTruncation, ledger: Ledger, offline: Collection[str]) -> bool:
    row = ledger.rows.get(truncation.log)
    return row is not None and ledger.state(row).log_dir in offline
