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
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.sink.config import log_dir_problem
from sparklog.sink.ledger.intents import Copy, Move, future_name, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import WrittenStore
from sparklog.sink.opening.finish_intents import clear_directories, finish_directories, remaining_intents
from sparklog.sink.store.log_dirs import check_log_dirs, check_root, require_online
from sparklog.sink.store.set_aside import remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.hold_log import wait_for_tasks
from sparklog.storage_core.errors import InvalidConfigError, LogDirOfflineError, StorageError, UnknownTopicError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.names import CLEANED, DELETED, LOG, SWAP, segment_file_name
from sparklog.storage_core.storage.copy_directory import copy_directory
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition, set_aside_name

__all__ = ["MovePlan", "move_log", "plan_move"]

logger = logging.getLogger(__name__)

_LONGEST_NAME = 255
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
    name = _known_name(store, names, target)
    if name == state.log_dir:
        raise InvalidConfigError(f"the log lies there already: log={log} log_dir={store.log_dir(name)}")
    offline = check_log_dirs(store, [each for each in states.values() if each.log_dir in (state.log_dir, name)])
    require_online(store, [state], offline)
    if name in offline:
        raise LogDirOfflineError(f"log directory is offline: log_dir={store.log_dir(name)} reason={offline[name]}")
    _check_place(store, name, names)
    _check_target(store, log, name)
    plan = MovePlan(
        log=log,
        state=state,
        source=store.log_path(state),
        target=name,
        sizes=_sizes(store.log_path(state), state),
        is_new=not (store.log_dir(name) / "meta.properties").exists(),
    )
    _check_room(store.log_dir(name), plan.size_bytes)
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


def _known_name(store: Store, names: list[str], target: str) -> str:
    """Return the ledger's name of a log directory, else the given one."""
    wanted = os.path.realpath(store.log_dir(target))
    return next((name for name in names if os.path.realpath(store.log_dir(name)) == wanted), target)


def _check_place(store: Store, name: str, names: list[str]) -> None:
    """Refuse a new log directory that overlaps the store's own folders or another log directory."""
    if name in names:
        return
    problem = log_dir_problem(store.root, name)
    if problem is not None:
        raise InvalidConfigError(problem)
    root = Path(os.path.realpath(store.log_dir(name)))
    for other in (*names, "quarantine"):
        path = Path(os.path.realpath(store.log_dir(other)))
        if root.is_relative_to(path) or path.is_relative_to(root):
            raise InvalidConfigError(f"one folder would lie in the other: log_dir={store.log_dir(name)} path={path}")


def _check_target(store: Store, log: TopicPartition, name: str) -> None:
    root = store.log_dir(name)
    if len(set_aside_name(log, "0" * 32, "future")) > _LONGEST_NAME:
        raise InvalidConfigError(f"the topic's name is too long to move a log of it: topic={log.topic}")
    with storage_errors(root):
        if (root / log.directory_name).exists():
            raise InvalidConfigError(f"a directory of that name is there already: path={root / log.directory_name}")
        if not root.exists():
            return
        is_empty = root.is_dir() and set(os.listdir(root)) <= {"meta.properties.tmp"}  # an orphan of a crash
        if not (root / "meta.properties").exists() and not is_empty:
            raise InvalidConfigError(f"neither a log directory nor an empty folder: log_dir={root}")
    problem = check_root(store, name) if (root / "meta.properties").exists() else None
    if problem is not None:
        raise InvalidConfigError(f"the log can't move there: log_dir={root} reason={problem}")


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


def _check_room(root: Path, size_bytes: int) -> None:
    existing = next(each for each in (root, *root.absolute().parents) if each.exists())
    with storage_errors(root):
        free = shutil.disk_usage(existing).free
    if free < size_bytes:
        raise StorageError(f"no space left on the disk: log_dir={root} needed={size_bytes} free={free}")
