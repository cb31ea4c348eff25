"""Finishes truncations: a log ends where it was told to, though its last batch ends before, or begins anew.

A truncation takes whole batches, so a log may end before the offset that it was truncated to. Until a batch stands for
the offsets in between, the ledger lets it end with its last one: a log that ends in offsets without a batch can't be
read to its end. What a crash left of that is told by the list of lost offsets, which names some at the log's end or
above it from before the truncation is committed until the end is where it belongs.
"""

import logging
import os
from pathlib import Path

import numpy as np

from sink.ledger import Ledger
from sink.ledger_rows import LogState
from sink.lost_ranges import LostRangeTable
from sink.store import Store
from sink.writer_lock import WriterLock
from storage_core.checkpoint.leader_epochs import render_leader_epochs
from storage_core.log.deleted_files import drop_deleted, list_deleted, mark_deleted
from storage_core.log.empty_segment import add_empty_segment
from storage_core.log.log_files import LOG, segment_file_name
from storage_core.record.empty_batch import pack_empty_batch
from storage_core.storage.local import replace_file, storage_errors, write_all
from storage_core.topic_partition import TopicPartition

__all__ = ["begin_anew", "fill_up_to", "finish_truncations"]

logger = logging.getLogger(__name__)


def finish_truncations(store: Store, ledger: Ledger, lock: WriterLock) -> None:
    """Finish what a crash left of truncations; the logs are cut back to the ledger.

    Raises:
        LedgerDamagedError: the list of lost offsets can't be read.
    """
    for log, state in ledger.states().items():
        if _is_to_begin(store.log_path(state), state):
            begin_anew(store.log_path(state), state, lock)
            logger.info("Finished a truncation log=%s offset=%d", log, state.log_end_offset)
    table = LostRangeTable(store.root / "control" / "lost_ranges")
    table.drop_torn()
    for each in table.read():
        log = TopicPartition(each.topic, each.partition)
        row = ledger.rows.get(log)
        if row is None or each.last_offset is None or each.last_offset < ledger.state(row).log_end_offset:
            continue
        if store.log_path(ledger.state(row)).is_dir():  # otherwise its disk is offline
            fill_up_to(store, ledger, log, each.last_offset + 1, lock)
            logger.info("Finished a truncation log=%s offset=%d", log, each.last_offset + 1)


def fill_up_to(store: Store, ledger: Ledger, log: TopicPartition, offset: int, lock: WriterLock) -> None:
    """Let a batch without records stand for the offsets from a log's end to an offset, its end from then on."""
    row = ledger.rows[log]
    state = ledger.state(row)
    batch = pack_empty_batch(state.log_end_offset, offset - 1, state.leader_epoch)
    path = store.log_path(state) / segment_file_name(state.active_base_offset, LOG)
    with storage_errors(path):
        if not path.exists():
            add_empty_segment(path.parent, state.active_base_offset, lock.token, lock.check)
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            lock.check()
            write_all(descriptor, batch, state.active_size_bytes)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    values = {"log_end_offset": offset, "active_size_bytes": state.active_size_bytes + len(batch)}
    if state.recovery_point == state.log_end_offset:
        values["recovery_point"] = offset
    ledger.correct(np.array([row]), {name: np.array([value], np.int64) for name, value in values.items()})


def begin_anew(directory: Path, state: LogState, lock: WriterLock) -> None:
    """Let an empty segment be all of a log, which starts and ends there under the leader epoch that it has."""
    mark_deleted(directory, lambda _base: True, lock.check)
    drop_deleted(directory, [each.name for each in list_deleted(directory)])
    add_empty_segment(directory, state.log_end_offset, lock.token, lock.check)
    with storage_errors(directory):
        replace_file(
            directory / "leader-epoch-checkpoint", render_leader_epochs([(state.leader_epoch, state.log_end_offset)])
        )


def _is_to_begin(directory: Path, state: LogState) -> bool:
    """Whether the ledger says that a log begins anew, and its directory holds only what it was before."""
    if state.active_size_bytes or not state.log_start_offset == state.log_end_offset == state.active_base_offset:
        return False
    with storage_errors(directory):
        is_there = (directory / segment_file_name(state.active_base_offset, LOG)).exists()
        return not is_there and directory.is_dir() and any(directory.glob(f"*{LOG}"))
