"""Repairs a store: mends its logs first, then opens it by the steps of every opening, and signs off.

A repair must mend what an opening refuses, so some steps come before `opening/open_store.py`, in the order below; the
opening repeats each of them on the mended logs.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.signed_off_version import sign_off_version
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import both_locks
from sparklog.sink.opening.clean_end import surplus_files
from sparklog.sink.opening.finish_intents import finish_directories
from sparklog.sink.opening.open_log_dirs import take_roots
from sparklog.sink.opening.open_store import OpenedStore, Opening, open_store
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import find_unreadable, states_online
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.hold_log import wait_for_tasks
from sparklog.storage_core.errors import (
    LedgerDamagedError,
    LogStorageError,
    StorageError,
    StoreLockedError,
    WriterFencedError,
)
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.inspect.repair.plan import LogRepair
from sparklog.storage_core.inspect.repair.repair_log import keep_bytes
from sparklog.storage_core.inspect.verify.verify_root import META_FILE
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.owned_names import remove_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["MendedStore", "repair_store"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MendedStore:
    """A store in repair, under both of its locks."""

    store: Store
    ledger: Ledger
    lock: WriterLock

    def correct_ledger(self, repairs: Iterable[tuple[TopicPartition, LogRepair]], now_ms: int) -> None:
        """Commit the sizes and starts of repaired logs."""
        changes: dict[int, tuple[int, int]] = {}
        for log, repair in repairs:
            row = self.ledger.rows[log]
            state = self.ledger.state(row)
            size, start = state.active_size_bytes, state.log_start_offset
            if repair.checks_size:
                path = self.store.log_path(state) / segment_file_name(state.active_base_offset, LOG)
                with storage_errors(path):
                    size = min(size, path.stat().st_size)
            if repair.log_start_offset is not None:
                start = repair.log_start_offset
            if (size, start) != (state.active_size_bytes, state.log_start_offset):
                changes[row] = (size, start)
        if not changes:
            return
        sizes, starts = zip(*changes.values(), strict=True)
        values = {
            "active_size_bytes": np.array(sizes, np.int64),
            "log_start_offset": np.array(starts, np.int64),
            "updated_ms": np.full(len(changes), now_ms, np.int64),
        }
        self.ledger.correct(np.array(list(changes), np.int64), values)
        reach("repair.committed")

    def write_roots(self, files: Collection[tuple[str, str]]) -> None:
        """Write the files of all roots from the ledger.

        Args:
            files: (name of the root, name of the file) of wrong ones; without any nothing is written.
        """
        if not files:
            return
        states = self.ledger.states().values()
        names = tuple(sorted({state.log_dir for state in states} - set(find_unreadable(self.store, states))))
        self.lock.check()
        for root in map(self.store.log_dir, names):
            if (root.name, META_FILE) in files:
                with storage_errors(root):
                    remove_file(self.lock, root / META_FILE)
        self.store.prepare_log_dirs(names, self.lock)
        DerivedFiles(self.store, self.ledger, self.lock).write()


def repair_store(root: Path, kept_in: Path, mend: Callable[[MendedStore], bool]) -> Collection[TopicPartition]:
    """Mend a store's logs, then open it.

    Args:
        kept_in: folder for copies of bytes past committed ends after a clean end.
        mend: mends the logs, and returns whether it reported damage that it left.

    Returns:
        The logs that were cut back to their committed ends. Empty if reported damage prevents the opening; then the
        next opening recovers as after a crash.

    Raises:
        StoreLockedError: a writer, a maintenance run or a broker holds the store, or a task of a dead maintenance run
            still holds a log.
        LogStorageError: the disk refused, finished steps stay; or the opening refuses the mended store for a problem
            that no repair mends, as two directories of one log.
    """
    with both_locks(root) as (lock, maintenance):
        store = Store.find(root)
        mended = _begin(store, kept_in, lock, maintenance)
        is_left = mend(mended)
        # `_begin` has dropped torn ends of the ledger and of the lost ranges.
        opened = _try_to_open(store, Opening(lock=lock, follows_crash=False, is_mended=True), is_reported=is_left)
        if opened is None:
            return ()
        # No `finish_cleanings`: `mend` has finished replacements of segments, or left a damaged one.
        sign_off_version(store.ledger_path, lock, opened.ledger.version)
        maintenance.sign_off()
        lock.sign_off()
        return opened.torn


def _begin(store: Store, kept_in: Path, lock: WriterLock, maintenance: WriterLock) -> MendedStore:
    """Do the steps before logs are mended."""
    # Every later step relies on the ledger.
    follows_crash = lock.follows_crash or maintenance.follows_crash
    ledger = Ledger.open_for_writing(store.ledger_path, lock, follows_crash=follows_crash)
    states = ledger.states()
    # All readable directories: unlike an opening, a repair also mends those with a damaged meta.properties.
    offline = find_unreadable(store, states.values())
    take_roots(store, ledger, lock, offline)
    online = states_online(states, offline)
    # Before any change: a suspended task of a dead run could later rename mended files.
    for state in online.values():
        with contextlib.suppress(StorageError):  # such a log is not mended either
            wait_for_tasks([store.log_path(state)])
    # Before `begin`: after it the next opening would truncate these bytes.
    if not lock.follows_crash:
        _keep_surplus(store, online, kept_in)
    # Before logs are mended: the former writer could still commit to them.
    if lock.owes_renewal:
        ledger.fence()
    # Before the first change: a crash after it may leave bytes past committed ends, and a torn entry.
    for each in (lock, maintenance):
        each.begin()
    # Before the first check, which reads the lost ranges.
    LostRangeTable(store.root / "control" / "lost_ranges").drop_torn(lock)
    # Before the first check: a moved log may not have its name yet, and would be mended as a missing one.
    finish_directories(store, ledger, lock)
    return MendedStore(store, ledger, lock)


def _try_to_open(store: Store, opening: Opening, *, is_reported: bool) -> OpenedStore | None:
    try:
        return open_store(store, opening)
    except (WriterFencedError, LedgerDamagedError, StoreLockedError):
        raise
    except LogStorageError as error:
        if not is_reported:
            raise
        logger.warning("The store can't be opened with the remaining damage: %s", error)
        return None


def _keep_surplus(store: Store, states: Mapping[TopicPartition, LogState], kept_in: Path) -> None:
    """Copy bytes past committed ends after a clean end before they are truncated: a newer ledger may have them."""
    for log, state in states.items():
        found: list[tuple[Path, int, int]] = []
        with contextlib.suppress(StorageError):  # such a log is not truncated either
            found = list(surplus_files(store, {log: state}))
        for path, start, end in found:
            keep_bytes(path, start, end, kept_in / path.parent.name / f"{path.name}.{start}-{end}")
            reach("repair.surplus")
