"""Finishes deleted topics and moved logs whose ledger rows say that directories are left to be named or to go.

Of a moved log the directory counts that lies where the ledger says: it gets its name if it has not got it yet, and
others are set aside. On a disk that is offline nothing can be done, so that row keeps what it says.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from sparklog.sink.ledger.intents import Move, Truncation, future_name, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.set_aside import find_deleted, remove_deleted, set_aside, stored_topic_id
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import forget_topic_config
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.owned_names import Owner, rename

__all__ = ["clear_directories", "finish_directories", "named_log_dirs", "settled_intents"]

logger = logging.getLogger(__name__)


def named_log_dirs(ledger: Ledger) -> set[str]:
    """Return every log directory in which deletions and moves have something left to do."""
    return {name for state in _unfinished(ledger).values() for name in _log_dirs(state)}


def finish_directories(store: Store, ledger: Ledger, owner: Owner) -> list[Path]:
    """Give moved logs their names, and set the directories aside that are to go; the caller holds the writer lock.

    Returns:
        `-delete` directories that came of it.

    Raises:
        InvalidConfigError: two directories claim to be one log; neither was changed.
        StoreLockedError: a task of a dead maintenance run is still at work on a log that was deleted or moved.
    """
    states = _unfinished(ledger).values()
    for topic in sorted({state.topic for state in states if state.is_deleted}.difference(ledger.topics)):
        _forget_topic(store, topic, owner)
    deleted = []
    for state in states:
        if not state.is_deleted:
            _take_name(store, state, owner)
        for directory in _leftovers(store, ledger, state):
            deleted.append(set_aside(state.log, directory, owner))
            reach("delete-topic.renamed" if state.is_deleted else "move.renamed")
    return deleted


def clear_directories(store: Store, ledger: Ledger, owner: Owner) -> set[str]:
    """Remove what is set aside in the log directories of deletions and moves, and write their checkpoint files.

    In those the ledger may have no logs any more, and nobody else would write the files.

    Returns:
        The log directories where all of that is done; a full disk must not keep the store from being opened.
    """
    done = set()
    derived = DerivedFiles(store, ledger, owner)
    for name in sorted(named_log_dirs(ledger)):
        if check_root(store, name) is not None:
            continue
        try:
            remove_deleted(find_deleted(store.log_dir(name)))
            derived.write_roots({name})
        except StorageError as error:
            logger.warning("A log directory was not tidied, the next opening tries again: %s", error)
        else:
            done.add(name)
    return done


def settled_intents(store: Store, ledger: Ledger, done: Collection[str]) -> Mapping[int, str | None]:
    """Return what is left to do of deletions and moves that are finished: the row's `intent`, None if the row may go.

    Args:
        store: of the logs.
        ledger: its own.
        done: as `clear_directories` has it.
    """
    found: dict[int, str | None] = {}
    for row, state in _unfinished(ledger).items():
        if not _log_dirs(state).issubset(done) or any(_leftovers(store, ledger, state)):
            continue
        if state.is_deleted or store.log_path(state).is_dir():
            left = tuple(each for each in state.intents if isinstance(each, Truncation))
            found[row] = None if state.is_deleted else render_intents(left)
    return found


def _unfinished(ledger: Ledger) -> dict[int, LogState]:
    return {row: state for row, state in enumerate(ledger.all_states()) if state.intent and state.leftovers}


def _log_dirs(state: LogState) -> set[str]:
    return {state.log_dir, *(name for name, _ in state.leftovers)}


def _forget_topic(store: Store, topic: str, owner: Owner) -> None:
    """Forget losses and settings of a topic that is deleted, before a later one of that name is made."""
    owner.check()
    lost = LostRangeTable(store.root / "control" / "lost_ranges")
    lost.drop_torn(owner)  # a power cut may have come while it was forgotten
    lost.forget(topic)
    forget_topic_config(store, topic, owner)


def _take_name(store: Store, state: LogState, owner: Owner) -> None:
    """Give a complete `-future` directory the log's name, durably, unless the log has it already.

    The new directory gets its name before the old one loses it, as in Kafka: with a crash in between a broker finds the
    log twice and does not start. The other way round it would find none, and begin an empty log.
    """
    if check_root(store, state.log_dir) is not None:
        return
    target = store.log_path(state)
    futures = [target.with_name(future_name(state.log, each)) for each in state.intents if isinstance(each, Move)]
    for future in futures:
        if future.is_dir() and not target.exists():
            with storage_errors(future):
                rename(owner, future, target)
                sync_directory(target.parent)
            reach("move.renamed")


def _leftovers(store: Store, ledger: Ledger, state: LogState) -> Iterator[Path]:
    """Yield directories that are there and have to go: never one of a later topic of that name.

    One that does not say whose it is can only be what is looked for, unless the ledger names it. Those of a moved log
    stay until it has its name.
    """
    is_offline = check_root(store, state.log_dir) is not None
    if not state.is_deleted and (is_offline or not store.log_path(state).is_dir()):
        return
    row = ledger.rows.get(state.log)
    home = None if row is None else store.log_path(ledger.state(row))
    for name, directory_name in state.leftovers:
        directory = store.log_dir(name) / directory_name
        if check_root(store, name) is not None or not directory.is_dir():
            continue
        found = stored_topic_id(directory)
        if directory_name != state.log.directory_name or found == state.topic_id or (not found and directory != home):
            yield directory
