"""Finishes deleted topics, moves and imports: renames and removes the directories that ledger rows name.

An import that was not committed leaves no trace: its settings go, and requests to forget keys do not wait for its logs.
A moved log lives in the directory that the ledger names: that one gets its final name, others are set aside. On an
offline disk nothing can be done, so the row keeps its intent.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from sparklog.sink.erasure.request_files import lower_ends, read_requests
from sparklog.sink.ledger.intents import Import, Move, Truncation, future_name, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.set_aside import find_deleted, remove_deleted, set_aside, stored_topic_id
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import forget_topic_config, keep_topic_configs
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.owned_names import Owner, rename

__all__ = ["clear_directories", "expect_undone_no_more", "finish_directories", "named_log_dirs", "remaining_intents"]

logger = logging.getLogger(__name__)


def named_log_dirs(ledger: Ledger) -> set[str]:
    """Return every log directory with unfinished deletions or moves."""
    return {name for state in _unfinished(ledger).values() for name in _log_dirs(state)}


def finish_directories(store: Store, ledger: Ledger, owner: Owner) -> list[Path]:
    """Give moved logs their names, and set unneeded directories aside; the caller holds the writer lock.

    Returns:
        The new `-delete` directories.

    Raises:
        InvalidConfigError: two directories claim to be one log; neither was changed.
        StoreLockedError: a task of a dead maintenance run still holds a log that was deleted or moved.
    """
    states = _unfinished(ledger).values()
    for topic in sorted({state.topic for state in states if state.is_absent}.difference(ledger.topics)):
        _forget_topic(store, topic, owner)
    if imported := {state.topic for state in states if _is_imported(state)}:
        keep_topic_configs(store, {}, owner, imported)  # only now: an import that is undone leaves no gaps
    deleted = []
    for state in states:
        if not state.is_absent:
            _take_name(store, state, owner)
        for directory in _leftovers(store, ledger, state):
            deleted.append(set_aside(state.log, directory, owner))
            reach("delete-topic.renamed" if state.is_absent else "move.renamed")
    return deleted


def expect_undone_no_more(
    store: Store,
    ledger: Ledger,
    owner: Owner,
    keep_maintenance_out: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Let requests to forget keys no longer cover the logs of imports that were not committed.

    Otherwise they would erase later records of a log that a sink makes in their place.

    Args:
        keep_maintenance_out: entered if a request changes: it needs both locks.

    Raises:
        CorruptFileError: a request is damaged.
        StoreLockedError: a maintenance run holds its lock.
    """
    ends: dict[str, dict[int, int]] = {}
    for state in _unfinished(ledger).values():
        if state.log not in ledger.rows and any(isinstance(each, Import) for each in state.intents):
            ends.setdefault(state.topic_id, {})[state.partition] = 0
    if not ends or not any(each.covers(ends.get(each.topic_id, ())) for each in read_requests(store)):
        return
    with keep_maintenance_out():
        for topic_id, offsets in ends.items():
            lower_ends(store, topic_id, offsets, owner)


def clear_directories(store: Store, ledger: Ledger, owner: Owner) -> set[str]:
    """Remove `-delete` directories of deletions and moves, and write the roots' checkpoint files.

    A root that the ledger has no logs in any more gets its checkpoint files only here.

    Returns:
        The log directories where this succeeded; a full disk does not stop the opening.
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
            logger.warning("A log directory was not tidied, the next opening retries: %s", error)
        else:
            done.add(name)
    return done


def remaining_intents(store: Store, ledger: Ledger, done: Collection[str]) -> Mapping[int, str | None]:
    """Return the new `intent` of each row whose deletion or moves are finished, None for a row to remove.

    Args:
        done: the result of `clear_directories`.
    """
    found: dict[int, str | None] = {}
    for row, state in _unfinished(ledger).items():
        if not _log_dirs(state).issubset(done) or any(_leftovers(store, ledger, state)):
            continue
        if state.is_absent or store.log_path(state).is_dir():
            left = tuple(each for each in state.intents if isinstance(each, Truncation))
            found[row] = None if state.is_absent else render_intents(left)
    return found


def _unfinished(ledger: Ledger) -> dict[int, LogState]:
    return {row: state for row, state in enumerate(ledger.all_states()) if state.intent and state.leftovers}


def _is_imported(state: LogState) -> bool:
    """Whether the log is of a committed import that is not finished yet: it never lay anywhere else."""
    return any(isinstance(each, Move) and each.source == state.log_dir for each in state.intents)


def _log_dirs(state: LogState) -> set[str]:
    return {state.log_dir, *(name for name, _ in state.leftovers)}


def _forget_topic(store: Store, topic: str, owner: Owner) -> None:
    """Forget losses and settings of a deleted topic, before a later topic of that name is made."""
    owner.check()
    lost = LostRangeTable(store.root / "control" / "lost_ranges")
    lost.drop_torn(owner)  # a power cut may have torn an earlier call
    lost.forget(topic)
    forget_topic_config(store, topic, owner)


def _take_name(store: Store, state: LogState, owner: Owner) -> None:
    """Give a complete `-future` directory the log's name, durably, unless the log has it already.

    The new directory gets its name before the old one loses it, as in Kafka: after a crash in between a broker finds
    the log twice and does not start. In the reverse order it would find none, and begin an empty log.
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
    """Yield existing directories to set aside: never one of a later topic of that name.

    A directory without a topic id counts as this log's, unless the ledger names it. A moved log's old directories stay
    until the new one has its name.
    """
    is_offline = check_root(store, state.log_dir) is not None
    if not state.is_absent and (is_offline or not store.log_path(state).is_dir()):
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
