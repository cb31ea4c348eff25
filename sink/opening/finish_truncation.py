"""Carries truncations out after their commit, and finishes those that a crash or an offline disk stopped.

A truncation drops whole batches, so a log may end below its truncation offset. Until an empty batch fills the gap, the
ledger has the end of the last batch: readers could not reach an end above it. The row keeps the intent until the last
commit. Each step can be repeated, so an opening carries all of them out.

The row has the next leader epoch since the first commit: later batches at dropped offsets are of another epoch than the
dropped ones, which shows that an earlier state of the log is not this log's past.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from sparklog.sink.erasure.request_files import lower_ends
from sparklog.sink.ledger.intents import Truncation, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.store.cleaner_checkpoint_files import lower_cleaner_checkpoint
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.leader_epochs import EPOCHS_NAME, render_leader_epochs
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.append.begin_epoch import begin_epoch, epoch_below
from sparklog.storage_core.log.append.cut_back import cut_back
from sparklog.storage_core.log.files.deleted_files import drop_deleted, list_deleted, mark_deleted
from sparklog.storage_core.log.files.empty_segment import add_empty_segment
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.record.v2.empty_batch import pack_empty_batch
from sparklog.storage_core.storage.local import storage_errors, write_all
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.owned_names import replace_file

__all__ = ["carry_out", "finish_truncations", "may_have_truncations"]

logger = logging.getLogger(__name__)

_AT_THE_END: Final = ("log_start_offset", "log_end_offset", "recovery_point", "active_size_bytes")
"""Columns that the last commit may change."""


def finish_truncations(
    store: Store,
    ledger: Ledger,
    lock: WriterLock,
    offline: Collection[str],
    keep_maintenance_out: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Finish truncations that the ledger shows; the logs are cut back to its ends.

    Args:
        offline: log directories to skip.
        keep_maintenance_out: entered if any truncation is due: it needs both locks.

    Raises:
        StoreLockedError: a maintenance run holds its lock.
        StorageError: the disk refused; the next opening continues.
    """
    due = [
        log
        for log, state in ledger.states().items()
        if state.log_dir not in offline and _truncation_of(state) is not None
    ]
    if not due:
        return
    with keep_maintenance_out():
        carry_out(store, ledger, lock, [ledger.rows[log] for log in due])
    logger.info("Finished truncations logs=%s", ", ".join(map(str, due)))


def may_have_truncations(store: Store) -> bool:
    """Whether an opening may have truncations to finish; true for a ledger that only an opening can mend."""
    try:
        states = Ledger.open(store.ledger_path).states()
    except LedgerDamagedError:
        return True
    return any(_truncation_of(state) is not None for state in states.values())


def carry_out(store: Store, ledger: Ledger, lock: WriterLock, rows: Sequence[int]) -> None:
    """Carry out the truncations of some rows, and clear them in one commit."""
    changed = [_cut_files(store, ledger.state(row), lock) for row in rows]
    # Before the intents go: `verify` compares these files with the ledger.
    DerivedFiles(store, ledger, lock).write()
    integers = {name: np.array([each[name] for each in changed], np.int64) for name in _AT_THE_END}
    left = [
        render_intents(tuple(each for each in ledger.state(row).intents if not isinstance(each, Truncation)))
        for row in rows
    ]
    ledger.correct(np.array(rows, np.int64), {**integers, "intent": left})
    reach("truncate.finished")


def _cut_files(store: Store, state: LogState, lock: WriterLock) -> dict[str, int]:
    """Carry out one truncation: lists of losses and forgotten keys, files, epochs; return the row's last values."""
    values = {name: int(getattr(state, name)) for name in _AT_THE_END}
    truncation = _truncation_of(state)
    if truncation is None:
        return values
    directory = store.log_path(state)
    is_emptied = state.active_size_bytes == 0 and (
        state.active_base_offset == truncation.log_start_offset == truncation.offset
    )
    lock.check()
    lower_cleaner_checkpoint(store.log_dir(state.log_dir), state.log, truncation.offset, lock)
    _record_lost(store, state, truncation, from_offset=0 if is_emptied else truncation.offset)
    lower_ends(store, state.topic_id, {state.partition: truncation.offset}, lock)
    if is_emptied:
        _begin_anew(directory, state, lock)
    else:
        cut_back(directory, state.committed_end, lock)
        if not state.active_size_bytes:
            add_empty_segment(directory, state.active_base_offset, lock.token, lock)
    if state.log_end_offset < truncation.offset:
        values |= _fill_up(state, directory, truncation, lock)
    reach("truncate.filled")
    if not is_emptied:
        # Batches of v0 and v1 have no epoch: what fills the log up above them is of the new one.
        has_epoch = epoch_below(directory, truncation.offset) is not None
        begin_epoch(directory, state.leader_epoch, truncation.offset if has_epoch else state.log_end_offset, lock)
    reach("truncate.epochs")
    return values


def _truncation_of(state: LogState) -> Truncation | None:
    return next((each for each in state.intents if isinstance(each, Truncation)), None)


def _record_lost(store: Store, state: LogState, truncation: Truncation, from_offset: int) -> None:
    """Record offsets lost with a batch that crossed the truncation offset; drop lost ranges above it."""
    first, offset = truncation.lost_from, truncation.offset
    gap = LostRange(
        topic=state.topic,
        partition=state.partition,
        first_offset=first,
        last_offset=offset - 1,
        file=state.log.directory_name,
        reason=f"truncated to offset {offset}, with the batch that reaches across it",
        found_ms=truncation.began_ms,
    )
    table = LostRangeTable(store.root / "control" / "lost_ranges")
    table.truncate(state.topic, state.partition, from_offset, gap if first < offset else None)


def _fill_up(state: LogState, directory: Path, truncation: Truncation, lock: WriterLock) -> dict[str, int]:
    """Fill a log up to its end with an empty batch; return the row's new values."""
    epoch = epoch_below(directory, truncation.offset)
    batch = pack_empty_batch(
        state.log_end_offset, truncation.offset - 1, state.leader_epoch if epoch is None else epoch
    )
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
    return {
        "log_start_offset": start,
        "log_end_offset": truncation.offset,
        "recovery_point": truncation.offset if is_flushed else max(state.recovery_point, start),
        "active_size_bytes": state.active_size_bytes + len(batch),
    }


def _begin_anew(directory: Path, state: LogState, lock: WriterLock) -> None:
    """Replace all segments by an empty one at the log's end, under the log's leader epoch."""
    mark_deleted(directory, lambda _base: True, lock)
    drop_deleted(directory, [each.name for each in list_deleted(directory)])
    add_empty_segment(directory, state.log_end_offset, lock.token, lock)
    with storage_errors(directory):
        epochs = render_leader_epochs([(state.leader_epoch, state.log_end_offset)])
        replace_file(lock, directory / EPOCHS_NAME, epochs)
