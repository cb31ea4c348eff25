"""Where the logs of a store lie, for those who only read: which are offline, and which have not got their name yet.

A log that was being moved when a crash came lies under its `-future` name where the ledger says, complete, until the
store is opened for writing again. An earlier state of the ledger may name a disk that the log has left since.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sink.ledger_rows import LogState
from sink.log_dirs import find_unreadable
from sink.pending_work import read_pending
from sink.store import Store
from storage_core.storage.local import storage_errors
from storage_core.topic_partition import TopicPartition, parse_directory_name, parse_set_aside_name

__all__ = ["PlacedLogs", "place_logs"]


@dataclass(frozen=True, slots=True)
class PlacedLogs:
    """What lies where.

    Attributes:
        directories: of each log; of an offline one where it should be.
        offline: why a log can't be read, by log.
        unknown: log directories that the ledger does not name.
        set_aside: `-delete`, `-future` and `-stray` directories.
    """

    directories: Mapping[TopicPartition, Path]
    offline: Mapping[TopicPartition, str]
    unknown: tuple[Path, ...]
    set_aside: tuple[Path, ...]


def place_logs(
    store: Store, states: Mapping[TopicPartition, LogState], newest: Mapping[TopicPartition, LogState]
) -> PlacedLogs:
    """Return where logs lie; nothing is changed.

    Args:
        store: of the logs.
        states: of the ledger, maybe of an earlier version.
        newest: of the ledger as it is now: it says where logs lie.

    Raises:
        StorageError: a log directory that could be listed a moment ago can't be read.
    """
    placed = {log: _moved(state, newest.get(log)) for log, state in states.items()}
    reasons = find_unreadable(store, placed.values())
    online = sorted({state.log_dir for state in placed.values()} - set(reasons))
    entries = [path for name in online for path in _folders(store.log_dir(name))]
    there = set(entries)
    directories = {log: store.log_path(state) for log, state in placed.items()}
    absent = {log for log, path in directories.items() if path not in there and placed[log].log_dir not in reasons}
    if absent:
        directories |= _futures(store, {log: placed[log] for log in absent}, there)
    known = set(directories.values())
    return PlacedLogs(
        directories=directories,
        offline={log: reasons[state.log_dir] for log, state in placed.items() if state.log_dir in reasons},
        unknown=tuple(path for path in entries if path not in known and parse_directory_name(path.name)),
        set_aside=tuple(path for path in entries if path not in known and parse_set_aside_name(path.name)),
    )


def _moved(state: LogState, newest: LogState | None) -> LogState:
    """Return the row that says where the log is: a later topic of its name lies elsewhere."""
    return newest if newest is not None and newest.topic_id == state.topic_id else state


def _futures(store: Store, states: Mapping[TopicPartition, LogState], there: set[Path]) -> dict[TopicPartition, Path]:
    """Return the complete `-future` directories of logs that are where the ledger says, but have not got their name."""
    return {
        move.log: path
        for move in read_pending(store).moves
        if (state := states.get(move.log)) is not None
        and (state.topic_id, state.log_dir) == (move.topic_id, move.target)
        and (path := store.log_dir(move.target) / move.future_name) in there
    }


def _folders(root: Path) -> list[Path]:
    with storage_errors(root):
        return sorted(path for path in root.iterdir() if path.is_dir())
