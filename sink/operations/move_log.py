"""Moves a log of a store to another log directory, by a `-future` directory as a broker does.

| step | done | killed after it: the log is | the next opening |
|---|---|---|---|
| 1 | ledger: the log is being copied, in one commit (`move.intended`) | where it was | clears that |
| 2 | committed bytes copied to `<log>.<id>-future` on the target, all synced | where it was | removes the copy |
| 3 | ledger: the log lies on the target, in one commit | the `-future` directory, complete | does 4 to 7 |
| 4 | `-future` renamed to the log's name, root synced | on the target | does 5 to 7 |
| 5 | the old directory renamed to `-delete`, root synced | on the target | does 6 and 7 |
| 6 | the old directory removed, checkpoint files of both roots written | on the target | does 7 |
| 7 | ledger: nothing is left to do, in one commit | on the target | |

The commit (3) comes before the names: otherwise a crash would leave two directories with the log's name until the next
opening. Between 3 and 4 readers find the log under its `-future` name. The new directory gets its name before the old
one loses it (4, 5): after a crash in between a broker finds the log twice and refuses to start; in the reverse order it
would find none, and begin an empty log.

Source: Kafka LogManager.replaceCurrentWithFutureLog; KIP-113.
"""

import logging
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.intents import Copy, Move, future_name, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import WrittenStore
from sparklog.sink.opening.finish_intents import clear_directories, finish_directories, remaining_intents
from sparklog.sink.store.log_dirs import check_log_dirs, require_online
from sparklog.sink.store.new_log_place import check_new_log, check_rooms, known_log_dir
from sparklog.sink.store.set_aside import remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.hold_log import wait_for_tasks
from sparklog.storage_core.errors import InvalidConfigError, LogDirOfflineError, StorageError, UnknownTopicError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.names import CLEANED, DELETED, LOG, SWAP, segment_file_name
from sparklog.storage_core.storage.copy_directory import copy_directory
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["MovePlan", "move_log", "plan_move"]

logger = logging.getLogger(__name__)

_LEFT_BEHIND = (CLEANED, DELETED, ".tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Plan of a log's move.

    Attributes:
        source, target: log directories, as the ledger names them.
        sizes: bytes to copy of each file.
        is_new: whether the target is not a log directory yet.
    """

    log: TopicPartition
    state: LogState
    source: Path
    target: str
    sizes: dict[str, int]
    is_new: bool

    @property
    def size_bytes(self) -> int:
        """Bytes to copy."""
        return sum(self.sizes.values())


def plan_move(store: Store, ledger: Ledger, log: TopicPartition, target: str) -> MovePlan:
    """Plan the move of a log; changes nothing.

    Args:
        target: log directory, relative to the store or absolute.

    Raises:
        UnknownTopicError: the store has no such log.
        InvalidConfigError: it can't move there; the message has the reason.
        LogDirOfflineError: one of the two log directories is offline.
        StorageError: too little room on the disk.
    """
    states = ledger.states()
    state = states.get(log)
    if state is None:
        raise UnknownTopicError(f"no such log in the ledger: log={log.topic}:{log.partition}")
    names = sorted({each.log_dir for each in states.values()})
    name = known_log_dir(store, names, target)
    if name == state.log_dir:
        raise InvalidConfigError(f"the log lies there already: log={log} log_dir={store.log_dir(name)}")
    offline = check_log_dirs(store, [each for each in states.values() if each.log_dir in (state.log_dir, name)])
    require_online(store, [state], offline)
    if name in offline:
        raise LogDirOfflineError(f"log directory is offline: log_dir={store.log_dir(name)} reason={offline[name]}")
    check_new_log(store, log, name)
    plan = MovePlan(
        log=log,
        state=state,
        source=store.log_path(state),
        target=name,
        sizes=_sizes(store.log_path(state), state),
        is_new=not (store.log_dir(name) / "meta.properties").exists(),
    )
    check_rooms([(store.log_dir(name), plan.size_bytes)])
    return plan


def move_log(written: WrittenStore, log: TopicPartition, target: str) -> MovePlan:
    """Move a log; return the plan that was carried out.

    Raises:
        StoreLockedError: a task of a dead maintenance run still holds the log; nothing was changed.
        LogStorageError: as `plan_move`; or the copy failed, and the log is where it was.
        CommitStateUnknownError: the ledger's folder failed; the next opening decides.
    """
    store, ledger, lock = written.store, written.ledger, written.lock
    wait_for_tasks([plan_move(store, ledger, log, target).source])
    plan = plan_move(store, ledger, log, target)  # again: the task may have replaced files
    store.prepare_log_dirs((plan.target,), lock)
    lock.roots.take(store.log_dir(plan.target), lock, by_force=False)
    row, intents = np.array([ledger.rows[log]]), plan.state.intents
    copy = Copy(target=plan.target, unique_id=uuid.uuid4().hex)
    ledger.correct(row, {"intent": [render_intents((*intents, copy))]})
    reach("move.intended")
    try:
        copy_directory(plan.source, store.log_dir(plan.target) / future_name(log, copy), plan.sizes, lock)
    except StorageError:
        _finish(written, log)
        raise
    reach("move.copied")
    move = Move(source=plan.state.log_dir, unique_id=copy.unique_id)
    ledger.correct(row, {"log_dir": [plan.target], "intent": [render_intents((*intents, move))]})
    reach("move.committed")
    _finish(written, log)
    logger.info("Moved a log log=%s from=%s to=%s bytes=%d", log, move.source, plan.target, plan.size_bytes)
    return plan


def _finish(written: WrittenStore, log: TopicPartition) -> None:
    """Name and remove directories by the log's intent, and clear it."""
    store, ledger = written.store, written.ledger
    remove_deleted(finish_directories(store, ledger, written.lock), lambda _path: reach("move.deleted"))
    row = ledger.rows[log]
    left = remaining_intents(store, ledger, clear_directories(store, ledger, written.lock)).get(row)
    if left is not None:
        ledger.correct(np.array([row]), {"intent": [left]})


def _sizes(directory: Path, state: LogState) -> dict[str, int]:
    """Return the bytes to copy of each file; those of the active segment from the ledger."""
    with storage_errors(directory), os.scandir(directory) as entries:
        found = sorted((entry.name, entry.is_file(), entry.stat().st_size) for entry in entries)
    for name, is_file, _ in found:
        if not is_file or name.endswith(SWAP):
            raise InvalidConfigError(
                f"a log with an unfinished replacement, or a folder in it, does not move: path={directory / name};"
                " repair it first"
            )
    active = segment_file_name(state.active_base_offset, LOG)
    return {
        name: state.active_size_bytes if name == active else size_bytes
        for name, _, size_bytes in found
        if not name.endswith(_LEFT_BEHIND)
    }
