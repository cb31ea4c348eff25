"""Looks at a store's log directories when it is opened for writing: which are offline, and what does not belong there.

What is found offline is written down in `control/offline-log-dirs.json`. Nobody could undo there what a crash had
left, and the store may be closed well many times before the disk is back. So the note, not the lock's signature, says
that its logs need a close look then.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.finish_pending import finish_pending
from sparklog.sink.opening.pending_work import read_pending, write_pending
from sparklog.sink.store.control_file import ControlFile
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import check_log_dirs, check_root, require_online, states_online
from sparklog.sink.store.set_aside import find_deleted, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError, LogDirOfflineError, StorageError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition, parse_directory_name, parse_set_aside_name

__all__ = ["LogDirs", "Remedy", "noted_offline", "open_log_dirs", "take_log_dirs", "take_roots"]

logger = logging.getLogger(__name__)

Remedy = Literal["look", "renew"]
"""What the logs of a directory need that was offline: a close look, or new inodes behind a lock that was taken."""

_FOLDERS: Final = ("remote-log-index-cache",)
_FILE: Final = ControlFile(
    name="offline-log-dirs.json",
    what="the list of offline log directories is",
    remedy='restore it from a copy, or write {"<log_dir>": "renew"} into it for each that was offline',
    version=None,
)


@dataclass(slots=True)
class LogDirs:
    """The log directories of an open store.

    Attributes:
        store: theirs.
        owner: the writer lock of the store.
        offline: why, by name, of those that can't be used.
        returned: those that were offline before, and what their logs need.
    """

    store: Store
    owner: WriterLock
    offline: dict[str, str]
    returned: Mapping[str, Remedy]

    def online(self, states: Mapping[TopicPartition, LogState]) -> dict[TopicPartition, LogState]:
        """Return the logs that can be used."""
        return states_online(states, self.offline)

    def require(self, states: Collection[LogState]) -> None:
        """Refuse to work on logs of which one is offline.

        Raises:
            LogDirOfflineError: it names the directory, the reason and the logs.
        """
        require_online(self.store, states, self.offline)

    def check_again(self, states: Collection[LogState]) -> None:
        """Look whether directories of these logs have failed since; they are offline until the store is opened anew."""
        found = check_log_dirs(self.store, [each for each in states if each.log_dir not in self.offline])
        if found:
            _note(self.store, found, "look", self.owner)
            self.offline.update(found)

    def prepare(self, names: Sequence[str], states: Mapping[TopicPartition, LogState]) -> list[str]:
        """Make those of the configured directories that are no log directories yet; return those that can be used.

        Raises:
            InvalidConfigError: one belongs to another store or broker.
            CorruptFileError: whose one is can't be told.
            StorageError: one can't be made, and the store has no logs yet that would go on without it.
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

    def with_remedy(self, states: Mapping[TopicPartition, LogState], *remedies: Remedy) -> list[TopicPartition]:
        """Return the logs of directories that are back and need one of these."""
        names = {name for name, remedy in self.returned.items() if remedy in remedies}
        return [log for log, state in states.items() if state.log_dir in names]

    def settle(self) -> None:
        """Forget what was offline and is back: its logs have got what they needed."""
        if self.returned:
            notes = _read_notes(self.store)
            kept = {name: each for name, each in notes.items() if name not in self.returned}
            _write_notes(self.store, kept, self.owner)


def take_log_dirs(store: Store, ledger: Ledger, lock: WriterLock) -> dict[str, str]:
    """Take the locks of the log directories that can be used; return why the others can't, by name.

    Raises:
        LogDirOfflineError: none is left.
        InvalidConfigError: another copy of the store has one; nothing was changed.
        StoreLockedError: a broker has one, or another store.
    """
    states = ledger.states()
    offline = check_log_dirs(store, states.values())
    take_roots(store, states.values(), lock, "renew" if lock.owes_renewal else "look", offline)
    if offline and not states_online(states, offline):
        require_online(store, states.values(), offline)
    return offline


def open_log_dirs(store: Store, ledger: Ledger, lock: WriterLock, offline: dict[str, str]) -> LogDirs:
    """Finish what deletions and moves left in log directories that can be used.

    Args:
        store: to open.
        ledger: open for writing.
        lock: the writer lock; its logs in an offline directory will need new inodes where it owes them.
        offline: what `take_log_dirs` has returned.

    Raises:
        InvalidConfigError: a log has two directories, or a folder is no log's.
    """
    states = ledger.states()
    remedy: Remedy = "renew" if lock.owes_renewal else "look"
    finish_pending(store, ledger, lock)
    roots = {
        name: Path(os.path.realpath(store.log_dir(name)))  # one folder may have several names
        for name in {state.log_dir for state in states.values()} - set(offline)
    }
    homes = {log: roots.get(state.log_dir, store.log_dir(state.log_dir)) for log, state in states.items()}
    problems = [problem for root in sorted(set(roots.values())) for problem in _entry_problems(root, homes)]
    if problems:
        raise InvalidConfigError(*problems)
    _tidy(store, ledger, set(roots.values()), lock)
    _note(store, offline, remedy, lock)
    returned = {name: each for name, each in _read_notes(store).items() if name not in offline}
    return LogDirs(store, lock, offline, returned)


def take_roots(
    store: Store, states: Collection[LogState], lock: WriterLock, remedy: Remedy, offline: dict[str, str]
) -> None:
    """Take the locks of all log directories that a store has, until the writer lock is given back.

    Args:
        store: theirs.
        states: of its logs.
        lock: the writer lock.
        remedy: as `open_log_dirs` has it; "renew" takes them from a writer that can't be stopped.
        offline: directories to leave alone; gets those whose locks can't be had because of their disks.

    Raises:
        InvalidConfigError: another copy of the store has one; nothing was changed.
        StoreLockedError: a broker has one, or another store.
    """
    pending = {name for name in read_pending(store).log_dirs if check_root(store, name) is None}  # disks may be away
    names = sorted(({state.log_dir for state in states} | pending) - set(offline))
    store.refuse_claimed(names)
    notes = _read_notes(store)
    for name in names:
        try:
            lock.roots.take(store.log_dir(name), lock, by_force="renew" in (remedy, notes.get(name)))
        except StorageError as error:
            offline[name] = str(error)


def _tidy(store: Store, ledger: Ledger, roots: Set[Path], lock: WriterLock) -> None:
    """Remove what is set aside, and finish directories that a deletion or a move has changed.

    In those the ledger may have no logs any more, and nobody else would write their checkpoint files. What can't be
    done keeps nobody from working: the next opening tries again.
    """
    work = read_pending(store)
    changed = {name for name in work.roots if check_root(store, name) is None}
    derived = DerivedFiles(store, ledger, lock)
    lock.check()
    for root in sorted(roots):
        store.sign_root(root, lock)
        _try(partial(_clear, root))
    done = {name for name in sorted(changed) if _try(partial(_finish_root, store, derived, name))}
    if done:
        write_pending(store, replace(work, roots=tuple(name for name in work.roots if name not in done)), lock)


def _finish_root(store: Store, derived: DerivedFiles, name: str) -> None:
    _clear(store.log_dir(name))
    derived.write_roots({name})


def _clear(root: Path) -> None:
    remove_deleted(find_deleted(root))


def _try(work: Callable[[], None]) -> bool:
    try:
        work()
    except StorageError as error:
        logger.warning("A log directory was not tidied, the next opening tries again: %s", error)
        return False
    return True


def _entry_problems(root: Path, homes: Mapping[TopicPartition, Path]) -> Iterator[str]:
    """Yield what a broker refuses to start on, and so does Sparklog: nobody can tell which of two is the log."""
    with storage_errors(root), os.scandir(root) as entries:
        names = sorted(each.name for each in entries if each.is_dir())
    for name in names:
        log = parse_directory_name(name)
        if log is None and parse_set_aside_name(name) is None and name not in _FOLDERS:
            yield f"a folder among logs is no topic-partition: path={root / name}; move it away"
        home = homes.get(log) if log is not None else None
        if log is not None and home is not None and (root, name) != (home, log.directory_name):
            yield (
                f"a log has two directories: log={log} path={root / name} the ledger names"
                f" {home / log.directory_name}; move the other one away"
            )


def _note(store: Store, offline: Mapping[str, str], remedy: Remedy, owner: Owner) -> None:
    notes = _read_notes(store)
    for name, reason in offline.items():
        logger.warning("A log directory is offline log_dir=%s reason=%s", store.log_dir(name), reason)
        notes[name] = "renew" if remedy == "renew" else notes.get(name, remedy)
    _write_notes(store, notes, owner)


def noted_offline(store: Store) -> frozenset[str]:
    """Return the log directories that were offline, and whose logs were not looked at since."""
    return frozenset(_read_notes(store))


def _read_notes(store: Store) -> dict[str, Remedy]:
    return _FILE.read(store, _remedies) or {}


def _remedies(content: dict[str, Any]) -> dict[str, Remedy]:
    return {str(name): "look" if remedy == "look" else "renew" for name, remedy in content.items()}


def _write_notes(store: Store, notes: Mapping[str, Remedy], owner: Owner) -> None:
    if notes != _read_notes(store):
        _FILE.replace(store, notes, owner)
