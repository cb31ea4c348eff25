"""Checks a store's log directories when it is opened for writing: finds offline ones, refuses foreign folders.

Ledger rows of offline logs record the crash recovery that they owe. The store may be closed well many times before the
disk is back, so the row, not the lock's signature, shows that a log needs recovery then.
"""

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LedgerRows, LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.finish_intents import (
    clear_directories,
    finish_directories,
    named_log_dirs,
    remaining_intents,
)
from sparklog.sink.store.log_dirs import check_log_dirs, check_root, require_online, states_online
from sparklog.sink.store.set_aside import find_deleted, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError, LogDirOfflineError, StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition, parse_directory_name, parse_set_aside_name

__all__ = ["LogDirs", "open_log_dirs", "take_log_dirs", "take_roots"]

logger = logging.getLogger(__name__)

_Remedy = Literal["look", "renew"]
"""Needs of logs whose directory was offline: `look` for recovery, `renew` for new inodes after a taking by force."""

_FOLDERS: Final = ("remote-log-index-cache",)


@dataclass(slots=True)
class LogDirs:
    """The log directories of an open store.

    Attributes:
        offline: unusable ones: the reason, by name.
        remedy: what logs in them owe.
        cleared: those without unfinished deletions and moves.
    """

    store: Store
    ledger: Ledger
    owner: WriterLock
    offline: dict[str, str]
    remedy: _Remedy = "look"
    cleared: Collection[str] = ()

    def online(self, states: Mapping[TopicPartition, LogState]) -> dict[TopicPartition, LogState]:
        """Return the logs that can be used."""
        return states_online(states, self.offline)

    def require(self, states: Collection[LogState]) -> None:
        """Refuse logs if one of them is offline.

        Raises:
            LogDirOfflineError: it names the directory, the reason and the logs.
        """
        require_online(self.store, states, self.offline)

    def check_again(self, states: Collection[LogState]) -> None:
        """Note directories of these logs that have failed since; they are offline until the next opening."""
        found = check_log_dirs(self.store, [each for each in states if each.log_dir not in self.offline])
        if found:
            _warn(self.store, found)
            self.offline.update(found)
            self.remedy = "look"
            self.note_offline()

    def prepare(self, names: Sequence[str], states: Mapping[TopicPartition, LogState]) -> list[str]:
        """Make configured log directories that do not exist yet; return the usable ones.

        Raises:
            InvalidConfigError: one belongs to another store or broker.
            CorruptFileError: the `meta.properties` of one is unreadable, so its owner is unknown.
            StorageError: one can't be made, and the store has no logs yet that could continue without it.
        """
        usable, problems = [], dict(self.offline)
        for name in (each for each in names if each not in self.offline):
            try:
                self.store.prepare_log_dirs((name,), self.owner)
                self.owner.roots.take(self.store.log_dir(name), self.owner, by_force=self.owner.owes_renewal)
                problem = check_root(self.store, name)
            except StorageError as error:
                if not states:
                    raise
                problem = str(error)
            except CorruptFileError as error:
                raise CorruptFileError(f"{error}: log_dir={self.store.log_dir(name)}") from error
            if problem is None:
                usable.append(name)
            else:
                problems[name] = problem
                logger.warning("A log directory can't be used log_dir=%s reason=%s", self.store.log_dir(name), problem)
        if not usable and not states:
            reasons = "; ".join(f"log_dir={self.store.log_dir(name)} reason={problems[name]}" for name in names)
            raise LogDirOfflineError(f"no log directory can be used: {reasons}")
        return usable

    def with_remedy(self, states: Mapping[TopicPartition, LogState], *remedies: _Remedy) -> list[TopicPartition]:
        """Return the logs of usable directories that owe one of these."""
        return [log for log, state in self.online(states).items() if state.owes in remedies]

    def note_offline(self) -> None:
        """Commit what logs of offline directories owe."""
        owes = {
            row: "renew" if self.remedy == "renew" else state.owes or "look"
            for row, state in enumerate(self.ledger.all_states())
            if state.log_dir in self.offline
        }
        self._commit(owes, {})

    def commit_finished(self) -> None:
        """Commit that logs of usable directories owe nothing any more, and that their deletions and moves are done.

        This removes the rows of deleted logs, so other rows may get new numbers.
        """
        states = self.ledger.all_states()
        owes = dict.fromkeys((row for row, each in enumerate(states) if each.log_dir not in self.offline), "")
        self._commit(owes, remaining_intents(self.store, self.ledger, self.cleared))
        reach("open.settled")

    def _commit(self, owes: Mapping[int, str], intents: Mapping[int, str | None]) -> None:
        states = self.ledger.all_states()
        changed = {row: owed for row, owed in owes.items() if owed != states[row].owes}
        left = {row: intent for row, intent in intents.items() if intent is not None}
        gone = np.array([row for row, intent in intents.items() if intent is None], np.int64)

        def change(held: LedgerRows) -> LedgerRows:
            for name, texts in {"owes": changed, "intent": left}.items():
                held = held.with_values(np.array(list(texts), np.int64), {name: list(texts.values())})
            return held.without(gone)

        if changed or intents:
            self.ledger.change(change, self.owner)


def take_log_dirs(store: Store, ledger: Ledger, lock: WriterLock) -> dict[str, str]:
    """Take the locks of the usable log directories; return the reasons of the offline ones, by name.

    Raises:
        LogDirOfflineError: none is usable.
        InvalidConfigError: another copy of the store has one; nothing was changed.
        StoreLockedError: a broker has one, or another store.
    """
    states = ledger.states()
    offline = check_log_dirs(store, states.values())
    take_roots(store, ledger, lock, offline)
    if offline and not states_online(states, offline):
        require_online(store, states.values(), offline)
    return offline


def open_log_dirs(store: Store, ledger: Ledger, lock: WriterLock, offline: dict[str, str]) -> LogDirs:
    """Finish deletions and moves in the usable log directories.

    Args:
        lock: the writer lock; if it owes new inodes, logs of offline directories owe them, too.
        offline: result of `take_log_dirs`.

    Raises:
        InvalidConfigError: a log has two directories, or a folder is not a log.
    """
    finish_directories(store, ledger, lock)
    states = ledger.states()
    roots = {
        name: Path(os.path.realpath(store.log_dir(name)))  # one folder may have several names
        for name in {state.log_dir for state in states.values()} - set(offline)
    }
    homes = {log: roots.get(state.log_dir, store.log_dir(state.log_dir)) for log, state in states.items()}
    problems = [problem for root in sorted(set(roots.values())) for problem in _entry_problems(root, homes)]
    if problems:
        raise InvalidConfigError(*problems)
    lock.check()
    for root in sorted(set(roots.values())):
        store.sign_root(root, lock)
        try:
            remove_deleted(find_deleted(root))
        except StorageError as error:
            logger.warning("A log directory was not tidied, the next opening retries: %s", error)
    _warn(store, offline)
    cleared = clear_directories(store, ledger, lock)
    return LogDirs(store, ledger, lock, offline, "renew" if lock.owes_renewal else "look", cleared)


def take_roots(store: Store, ledger: Ledger, lock: WriterLock, offline: dict[str, str]) -> None:
    """Take the locks of all log directories of a store, until the writer lock is released.

    Args:
        lock: the writer lock; if it owes new inodes the locks are taken from a writer that can't be stopped.
        offline: directories to skip; gets those whose disks refuse the lock.

    Raises:
        InvalidConfigError: another copy of the store has one; nothing was changed.
        StoreLockedError: a broker has one, or another store.
    """
    unfinished = {name for name in named_log_dirs(ledger) if check_root(store, name) is None}  # disks may be away
    names = sorted(({state.log_dir for state in ledger.states().values()} | unfinished) - set(offline))
    store.refuse_claimed(names)
    forced = {state.log_dir for state in ledger.all_states() if state.owes == "renew"}
    for name in names:
        try:
            lock.roots.take(store.log_dir(name), lock, by_force=lock.owes_renewal or name in forced)
        except StorageError as error:
            offline[name] = str(error)


def _entry_problems(root: Path, homes: Mapping[TopicPartition, Path]) -> Iterator[str]:
    """Yield folders on which a broker, and so Sparklog, refuses to start: foreign ones, and second ones of a log."""
    with storage_errors(root), os.scandir(root) as entries:
        names = sorted(each.name for each in entries if each.is_dir())
    for name in names:
        log = parse_directory_name(name)
        if log is None and parse_set_aside_name(name) is None and name not in _FOLDERS:
            yield f"a folder among logs is not a topic-partition: path={root / name}; move it away"
        home = homes.get(log) if log is not None else None
        if log is not None and home is not None and (root, name) != (home, log.directory_name):
            yield (
                f"a log has two directories: log={log} path={root / name} the ledger names"
                f" {home / log.directory_name}; move the other one away"
            )


def _warn(store: Store, offline: Mapping[str, str]) -> None:
    for name, reason in offline.items():
        logger.warning("A log directory is offline log_dir=%s reason=%s", store.log_dir(name), reason)
