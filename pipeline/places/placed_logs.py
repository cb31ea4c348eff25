"""Where the logs of a store lie, for those who only read: which are offline, and which have not got their name yet.

A log that was being moved when a crash came lies under its `-future` name where the ledger says, complete, until the
store is opened for writing again. An earlier state of the ledger may name a disk that the log has left since.
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
    """What lies where.

    Attributes:
        directories: of each log; of an offline one where it should be.
        offline: why a log can't be read, by log.
        unknown: log directories that the ledger does not name, nor as ones that are to go.
        set_aside: `-delete`, `-future` and `-stray` directories.
    """

    directories: Mapping[TopicPartition, Path]
    offline: Mapping[TopicPartition, str]
    unknown: tuple[Path, ...]
    set_aside: tuple[Path, ...]


def place_logs(store: Store, states: Mapping[TopicPartition, LogState], newest: Ledger) -> PlacedLogs:
    """Return where logs lie; nothing is changed.

    Args:
        store: of the logs.
        states: of the ledger, maybe of an earlier version.
        newest: the ledger as it is now: it says where logs lie, and which directories are to go.

    Raises:
        StorageError: a log directory that could be listed a moment ago can't be read.
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
    """Return one path for each log directory: one folder may have several names, from a link or from other settings."""
    paths: dict[str, Path] = {}
    return {
        name: paths.setdefault(os.path.realpath(store.log_dir(name)), store.log_dir(name)) for name in sorted(names)
    }


def _moved(state: LogState, newest: LogState | None) -> LogState:
    """Return the row that says where the log is: a later topic of its name lies elsewhere."""
    return newest if newest is not None and newest.topic_id == state.topic_id else state


def _futures(
    states: Mapping[TopicPartition, LogState],
    roots: Mapping[str, Path],
    there: Mapping[Path, Set[str]],
) -> dict[TopicPartition, str]:
    """Return the complete `-future` directories of logs that are where the ledger says, but have not got their name."""
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
