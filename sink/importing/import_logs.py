"""Imports planned logs into a store, all of them in one commit.

| step | done | killed after it: the logs | the next opening |
|---|---|---|---|
| 1 | ledger: rows that are no logs yet, in one commit (`import.intended`) | do not exist | drops the rows |
| 2 | files placed in `<log>.<id>-future`, all synced (`import.copied`) | do not exist | removes them, drops the rows |
| 3 | topics' settings (`import.settings`), forgotten keys expected (`import.expected`) | the same | takes both back |
| 4 | ledger: the rows are logs, in one commit (`import.committed`) | are complete in `-future` | does 5 and 6 |
| 5 | directories get their names, roots synced, checkpoint files written | are there | does 6 |
| 6 | ledger: nothing is left to do, in one commit (`import.finished`) | are there | |

The cut that is due is written right before 4. What ends an import before the commit is followed by what the next
opening would do, as far as the disk lets it.

The broker's files are only read. One that gets a second name is never written by the store: it is a closed segment.
"""

import logging
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparklog.sink.erasure.request_files import expect_again
from sparklog.sink.importing.log_files import place_files
from sparklog.sink.importing.plan_import import ImportedLog, ImportPlan
from sparklog.sink.ledger.intents import Import, Move, future_name, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LedgerRows
from sparklog.sink.locks.signed_off_version import sign_off_version
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import WRITER_LOCK, WrittenStore, both_locks
from sparklog.sink.opening.finish_intents import (
    clear_directories,
    expect_undone_no_more,
    finish_directories,
    remaining_intents,
)
from sparklog.sink.past.write_cuts import write_due_cut
from sparklog.sink.store.set_aside import remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import keep_topic_configs
from sparklog.storage_core.checkpoint.meta_properties import parse_meta_properties
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import (
    make_directory,
    storage_errors,
    sync_directories,
    sync_directory,
    sync_files,
)
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import remove_unique, rename
from sparklog.storage_core.storage.share_file import Sharing
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["NEW_LOG_DIRS", "import_logs", "make_store", "remove_new_store"]

logger = logging.getLogger(__name__)

NEW_LOG_DIRS = ("logs",)
"""Log directories of a store that an import makes."""

_THREADS = 8
"""They mostly wait for the disk."""


def make_store(root: Path) -> None:
    """Make a store without logs, unless there is one.

    Raises:
        InvalidConfigError: the folder holds something else.
        StoreLockedError: a sink holds it.
    """
    Store.check_folder(root, NEW_LOG_DIRS)
    if (root / "store.properties").exists():
        return
    with storage_errors(root):
        make_directory(root)
    lock = WriterLock.acquire(root / WRITER_LOCK)
    try:
        store = Store.find_or_create(root, NEW_LOG_DIRS, lock)
        lock.begin()
        store.prepare_log_dirs(NEW_LOG_DIRS, lock)
        sign_off_version(store.ledger_path, lock, Ledger.open(store.ledger_path).version)
        lock.sign_off()
    finally:
        lock.release()


def remove_new_store(root: Path, log_dir: str | None) -> None:
    """Remove a folder that was not there before `make_store`, as long as its store has no log.

    What the disk refuses, and what another process holds, stays, and so does a store that a log directory outside of
    it names, which would be refused to every other one: the next import goes on with an empty store.

    Args:
        log_dir: that the import was to take; None for those of a new store.
    """
    gone = root.with_name(f"{root.name}.{uuid.uuid4().hex}-delete")
    try:
        if not root.exists():
            return
        with both_locks(root) as (lock, _maintenance), storage_errors(root):
            if (root / "store.properties").exists():
                if Ledger.open(root / "ledger").states():
                    return
                _refuse_named_outside(Store.find(root), log_dir)
            rename(lock, root, gone)
            remove_unique(gone)
            sync_directory(root.parent)
    except LogStorageError as error:
        logger.warning("An empty store is left, the next import goes on with it: path=%s (%s)", root, error)


def _refuse_named_outside(store: Store, log_dir: str | None) -> None:
    path = store.log_dir(log_dir or NEW_LOG_DIRS[0]) / "meta.properties"
    if path.resolve().is_relative_to(store.root.resolve()):
        return
    data = read_if_there(path)
    if data is not None and parse_meta_properties(data)["cluster.id"] == store.store_id:
        raise InvalidConfigError(f"a log directory outside of it has its id: log_dir={path.parent}")


def import_logs(
    written: WrittenStore, plan: ImportPlan, clock: Clock, check: Callable[[], None], *, may_link: bool
) -> set[Sharing]:
    """Import logs; return how closed segments got into the store. The caller keeps brokers away from their folders.

    Args:
        check: called before each segment, in several threads, and before the commit; raises to undo the import.

    Raises:
        StorageError: the disk refused before the commit: the store is as it was; or after it: the next opening goes on.
        CommitStateUnknownError: the ledger's folder failed; the next opening decides.
    """
    store, ledger, lock = written.store, written.ledger, written.lock
    names = sorted({each.state.log_dir for each in plan.logs})
    for name in names:
        store.prepare_log_dirs((name,), lock)
        lock.roots.take(store.log_dir(name), lock, by_force=False)
    intents = {each.state.log: Import(unique_id=uuid.uuid4().hex) for each in plan.logs}
    first = len(ledger.all_states())
    ledger.add([replace(each.state, intent=render_intents((intents[each.state.log],))) for each in plan.logs], lock)
    reach("import.intended")

    try:
        used = _place_all(written, plan, intents, check, may_link=may_link)
        reach("import.copied")
        # The commit comes before gaps in the logs of a topic that the store has: `finish_directories` allows them.
        new = {each.state.topic for each in plan.logs}.difference(plan.settings.staying)
        keep_topic_configs(store, plan.settings.configs, lock, new, plan.settings.others)
        reach("import.settings")
        for topic_id in {each.state.topic_id for each in plan.logs}:
            logs = [each.state for each in plan.logs if each.state.topic_id == topic_id]
            expect_again(store, topic_id, {state.partition: state.log_end_offset for state in logs}, lock)
        reach("import.expected")
        check()
        now_ms = clock.now_ms()  # copying may have taken hours
        write_due_cut(store.root, ledger, lock, now_ms)
    except BaseException:
        _undo(written)
        raise
    moves = [
        render_intents((Move(source=each.state.log_dir, unique_id=intents[each.state.log].unique_id),))
        for each in plan.logs
    ]
    updated = np.full(len(moves), now_ms, np.int64)
    ledger.correct(np.arange(first, first + len(moves)), {"intent": moves, "updated_ms": updated}, now_ms)
    reach("import.committed")
    _finish(written)
    reach("import.finished")
    logger.info("Imported logs count=%d bytes=%d", len(plan.logs), plan.size_bytes)
    return used


def _place_all(
    written: WrittenStore,
    plan: ImportPlan,
    intents: Mapping[TopicPartition, Import],
    check: Callable[[], None],
    *,
    may_link: bool,
) -> set[Sharing]:
    """Place the files of all logs, durably."""
    store = written.store

    def place(each: ImportedLog) -> tuple[Path, set[Sharing]]:
        written.lock.check()
        target = store.log_dir(each.state.log_dir) / future_name(each.state.log, intents[each.state.log])
        return target, place_files(each.files, each.state.topic_id, target, check, may_link=may_link)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="import") as pool:
        placed = list(pool.map(place, plan.logs))
    directories = [directory for directory, _ in placed]
    with storage_errors("log directories"):
        sync_files([path for directory in directories for path in directory.iterdir()])
        sync_directories([*directories, *{directory.parent for directory in directories}])
    return set[Sharing]().union(*(used for _, used in placed))


def _undo(written: WrittenStore) -> None:
    """Remove what an import has made so far; what the disk refuses is left to the next opening."""
    try:
        expect_undone_no_more(written.store, written.ledger, written.lock)
        _finish(written)
    except LogStorageError as error:
        logger.warning("What an import has copied is not removed yet, the next opening does it: %s", error)


def _finish(written: WrittenStore) -> None:
    """Name or remove directories by the rows' intents, and commit what is left of these."""
    store, ledger, lock = written.store, written.ledger, written.lock
    remove_deleted(finish_directories(store, ledger, lock))
    left = remaining_intents(store, ledger, clear_directories(store, ledger, lock))
    gone = np.array([row for row, intent in left.items() if intent is None], np.int64)
    kept = {row: intent for row, intent in left.items() if intent is not None}

    def change(held: LedgerRows) -> LedgerRows:
        return held.with_values(np.array(list(kept), np.int64), {"intent": list(kept.values())}).without(gone)

    if left:
        ledger.change(change, lock)
