"""Finds the directories of a store's logs for readers: offline logs, and moved logs that still have a `-future` name.

If a move crashes after its commit, the complete log has its `-future` name in the log directory of its ledger row until
the next opening for writing. An earlier version of the ledger may name a log directory that the log has left since.
"""

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from sparklog.sink.ledger.intents import Move, future_name
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.log_dirs import find_unreadable
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition, parse_directory_name, parse_set_aside_name

__all__ = ["PlacedLogs", "place_logs"]


@dataclass(frozen=True, slots=True)
class PlacedLogs:
    """The directories of a store's logs.

    Attributes:
        directories: of each log; of an offline log the expected one.
        offline: why a log can't be read, by log.
        unknown: log directories that no ledger row names, not even for deletion.
        set_aside: `-delete`, `-future` and `-stray` directories.
    """

    directories: Mapping[TopicPartition, Path]
    offline: Mapping[TopicPartition, str]
    unknown: tuple[Path, ...]
    set_aside: tuple[Path, ...]


def place_logs(store: Store, states: Mapping[TopicPartition, LogState], newest: Ledger) -> PlacedLogs:
    """Return the directories of logs; changes nothing.

    Args:
        states: rows of the ledger, maybe of an earlier version.
        newest: the ledger as it is now, with the logs' places and the directories to delete.

    Raises:
        StorageError: a log directory that was just listed can't be read.
    """
    known_now = newest.states()
    placed = {log: _moved(state, known_now.get(log)) for log, state in states.items()}
    reasons = find_unreadable(store, placed.values())
    roots = _roots(store, {state.log_dir for state in placed.values()} - set(reasons))
    there = {root: _folders(root) for root in set(roots.values())}
    names = {log: log.directory_name for log, state in placed.items() if state.log_dir in roots}
    absent = {log: placed[log] for log, name in names.items() if name not in there[roots[placed[log].log_dir]]}
    if absent:
        names |= _futures(absent, roots, there)
    known: dict[Path, set[str]] = {root: set() for root in there}
    for log, name in names.items():
        known[roots[placed[log].log_dir]].add(name)
    others = [(root, name) for root in sorted(there) for name in sorted(there[root] - known[root])]
    left = {(roots.get(root), name) for state in newest.all_states() for root, name in state.leftovers}
    directories = {log: store.log_path(state) for log, state in placed.items() if log not in names}
    return PlacedLogs(
        directories=directories | {log: roots[placed[log].log_dir] / name for log, name in names.items()},
        offline={log: reasons[state.log_dir] for log, state in placed.items() if state.log_dir in reasons},
        unknown=tuple(root / name for root, name in others if parse_directory_name(name) and (root, name) not in left),
        set_aside=tuple(root / name for root, name in others if parse_set_aside_name(name)),
    )


def _roots(store: Store, names: Set[str]) -> dict[str, Path]:
    """Return one path per log directory: a folder may have several names, by a link or by changed settings."""
    paths: dict[str, Path] = {}
    return {
        name: paths.setdefault(os.path.realpath(store.log_dir(name)), store.log_dir(name)) for name in sorted(names)
    }


def _moved(state: LogState, newest: LogState | None) -> LogState:
    """Return the row with the log's present place; a newer topic of this name is another log."""
    return newest if newest is not None and newest.topic_id == state.topic_id else state


def _futures(
    states: Mapping[TopicPartition, LogState],
    roots: Mapping[str, Path],
    there: Mapping[Path, Set[str]],
) -> dict[TopicPartition, str]:
    """Return the complete `-future` directories of moved logs that have not got their final name yet."""
    names = [
        (log, future_name(log, each))
        for log, state in states.items()
        for each in state.intents
        if isinstance(each, Move)
    ]
    return {log: name for log, name in names if name in there[roots[states[log].log_dir]]}


def _folders(root: Path) -> set[str]:
    with storage_errors(root), os.scandir(root) as entries:
        return {each.name for each in entries if each.is_dir()}
